"""The cases of tests/goldens/modern, as files of their libraries."""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent / "goldens" / "modern"
sys.path.insert(0, str(FOLDER))

from drawn import draw_arrays, draw_pixels  # noqa: E402

__all__ = ["CASES", "FOLDER", "draw_arrays", "draw_pixels", "open_case"]
CASES = sorted(path.stem for path in FOLDER.glob("*.json"))


def open_case(name, folder):
    """Writes the files of a library; returns the case and its arrays."""
    from safetensors.numpy import save_file

    case = json.loads((FOLDER / f"{name}.json").read_text())
    arrays = draw_arrays(case["shapes"])
    folder.mkdir(exist_ok=True)
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(case["config"]))
    if name.startswith("hf"):
        processor = json.dumps(case["processor"])
        (folder / "preprocessor_config.json").write_text(processor)
    return case, arrays
