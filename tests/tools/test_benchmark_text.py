"""The towers of the text benchmark, tiny, without other libraries."""

import pytest

from tools import benchmark_text

pytestmark = pytest.mark.backend("torch")


def test_a_table_has_a_row_for_each_tower(monkeypatch, capsys):
    tiny = dict(width=8, layers=1, heads=2, mlp=8)
    models = {
        name: (*found[:2], 60, tiny)
        for name, found in benchmark_text.MODELS.items()
    }
    monkeypatch.setattr(benchmark_text, "MODELS", models)
    monkeypatch.setattr(benchmark_text, "_BASE", tiny)
    monkeypatch.setattr(benchmark_text, "LIBRARIES", ("keras_vit",))
    monkeypatch.setattr(benchmark_text, "TOWERS", ("text",))
    assert benchmark_text.main(["--rounds=1", "--batch_size=2"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(models)
    for row in rows:
        assert row.count("|") == head.count("|")
        assert row.split("|")[2].endswith(" ms ")
