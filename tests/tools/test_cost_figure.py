"""Table 6's costs, counted, and accuracies drawn against them."""

import json

import pytest
from catalogue import make_model

import keras_vit
from recipes import paper_tables
from tools import cost_figure, runs

# The smallest of each kind and the largest, at both lengths of training.
COUNTED = [paper_tables.TABLE_6[i] for i in (0, 5, 6, 12, 13, 17)]


@pytest.mark.backend("jax")  # which traces fastest
@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row[0])
@pytest.mark.thorough()
def test_pre_training_costs_what_table_6_says(row):
    name, epochs, *_, printed = row
    macs = cost_figure.macs_of(name)
    found = cost_figure.exaflops(macs, epochs * cost_figure.JFT_IMAGES)
    is_vit = cost_figure.kind_of(name) == "Transformer (ViT)"
    assert found == pytest.approx(printed, rel=0.025 if is_vit else 0.045)


def write_run(folder, model, **config):
    """Leaves of a run what its cost and its accuracy are read from."""
    folder.mkdir()
    defaults = dict(model="ViT", weights="", eval_split="", seed=0)
    content = dict(
        config=defaults | dict(batch_size=8, num_epochs=1) | config,
        derived=dict(total_steps=100),
    )
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "metrics.csv").write_text("epoch,step,val_accuracy\n0,100,0.75\n")
    model.save(folder / "last.keras")
    return folder


@pytest.mark.backend("torch")
def test_runs_are_drawn_at_the_cost_of_their_pre_training(
    tmp_path, monkeypatch, capsys
):
    pytest.importorskip("matplotlib")
    model = make_model("token")
    before = write_run(tmp_path / "before", model, dataset="flowers")
    after = write_run(
        tmp_path / "after",
        model,
        dataset="cifar10",
        weights=str(before / "last.keras"),
        batch_size=1,
    )
    other = write_run(
        tmp_path / "other", model, dataset="digits", weights="imagenet21k"
    )
    expected = 6 * keras_vit.cost(model).macs * 800 / 1e18
    for folder in (before, after):
        assert cost_figure.cost_of(folder) == pytest.approx(expected)
    points = cost_figure.points_of(
        [run for each in (before, after, other) for run in runs.find(each)]
    )
    assert points == [
        ("ViT (from scratch)", pytest.approx(expected), {"flowers": 75.0}),
        ("ViT (flowers)", pytest.approx(expected), {"cifar10": 75.0}),
    ]
    assert "other, whose compute is unknown" in capsys.readouterr().err

    # Parts of the figure, without counting the paper's models again.
    drawn = []
    monkeypatch.setattr(cost_figure, "macs_of", lambda name: 10**9)
    draw = cost_figure.draw
    monkeypatch.setattr(
        cost_figure, "draw", lambda *args: drawn.append(args) or draw(*args)
    )
    out = tmp_path / "figure.png"
    assert cost_figure.main([str(tmp_path), f"--output={out}"]) == 0
    assert out.read_bytes()[:4] == b"\x89PNG"
    ((paper, ours),) = drawn
    assert len(paper) == 18 and len(ours) == 2
    titles = [draw(paper, each).get_suptitle() for each in (ours, [])]
    assert titles[1] == "Dots: accuracies are the paper's (Table 6), costs ours"
    assert titles[0] == f"{titles[1]}\nStars: accuracies and costs are ours"
    assert paper[0][1] == pytest.approx(6 * 7 * 303e6 * 1e9 / 1e18)
