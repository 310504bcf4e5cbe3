"""The comparison of the training steps of two configs."""

import pytest

from recipes import fields
from tools import benchmark_steps
from tools.benchmark import measure

pytestmark = pytest.mark.backend("torch")


def test_two_recipes_are_compared(capsys, monkeypatch):
    monkeypatch.setattr(measure, "MIN_SECONDS", 0.0)
    path = "recipes/configs/{}.py:ViT,cifar10"
    changed = fields.changed
    small = {"model.architecture.num_layers": 1}
    monkeypatch.setattr(
        *(fields, "changed"),
        lambda config, changes: changed(config, changes | small),
    )
    words = [f"--config={path.format('mae')}", "--batch_size=2", "--rounds=2"]
    other = f"--other={path.format('pretrain')}"
    assert benchmark_steps.main([*words, other]) == 0
    first, second, ratio = capsys.readouterr().out.splitlines()
    assert first.startswith("--config: ") and second.startswith("--other: ")
    found = float(ratio.split()[1])
    assert 0.1 < found < 10
