"""The notebooks of the documentation run, and hold what they printed."""

import json
import os
import re

import matplotlib
import pytest

from tests.documented import NOTEBOOKS

# Each on one backend, the notebooks being the same on all.
BACKENDS = {
    "build_vit": "torch",
    "dictionary": "torch",
    "finetune": "torch",
    "inside": "torch",
    "mixers": "torch",
    "serving": "tensorflow",
    "tasks": "torch",
    "words": "torch",
}
# What takes long in a notebook -> what is run in its place.
SHRUNK = {
    r"epochs=(8|12|15)\b": "epochs=2",
    r"\[:1400\]": "[:320]",  # the images to train on
    "steps_per_epoch=20": "steps_per_epoch=4",
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.shuffle=True. was passed",
    # Without a display, `plt.show` shows nothing.
    "ignore:FigureCanvasAgg is non-interactive",
)


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.backend_independent
def test_every_notebook_is_run_on_a_backend():
    assert sorted(path.stem for path in NOTEBOOKS) == sorted(BACKENDS)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.backend(BACKENDS[path.stem]))
        for path in NOTEBOOKS
    ],
    ids=lambda path: path.stem,
)
@pytest.mark.usefixtures("plain_decoding")
def test_the_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names = {"__name__": "__main__"}
    sources = ["".join(cell["source"]) for cell in code_cells(path)]
    for pattern, shorter in SHRUNK.items():
        sources = [re.sub(pattern, shorter, source) for source in sources]
    # Cells that write a file can run a second time.
    assert all("overwrite=True" in x for x in sources if "export_s" in x)
    again = [text for text in sources if "save_ch" in text]
    for i, source in enumerate(sources + again):
        exec(compile(source, f"{path.name}[{i}]", "exec"), names)
    matplotlib.pyplot.close("all")
    losses = names["history"].history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.backend_independent
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_outputs_of_the_notebook_are_stored_and_small(path):
    cells = code_cells(path)
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(each["output_type"] != "error" for each in outputs)
    for cell in cells:
        source = "".join(cell["source"])
        # Some notebooks print in functions of these names.
        shows = re.search(r"print\(|plt\.show|\b(check|train)\(", source)
        assert bool(cell["outputs"]) == bool(shows), source
    assert path.stat().st_size < 150_000
    text = path.read_text()
    assert os.sep + "tmp" not in text and "/home" not in text
