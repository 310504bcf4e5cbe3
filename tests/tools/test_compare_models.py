"""The comparison of models: its table in the documentation, the slides'."""

import csv
import io
import re

import pytest

import keras_vit
from tools import compare_models, model_tables

# Quick ones; the costs of others are compared as the page has them.
COUNTED = ("ViTTi16", "MixerS16")


def written_rows():
    """The rows of the page by model, and the names in their order."""
    text = compare_models.PAGE.read_text()
    block = re.search(r"<!-- comparison -->.*", text, re.DOTALL)[0]
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([\dx ]+)"
        + 3 * r" \| ([\d.]+)"
        + r" \| (.*) \|$",
        block,
        re.MULTILINE,
    )
    return {
        name: compare_models.Row(
            name,
            family,
            size,
            *(
                round(float(n) * unit)
                for n, unit in zip(numbers, UNITS, strict=True)
            ),
            top1.strip(),
        )
        for name, family, size, *numbers, top1 in rows
    }


UNITS = (1e6, 1e9, 1e6)


@pytest.mark.backend("jax")  # which traces fastest
def test_the_table_of_the_documentation_is_that_of_the_models(monkeypatch):
    rows, count = written_rows(), compare_models.row_of
    monkeypatch.setattr(
        compare_models,
        "row_of",
        lambda name: count(name) if name in COUNTED else rows[name],
    )
    text = compare_models.PAGE.read_text()
    assert list(rows) == compare_models._known(), "--write"
    assert compare_models.update(text) == text, "--write"


@pytest.mark.backend("jax")
def test_the_slides_stand_beside_what_is_counted(monkeypatch, capsys):
    rows = written_rows()
    monkeypatch.setattr(compare_models, "row_of", rows.get)
    assert compare_models.main(["--slides", "--format=csv"]) == 0
    low, high = capsys.readouterr().out.strip().split("\n\n")
    table = {
        row["model"]: row
        for text in (low, high)
        for row in csv.DictReader(io.StringIO(text))
    }
    assert len(table) == 21
    raft = table["RaftMLP-S"]
    assert (raft["top-1 (%)"], raft["top-5 (%)"]) == ("76.1", "93.0")
    assert raft["published parameters (M)"] == "9.9"
    assert (raft["parameters (M)"], raft["GMACs"]) == ("9.87", "2.09")
    assert table["ResNet-18"]["GMACs"] == ""
    deep = table["S2-MLP-deep"]  # no known layout has the published size
    assert (deep["published parameters (M)"], deep["parameters (M)"]) == (
        "51.0",
        "53.92",
    )


@pytest.mark.backend("torch")
def test_models_are_measured_printed_and_drawn(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    rows = written_rows()
    monkeypatch.setattr(compare_models, "row_of", rows.get)
    monkeypatch.setattr(compare_models, "speed", lambda name, batch: 12.5)
    path = tmp_path / "figure.png"
    names = ["RaftMLPS", "ConvMLPS"]
    flags = ["--format=markdown", "--batch_size=2", f"--figure={path}"]
    assert compare_models.main([*names, *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("| top-1 (%) | images/s here |")
    assert lines[3].startswith("| ConvMLPS | conv_mlp | 224 | 9.02 | 2.3")
    assert lines[3].endswith("| 76.80 | 12.5 |")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.backend_independent
def test_an_unknown_model_is_refused(capsys):
    assert compare_models.main(["ViTB17"]) == 2
    assert "MODEL must be one of" in capsys.readouterr().err


@pytest.mark.backend("jax")
def test_a_row_has_the_costs_of_the_images_whose_accuracy_it_has():
    model = keras_vit.ViTS32(classes=1000, input_shape=(384, 384, 3))
    cost, row = keras_vit.cost(model), compare_models.row_of("ViTS32")
    assert (row.input, row.top1) == ("384", "79.58")
    assert (row.parameters, row.macs) == (cost.parameters, cost.macs)
    assert model_tables.input_of("ViTH14") == "378"  # of 384
    assert model_tables.input_of("MixerB16") == "224"
    assert model_tables.input_of("MViTB16x4") == "16 x 224"
