"""Files of tests/goldens whose arrays are drawn, not stored."""

import functools
import json
import pathlib
import shutil
import tempfile

import numpy as np

from tests.modern_cases import draw_arrays

GOLDENS = pathlib.Path(__file__).parent / "goldens"
# Removed when the process ends.
_made = tempfile.TemporaryDirectory(prefix="keras_vit-goldens")


@functools.cache
def drawn(kind: str) -> pathlib.Path:
    """Return a folder of complete folders: of "tasks" or of "towers"."""
    from safetensors.numpy import save_file

    made = pathlib.Path(_made.name) / kind
    shutil.copytree(GOLDENS / kind, made)
    for path in made.glob("*/shapes.json"):
        arrays = draw_arrays(json.loads(path.read_text()))
        save_file(arrays, path.with_name("model.safetensors"))
        path.unlink()
    return made


@functools.cache
def drawn_checkpoint(case: str) -> pathlib.Path:
    """Return the npz file of a case of tests/goldens/numerics."""
    path = GOLDENS / "numerics" / f"{case}.shapes.json"
    made = pathlib.Path(_made.name) / f"{case}.ckpt.npz"
    np.savez(made, **draw_arrays(json.loads(path.read_text())))
    return made
