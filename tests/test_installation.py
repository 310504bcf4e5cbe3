"""What an installed wheel holds and does, away from the checkout."""

import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from keras_vit import _installation
from keras_vit.export import precision, savedmodel
from keras_vit_cli import arguments
from tests.test_imports import OPTIONAL

ROOT = pathlib.Path(__file__).parents[1]
pytestmark = pytest.mark.backend("tensorflow")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory into which the wheel was installed, alone."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("keras_vit", "keras_vit_cli"):
        shutil.copytree(
            ROOT / name,
            source / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", "install", "--no-build-isolation"]
    pip += ["--no-deps", "--no-index", f"--target={folder / 'site'}"]
    subprocess.run([*pip, source], check=True)
    return folder / "site"


@pytest.mark.backend("torch")
def test_the_wheel_holds_the_packages_and_no_checkout(site):
    names = {path.name for path in site.iterdir() if path.is_dir()}
    (metadata,) = {name for name in names if name.endswith(".dist-info")}
    assert metadata.startswith("keras_vision_transformer-")
    assert names == {metadata, "bin", "keras_vit", "keras_vit_cli"}
    for name in ("keras_vit", "keras_vit_cli"):
        assert files_of(site / name) == files_of(ROOT / name)


def files_of(folder):
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


# Run in a new process, which takes PyTorch the shortest time to start.
OUTSIDE = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "tensorflow":
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
import numpy as np
import keras
before = set(sys.modules)
import keras_vit
loaded = set(sys.modules) - before
print([name for name in OPTIONAL if name in loaded])
print(keras_vit.__file__)
import keras_vit_cli
words = ["convert", WEIGHTS, "model.keras", "--format=keras_vit"]
assert keras_vit_cli.main(words) == 0
model = keras.models.load_model("model.keras")
images = np.zeros((1, *model.input_shape[1:]))
print(model.family, model.predict(images, verbose=0).shape)
sys.path.append(ROOT)
import recipes.finetune  # imports TensorFlow when it reads images
"""


@pytest.mark.backend("torch")
def test_it_works_outside_the_checkout_without_tensorflow(site, tmp_path):
    """And importing it loads no more than Keras does."""
    weights = ROOT / "tests/goldens/numerics/vit_token.ckpt.npz"
    names = dict(OPTIONAL=sorted(OPTIONAL), WEIGHTS=str(weights))
    names["ROOT"] = str(ROOT)
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    done = run_outside(tmp_path, site, sys.executable, "-c", given + OUTSIDE)
    assert done.returncode == 0, done.stderr
    loaded, file, *_, last = done.stdout.splitlines()
    assert loaded == "[]"
    assert file == str(site / "keras_vit/__init__.py")
    assert last == "vit (1, 7)"
    done = run_outside(tmp_path, site, site / "bin/keras-vit", "--help")
    assert done.stdout.startswith("usage: keras-vit"), done.stderr


def run_outside(folder, site, *words):
    """Runs a command in a folder where Python finds the installed wheel."""
    environment = os.environ | dict(PYTHONPATH=str(site))
    return subprocess.run(
        words, capture_output=True, text=True, cwd=folder, env=environment
    )


@pytest.mark.parametrize("command", ["", "predict", "export", "convert"])
def test_help_imports_neither_keras_nor_a_backend(command):
    program = f"""
import sys
import keras_vit_cli
try:
    keras_vit_cli.main([*{command.split()!r}, "--help"])
except SystemExit as stop:
    slow = {{"keras", "numpy", "tensorflow"}} & set(sys.modules)
    sys.exit(stop.code or sorted(slow) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: keras-vit" in done.stdout


def test_the_choices_of_the_command_are_those_of_the_library():
    assert arguments.ACTIVATIONS == savedmodel.ACTIVATIONS
    assert arguments.PRECISIONS == precision.PRECISIONS


# The other project's files, and those that pip leaves where its wheel was
# installed after ours or before.
OTHER_INIT = '__version__ = "1.0.0"\n'


@pytest.mark.parametrize("init", [None, OTHER_INIT], ids=["ours", "theirs"])
def test_a_directory_mixed_with_the_other_package_is_refused(tmp_path, init):
    package = tmp_path / "keras_vit"
    shutil.copytree(
        ROOT / "keras_vit",
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("config.py", "layers.py", "utils.py", "vit.py"):
        (package / name).write_text("")
    if init is not None:
        (package / "__init__.py").write_text(init)
    done = subprocess.run(
        [sys.executable, "-c", "import keras_vit; import keras_vit.weights"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "holds modules of another project" in last
    assert "pip uninstall keras_vit keras-vision-transformer" in last


def test_metadata_of_the_former_name_is_not_a_mixture(tmp_path):
    """A checkout once installed as `keras_vit` still has its egg-info."""
    (tmp_path / "keras_vit.egg-info").mkdir()
    (tmp_path / "keras_vit.egg-info/PKG-INFO").write_text("Name: keras_vit\n")
    (tmp_path / "keras_vit").mkdir()
    (tmp_path / "keras_vit/__init__.py").write_text("")
    for package in (tmp_path / "keras_vit", ROOT / "keras_vit"):
        assert _installation.refuse_other_package(package) is None


# What is installed, what KERAS_BACKEND and keras.json say, and the backend that
# Keras imports.
CHOICES = [
    (("tensorflow", "jax", "torch"), "", "", "tensorflow"),
    (("jax", "torch"), "", "", "jax"),
    (("torch",), "", "", "torch"),
    (("torch",), "", "tensorflow", "torch"),  # as Keras writes it
    (("tensorflow", "jax"), "", "jax", "jax"),
    (("tensorflow", "jax"), "jax", "tensorflow", "jax"),
]
REFUSALS = [
    ((), "", "", "of which none is installed"),
    ((), "", "tensorflow", "of which none is installed"),
    (("torch",), "jax", "", "KERAS_BACKEND must name an installed.*'jax'"),
    (("torch",), "pytorch", "", "KERAS_BACKEND .*Installed: torch"),
    (("torch",), "", "jax", "keras.json must name an installed.*'jax'"),
]
PROGRAMS = [
    ("keras_vit_cli", "predict", "model.keras", "a.jpg"),
    ("recipes.finetune",),
    ("tools.token_reach", "ViTB16"),
]


@pytest.fixture
def start(tmp_path):
    """Starts Python where the libraries are modules that print their name."""
    shown = "import os; raise SystemExit(os.environ.get('KERAS_BACKEND', ''))"
    hidden = """
import importlib.machinery, sys
class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in {"tensorflow", "jax", "torch"}:
            return super().find_spec(name, path, target)
        return super().find_spec(name, [LIBRARIES], target)
sys.meta_path = [
    Hiding if x is importlib.machinery.PathFinder else x for x in sys.meta_path
]
"""

    def run(installed, setting, of_file, *arguments):
        libraries = tmp_path / "libraries"
        (libraries / "tensorflow").mkdir(parents=True)  # a folder left behind
        for name in installed:
            (libraries / f"{name}.py").write_text("")
        (tmp_path / "keras.py").write_text(shown)
        (tmp_path / "sitecustomize.py").write_text(
            hidden.replace("LIBRARIES", repr(str(libraries)))
        )
        if of_file:
            settings = json.dumps({"backend": of_file})
            (tmp_path / "keras.json").write_text(settings)
        changed = dict(
            PYTHONPATH=f"{tmp_path}:{ROOT}",
            KERAS_HOME=str(tmp_path),
            KERAS_BACKEND=setting,
        )
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | changed,
        )

    return run


@pytest.mark.parametrize(("installed", "set_to", "of_file", "chosen"), CHOICES)
def test_the_backend_that_is_installed_is_chosen(
    start, installed, set_to, of_file, chosen
):
    done = start(installed, set_to, of_file, "-c", "import keras_vit")
    # Keras takes that of its file where the variable is not set.
    assert done.stderr.strip() in {chosen, ""}, done.stderr
    assert done.stderr.strip() or chosen in (of_file, "tensorflow")


@pytest.mark.parametrize(
    ("installed", "set_to", "of_file", "words", "program"),
    [(*each, PROGRAMS[0]) for each in REFUSALS]
    + [(*REFUSALS[0], program) for program in PROGRAMS[1:]],
)
def test_without_the_backend_one_sentence_says_so(
    start, installed, set_to, of_file, words, program
):
    done = start(installed, set_to, of_file, "-m", *program)
    assert done.returncode == 2
    assert re.search(words, done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert 'pip install -e ".[' in done.stderr


def test_tests_run_on_every_installed_backend_all_the_same(start):
    program = ("-m", "tools.test_backends", "--version")
    done = start(("jax", "torch"), "", "", *program)
    assert "jax: passed" in done.stdout and "torch: passed" in done.stdout


def test_python_raises_an_import_error_without_a_backend(start):
    program = "import traceback\ntry:\n import keras_vit\n"
    program += "except ImportError as error: print(error)"
    done = start((), "", "", "-c", program)
    assert "of which none is installed" in done.stdout, done.stderr


@pytest.mark.parametrize("missing", ["absl", "fcntl"])
def test_what_recipes_need_is_named(start, missing):
    program = f"import sys\nsys.modules[{missing!r}] = None\n"
    program += "from recipes import start\nstart.main('recipes.finetune')"
    done = start(("jax",), "", "", "-c", program)
    assert done.returncode == 2
    assert f"Recipes need `{missing}`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# What pip notes of where a package came from, and what installs an extra.
ORIGINS = [
    (None, ""),
    (
        {"url": "file:///home/me/clone", "dir_info": {}},
        " @ file:///home/me/clone",
    ),
    (
        {
            "url": "https://host/it.git",
            "vcs_info": {"vcs": "git", "commit_id": "a1b2"},
        },
        " @ git+https://host/it.git@a1b2",
    ),
]


@pytest.mark.parametrize(("origin", "address"), ORIGINS)
def test_an_extra_is_installed_from_where_the_package_came(
    tmp_path, monkeypatch, origin, address
):
    package = tmp_path / "keras_vit"
    package.mkdir()
    shutil.copy(ROOT / "keras_vit/_installation.py", package)
    info = tmp_path / "keras_vision_transformer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {_installation.NAME}\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    module = runpy.run_path(str(package / "_installation.py"))
    wanted = f'pip install "keras-vision-transformer[jax]{address}"'
    assert module["pip_install"]("jax") == wanted


def test_an_extra_of_a_clone_is_installed_in_it(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert _installation.pip_install("jax") == 'pip install -e ".[jax]"'
    monkeypatch.chdir(tmp_path)
    wanted = f'pip install -e "{ROOT}[jax]"'
    assert _installation.pip_install("jax") == wanted
