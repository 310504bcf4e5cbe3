"""What is installed: this package alone, and a backend of Keras.

Imports nothing of Keras, which would fail first. `keras_vit_cli` runs this file
by its path.
"""

import importlib.util
import json
import os
import pathlib
from importlib import metadata

NAME = "keras-vision-transformer"
# In the order of preference where nothing is set; Keras' default is the first.
BACKENDS = ("tensorflow", "jax", "torch")
# The modules of `keras_vit` 1.0 on the package index. This package has none of
# these names. The check looks for files, since metadata may be stale or
# missing.
OTHERS = ("config.py", "layers.py", "utils.py", "vit.py")


def refuse_other_package(directory: str | os.PathLike) -> None:
    """Refuses a package directory that two distributions were written to.

    The other distribution's `__init__.py` may have replaced ours, so the
    subpackages that all others import call this too.
    """
    found = [
        name for name in OTHERS if os.path.isfile(os.path.join(directory, name))
    ]
    if found:
        raise ImportError(
            f"{os.fspath(directory)!r} holds modules of another project, "
            f"`keras_vit` of the package index ({', '.join(found)}), mixed "
            f"with those of {NAME}: run `pip uninstall keras_vit {NAME}` and "
            f"install {NAME} again."
        )


def pip_install(extra: str) -> str:
    """Return the command that installs an extra of this package.

    Args:
        extra: Its name in setup.cfg.
    """
    root = pathlib.Path(__file__).resolve().parents[1]
    if (root / "setup.cfg").is_file():  # a clone
        place = "." if root == pathlib.Path.cwd() else root
        return f'pip install -e "{place}[{extra}]"'
    try:
        origin = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    # Without an origin it came from an index, which has it again.
    address = f" @ {_address(json.loads(origin))}" if origin else ""
    return f'pip install "{NAME}[{extra}]{address}"'


def _address(origin):
    """Return what pip takes for the content of direct_url.json."""
    if "vcs_info" not in origin:
        return origin["url"]
    version = origin["vcs_info"]
    return f"{version['vcs']}+{origin['url']}@{version['commit_id']}"


def choose_backend() -> str:
    """Select the backend that Keras will import, one that is installed.

    What KERAS_BACKEND or keras.json sets is kept. Keras itself writes
    "tensorflow" into keras.json when it first starts, so that this counts only
    where TensorFlow is installed. Sets KERAS_BACKEND if it selects another
    than Keras would.

    Returns:
        Its name.

    Raises:
        ImportError: If none is installed, or not the one that is set.
    """
    backend, place = os.environ.get("KERAS_BACKEND"), "KERAS_BACKEND"
    if not backend:
        backend, place = _of_keras_json()
    installed = [name for name in BACKENDS if _is_installed(name)]
    if _is_installed(backend):
        return backend
    if place == "KERAS_BACKEND" or backend != BACKENDS[0]:
        raise ImportError(
            f"{place} must name an installed backend of Keras. Received: "
            f"{backend!r}. Installed: {', '.join(installed) or 'none'}. To "
            "install one: "
            + pip_install(backend if backend in BACKENDS else BACKENDS[0])
        )
    if not installed:
        raise ImportError(
            "keras_vit computes with TensorFlow, JAX or PyTorch, of which none "
            f"is installed. To install one: {pip_install(backend)}, or with "
            "[jax] or [torch] at its end"
        )
    os.environ["KERAS_BACKEND"] = installed[0]
    return installed[0]


def _of_keras_json():
    """Return the backend that Keras' own file sets, and the file's path."""
    home = os.environ.get("KERAS_HOME", os.path.expanduser("~/.keras"))
    path = pathlib.Path(home, "keras.json")
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError):
        settings = {}
    return settings.get("backend", BACKENDS[0]), str(path)


def _is_installed(module):
    spec = importlib.util.find_spec(module)
    # A folder that an uninstalled package left behind has no origin.
    return spec is not None and spec.origin is not None


refuse_other_package(os.path.dirname(os.path.abspath(__file__)))
choose_backend()
