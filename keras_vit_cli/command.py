"""Common parts of all commands: a quiet start, and errors as messages.

Imports nothing but the standard library: it runs before TensorFlow loads.
"""

import argparse
import contextlib
import difflib
import functools
import glob
import importlib
import importlib.abc
import os
import pathlib
import re
import runpy
import sys
import tempfile
import traceback
from typing import Any

# Errors of the user: a wrong value, a file or an address, a missing package.
# Any other exception is a bug and shows its traceback.
USER_ERRORS = (ValueError, OSError, ImportError)
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


class Parser(argparse.ArgumentParser):
    """A parser whose commands have the flag --debug.

    Flags have underscores, as the fields of the recipes' configs have; hyphens
    are read as well. The error of a misspelt choice has the nearest one. Help
    keeps the lines of the description, and calls a module `python -m MODULE`.
    """

    def __init__(self, **kwargs):
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec:  # Python 3.14 does so itself
            name = spec.name.removesuffix(".__main__")
            kwargs.setdefault("prog", f"python -m {name}")
        kwargs.setdefault("formatter_class", argparse.RawTextHelpFormatter)
        super().__init__(**kwargs)
        self.add_argument(
            "--debug", action="store_true", help="show an error's traceback"
        )

    def parse_known_args(self, args=None, namespace=None):
        words = sys.argv[1:] if args is None else list(args)
        end = words.index("--") if "--" in words else len(words)
        flags = [re.sub(r"^--[\w-]+", _underscored, x) for x in words[:end]]
        return super().parse_known_args(flags + words[end:], namespace)

    def error(self, message):
        found = re.search(
            r"invalid choice: '(.*)' \(choose from (.*)\)", message
        )
        if found:
            word, choices = found[1], re.findall(r"[\w.-]+", found[2])
            for near in difflib.get_close_matches(word, choices, n=1):
                message += f". Did you mean {near!r}?"
        super().error(message)


def _underscored(match):
    return "--" + match[0][2:].replace("-", "_")


def entry(main):
    """Decorate `main(arguments)` of a command.

    An error that the user caused is reported, and the exit status is 2.

    Args:
        main: Takes the arguments, parses them with `Parser`, and returns the
            exit status.

    Returns:
        The same function; its arguments are those of sys.argv by default.
    """

    @functools.wraps(main)
    def wrapped(arguments: list[str] | None = None) -> int:
        arguments = sys.argv[1:] if arguments is None else arguments
        try:
            return main(arguments)
        except USER_ERRORS as error:
            report(error, "--debug" in arguments)
            return 2

    return wrapped


def report(error: Exception, debug: bool = False) -> None:
    """Print the message of one of `USER_ERRORS` to stderr."""
    text = _message(error)
    if debug:
        text = "".join(traceback.format_exception(error)).rstrip()
    print(text, file=sys.stderr, flush=True)


def _message(error):
    """Return the message; for an error of another library, also its origin."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    module = frame.f_globals.get("__name__", "")
    text = str(error) or "no message"
    # "<run_path>" is the file of --config.
    ours = (
        "keras_vit",
        "keras_vit_cli",
        "recipes",
        "tools",
        "__main__",
        "<run_path>",
    )
    if module.split(".")[0] in ours and str(error):
        return text
    return (
        f"{type(error).__name__}: {text}\n"
        f"Raised in {module}, line {line}; --debug shows the traceback."
    )


def prepare(needed: tuple[str, ...] = ()) -> None:
    """Prepare the programs of a package, in its `__init__.py`.

    Args:
        needed: Modules without which none of them starts.

    Raises:
        SystemExit: With status 2, if `python -m` starts one of them and a
            module, or every backend, is missing.
        ImportError: If so, and another program imports the package.
    """
    quiet_tensorflow()
    try:
        choose_backend()
        for module in needed:
            _require(module)
    except ImportError as error:
        if sys.argv[:1] != ["-m"]:
            raise
        report(error, "--debug" in sys.argv)
        sys.exit(2)


def _require(module):
    try:
        importlib.import_module(module)
    except ImportError as error:
        remedy = _installation()["pip_install"]("recipes")
        if module == "fcntl":  # a part of Python itself
            remedy = "on Windows use the Windows Subsystem for Linux (WSL)"
        raise ImportError(
            f"Recipes need `{module}`, which is not installed: {remedy}"
        ) from error


def choose_backend() -> str:
    """Select an installed backend, as `import keras_vit` does, but at once.

    Returns:
        Its name.

    Raises:
        ImportError: If none is installed, or not the one that is set.
    """
    return _installation()["choose_backend"]()


def _installation():
    """Return what keras_vit._installation defines, without keras_vit."""
    package = pathlib.Path(__file__).parents[1] / "keras_vit"
    return runpy.run_path(str(package / "_installation.py"))


def quiet_tensorflow() -> None:
    """Hide the log of TensorFlow, unless TF_CPP_MIN_LOG_LEVEL is set.

    Errors stay visible if there is a GPU; without one, TensorFlow reports its
    absence as an error. TensorFlow respects the variable only after its import;
    earlier lines are filtered here by the same rule. Set it to 0 to see
    everything.
    """
    if any(isinstance(finder, _QuietImport) for finder in sys.meta_path):
        return
    asked = os.environ.get(LOG_LEVEL)
    if asked is None:
        has_gpu = bool(glob.glob("/dev/nvidia[0-9]*"))
        os.environ[LOG_LEVEL] = "2" if has_gpu else "3"
    elif asked not in ("1", "2", "3"):
        return
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _QuietImport(int(asked or 3)))


class _QuietImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports TensorFlow with its log lines filtered."""

    loader: Any

    def __init__(self, level):
        self.level = level

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        for finder in sys.meta_path:
            # Checking whether TensorFlow is installed does not import it: this
            # finder stays until TensorFlow is imported.
            spec = finder is not self and finder.find_spec(name, path, target)
            if spec:
                self.loader, spec.loader = spec.loader, self
                return spec
        return None

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        sys.meta_path.remove(self)
        module.__spec__.loader = module.__loader__ = self.loader
        with _filtered_stderr(self.level):
            self.loader.exec_module(module)


@contextlib.contextmanager
def _filtered_stderr(level):
    """Capture the output to file descriptor 2, including that of C++."""
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            text = file.read().decode(errors="replace")
            sys.stderr.write("".join(_kept(text, level)))


def _kept(text, level):
    """Yield the lines that are not log lines, or have at least this level."""
    for line in text.splitlines(keepends=True):
        # "I0000 00:00:1795.05 6671 port.cc:153] ..." or, before 2.17,
        # "2026-11-22 02:04:30.5: I tensorflow/...".
        head = re.match(r"([IWEF])\d{4} |\d{4}-\d\d-\d\d \S+ ([IWEF]) ", line)
        if head:
            shown = "IWEF".index(head[1] or head[2]) >= level
        else:
            shown = not line.startswith("WARNING: All log messages before absl")
        if shown:
            yield line
