"""Scaling laws recover what made the runs, or are refused."""

import dataclasses
import json

import numpy as np
import pytest

from tools import cost_figure, scaling_law

pytestmark = pytest.mark.backend_independent

LAW = dict(a=2e-3, b=0.35, c=0.1, d=2e-7)


def error_of(compute, a, b, c, d):
    return a * (compute + d) ** -b + c


def make_points(count, standard_error=0.002, seed=0, **changes):
    """Points about the law whose compute doubles."""
    rng = np.random.default_rng(seed)
    computes = 1e-6 * 2.0 ** np.arange(count)
    errors = error_of(computes, **LAW | changes)
    errors = errors + standard_error * rng.normal(size=count)
    return [
        scaling_law.Point(
            name=f"run {i}",
            compute=float(compute),
            error=float(error),
            standard_error=standard_error,
        )
        for i, (compute, error) in enumerate(zip(computes, errors, strict=True))
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_law_is_recovered_within_its_intervals(seed):
    *points, further = make_points(9, seed=seed)
    law = scaling_law.fit(points, num_samples=60)
    for name, (value, low, high) in law.parameters().items():
        assert low <= LAW[name] <= high, name
        assert low <= value <= high, name
    value, low, high = law.error(further.compute, noise=True)
    assert low < further.error < high
    assert high - low < 0.03
    # An interval of the law is that of a run without its own noise.
    _, inner_low, inner_high = law.error(further.compute)
    assert low < inner_low < inner_high < high


def test_exact_points_give_the_law():
    points = [
        dataclasses.replace(point, error=error_of(point.compute, **LAW))
        for point in make_points(8)
    ]
    found = scaling_law.fit(points, num_samples=3).parameters()
    for name, value in LAW.items():
        assert found[name][0] == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (make_points(4), "at least 5 runs of different compute"),
        (make_points(5)[:1] * 6, "Received: 1"),
        (
            [
                dataclasses.replace(point, compute=1 + i / 10)
                for i, point in enumerate(make_points(8))
            ],
            "at least a factor of 4. Received: 1 to 1.7",
        ),
        (make_points(8, b=0.0), "the error does not fall"),
        (make_points(8, c=1.0), "above 0 and below 1"),
    ],
)
def test_what_shows_no_law_is_refused(points, message):
    with pytest.raises(ValueError, match=message):
        scaling_law.fit(points, num_samples=1)


def write_run(folder, accuracy, seed=0, **config):
    folder.mkdir(parents=True)
    config = (
        dict(model="ViT", weights="", dataset="cifar10", seed=seed) | config
    )
    config = dict(eval_split="", batch_size=8) | config
    derived = dict(total_steps=100, eval_images=10_000)
    (folder / "config.json").write_text(
        json.dumps(dict(config=config, derived=derived))
    )
    (folder / "metrics.csv").write_text(
        f"epoch,step,val_accuracy\n0,100,{accuracy}\n"
    )


def test_runs_are_fitted_drawn_and_predicted(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    points = make_points(8)
    costs = {point.name: point.compute for point in points}
    costs["worse"] = points[3].compute
    for point in points:
        for seed in (0, 1):
            write_run(
                tmp_path / "runs" / point.name / f"seed_{seed}",
                1 - point.error + (seed - 0.5) / 500,
                seed,
            )
    write_run(tmp_path / "runs" / "worse" / "seed_0", 0.5, patch_size=8)
    write_run(tmp_path / "runs" / "unknown" / "seed_0", 0.5)
    monkeypatch.setattr(
        cost_figure, "cost_of", lambda folder: costs.get(folder.parent.name)
    )
    monkeypatch.setattr(scaling_law, "NUM_SAMPLES", 40)
    out = tmp_path / "law.png"
    flags = [str(tmp_path / "runs"), "--hold_out=1", f"--output={out}"]
    assert scaling_law.main(flags) == 0
    assert out.read_bytes()[:4] == b"\x89PNG"
    printed = capsys.readouterr()
    text = printed.out
    assert "left out: not on the frontier" in text
    assert "whose compute is unknown" in printed.err
    assert scaling_law.main([*flags, "--predict=-1"]) == 2
    assert "--predict must be positive" in capsys.readouterr().err
    assert "run 7, held out: predicted" in text and "inside" in text
    assert f"At {2 * points[-1].compute:.4g} exaFLOPs" in text
    assert scaling_law.main([*flags, "--hold_out=9"]) == 2
    assert "--hold_out must be below the 9 points" in capsys.readouterr().err
