"""Clips per second against the paper's accuracy."""

import pytest

from tools import mvit_figure

pytestmark = pytest.mark.backend_independent


def test_each_model_is_a_dot_and_a_line(monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    speeds = {"MViT-S": 4.0, "ViT-B": 1.0}
    monkeypatch.setattr(
        mvit_figure, "_measured", lambda name, _: (speeds[name], 8, "measured")
    )
    path = tmp_path / "figure.png"
    arguments = ["here", "--models=MViT-S,ViT-B", f"--output={path}"]
    assert mvit_figure.main(arguments) == 0
    assert path.stat().st_size > 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert "4.00 clips/s with 8 (measured); the paper: 76.0 %" in first
    assert "ViT-B" in second
    with pytest.raises(SystemExit):
        mvit_figure.main(["here", "--models=MViT-X"])
    assert "must be of MViT-S, " in capsys.readouterr().err


def test_the_axes_say_whose_accuracies_they_are():
    pytest.importorskip("matplotlib")
    (axes,) = mvit_figure.draw({"MViT-B/16x4": 10.0}, "v5e-8").axes
    assert "the paper's" in axes.get_ylabel()
    assert "a core of v5e-8" in axes.get_xlabel()
