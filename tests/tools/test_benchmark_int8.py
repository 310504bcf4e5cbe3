"""Speeds of batches in int8."""

import pytest
from small_runs import small_vit

import keras_vit
from tools import benchmark_int8

pytestmark = pytest.mark.backend("torch")


def test_batches_have_their_size(tmp_path, monkeypatch, capsys):
    seen = []

    def export(model, folder):
        def run(images):
            seen.append(len(images))
            return model.predict_on_batch(images)

        return {"a file": (str(tmp_path), lambda path: run)}

    def rounds(calls, count):
        return {name: [len(call()) / 1e3] for name, call in calls.items()}

    monkeypatch.setattr(benchmark_int8, "_export", export)
    monkeypatch.setattr(benchmark_int8.measure, "rounds", rounds)
    monkeypatch.setattr(
        keras_vit, "Small", lambda weights: small_vit(), raising=False
    )
    words = ["--model=Small", "--batch_sizes", "2", "40", "--rounds=1"]
    assert benchmark_int8.main(words) == 0
    assert seen == [2, 40, benchmark_int8.NUM_COMPARED]
    assert "batch 40, a file: 40 ms" in capsys.readouterr().out
