"""What each process of the tests does before it imports Keras."""

import importlib.metadata
import os
import re
import tempfile

# Processes share the programs that JAX has compiled: those of pytest-xdist and
# those that tests start, which inherit the environment.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="keras_vit-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# Only tests marked `optimized` are compiled like a user's programs. Without
# optimization compiling takes half as long, and it is most of the time of the
# other tests.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def pytest_addoption(parser):
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="rewrite tests/goldens; review the diff",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="run long tests on more backends than the one that covers most",
    )


def pytest_report_header():
    backend = os.environ.get("KERAS_BACKEND", "that of keras.json")
    return f"backend: {backend} on keras {importlib.metadata.version('keras')}"


def pytest_configure(config):
    """Imports Keras and TensorFlow where tests run.

    The process that starts others runs none, and they wait for it.
    """
    starts_others = getattr(config.option, "numprocesses", None)
    if hasattr(config, "workerinput") or not starts_others:
        config.pluginmanager.import_plugin("tests.with_keras")


def pytest_ignore_collect(collection_path, config):
    """Leaves out files whose tests all run on other backends.

    Importing them, and what they import, takes seconds in every process. A
    file that is named on the command line is collected.
    """
    backend = os.environ.get("KERAS_BACKEND")
    if collection_path.suffix == ".py" and backend:
        marks = marks_of(collection_path.read_text())
        first = "not backend_independent" not in (config.option.markexpr or "")
        runs = backend in marks or (first and "backend_independent" in marks)
        if marks and not runs:
            return True
    return None


def marks_of(source):
    """The backends that the marks of a file name, if all its tests have one.

    That is where `pytestmark` has one. "backend_independent" is among them.
    """
    of_file = r"^pytestmark = (\[.*?^\]|[^\n]*)"
    found = re.search(of_file, source, re.DOTALL | re.MULTILINE)
    if not found or "mark.backend" not in found[0]:
        return set()
    marks = set(re.findall(r"mark\.(backend_independent)\b", source))
    for names in re.findall(r"mark\.backend\(([^)]*)\)", source):
        if not re.fullmatch(r'("\w+"(, )?)+', names):
            return set()
        marks.update(re.findall(r"\w+", names))
    return marks
