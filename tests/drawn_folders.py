"""The folders of tests/goldens/tasks and towers, with their arrays drawn."""

import functools
import json
import pathlib
import shutil
import tempfile

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
