"""The costs of MViT's ablations, beside those of the authors' code."""

import pytest

from tools import mvit_ablations

ROWS = {
    f"{title}: {row.name}": row
    for title, rows in mvit_ablations.TABLES.items()
    for row in rows
    # Others are constructors, whose sizes tests/models/test_mvit.py checks.
    if row.changes and row.authors
}


@pytest.mark.backend("jax")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.thorough()
def test_ablations_cost_what_the_authors_code_does(name):
    row = ROWS[name]
    parameters, macs = mvit_ablations.count(row)
    expected, billions = row.authors
    assert expected in (None, parameters)
    assert macs / 1e9 == pytest.approx(billions, rel=1e-3)


@pytest.mark.backend("torch")
def test_mvit_s_costs_about_what_the_paper_states():
    parameters, macs = mvit_ablations.count(mvit_ablations.SMALL)
    published = mvit_ablations.SMALL.paper
    assert parameters / 1e6 == pytest.approx(published[0], rel=0.003)
    assert macs / 1e9 == pytest.approx(published[1], rel=0.1)


@pytest.mark.backend_independent
def test_each_model_is_counted_and_compiled_once(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(mvit_ablations, "count", lambda row: (1234, 70.6e9))
    mvit_ablations.print_tables(
        mvit_ablations.TABLES, lambda row: seen.append(row) or "1.50 GiB"
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 + 26
    [base] = [x for x in lines if "(1, 8, 8), adaptive" in x]
    assert (
        base.split()[3:]
        == (
            "adaptive 1,234 70.60 G 1.50 GiB 36,610,672, 70.6 G 36.6 M, 70.5 G"
        ).split()
    )
    # The base model is a row of five tables.
    assert len(seen) == 26 - 4
