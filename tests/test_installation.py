"""What an installed wheel holds and does, away from the checkout."""

import os
import pathlib
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import _installation
from keras_vit.export import precision, savedmodel
from keras_vit_cli import arguments

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
    pip += ["--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    wheel = ["wheel", "--no-build-isolation", f"--wheel-dir={folder}"]
    subprocess.run([*pip, *wheel, *alone, source], check=True)
    (built,) = folder.glob("*.whl")
    target = ["install", f"--target={folder / 'site'}"]
    subprocess.run([*pip, *target, *alone, built], check=True)
    return folder / "site"


@pytest.fixture
def run(site, tmp_path):
    """Runs a command of the installed wheel in an empty directory."""

    def start(*words):
        return subprocess.run(
            [site / "bin" / "keras-vit", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
        )

    return start


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


def test_the_command_works_outside_the_checkout(run, tmp_path):
    keras_vit.ViT(
        patch_size=4,
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        mlp_dim=8,
        input_shape=(8, 8, 3),
        class_names=("cat", "dog"),
    ).save(tmp_path / "model.keras")
    image = np.zeros((8, 8, 3), "uint8")
    keras.utils.save_img(tmp_path / "image.png", image, scale=False)

    done = run("export", "model.keras", "serving/vit/1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "serving/vit/1/saved_model.pb").exists()
    done = run("predict", "model.keras", "image.png", "--attention=seen.png")
    assert done.returncode == 0, done.stderr
    assert "50.00%  cat" in done.stdout and (tmp_path / "seen.png").exists()
    done = run("weights", "list", "ViTB16")
    assert done.returncode == 0, done.stderr
    assert "imagenet21k" in done.stdout


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
