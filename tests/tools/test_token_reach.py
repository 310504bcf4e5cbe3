"""The page on token mixing: its code by reference, its pictures, the reach."""

import re

import numpy as np
import pytest

from tools import page_sources, token_reach

PAGE = page_sources.ROOT / "docs" / "token_mixing.md"


@pytest.mark.backend_independent
def test_the_page_includes_the_code_of_the_package():
    text = PAGE.read_text()
    page = page_sources.include(text)
    assert "<!-- source" not in page
    references = re.findall(r"<!-- source (\S+) (\S+) -->", text)
    assert len(references) >= 5
    for file, name in references:
        code = page_sources.source_of(file, name)
        assert code.startswith(f"def {name.split('.')[-1]}(")
        assert f"```python\n{code}\n```" in page
        compile(code, file, "exec")
    with pytest.raises(ValueError, match="must name a function of"):
        page_sources.source_of("keras_vit/models/mixer.py", "MixerBlock.mix")


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["s2_mlp", "raft_mlp", "as_mlp"])
@pytest.mark.thorough()
def test_a_token_reaches_as_far_as_its_blocks_mix(name):
    blocks, averages = token_reach.reach_of(name)
    row, column = np.abs(np.indices((16, 16)) - 8)
    distance = row + column
    if name == "s2_mlp":
        expected = np.where(distance <= 4, np.maximum(distance, 1), np.inf)
        np.testing.assert_array_equal(blocks, expected)
    elif name == "raft_mlp":
        cross = (row == 0) | (column == 0)
        np.testing.assert_array_equal(blocks, np.where(cross, 0.5, 1))
    else:
        near = (np.maximum(row, column) <= 2) & (np.minimum(row, column) == 0)
        np.testing.assert_array_equal(blocks == 1, near)
    assert averages == (name == "as_mlp")


@pytest.mark.backend("torch")
def test_the_picture_is_drawn_and_unknown_families_refused(
    tmp_path, capsys, monkeypatch
):
    pytest.importorskip("matplotlib")
    # Of 64 tokens instead of 256, in a hundredth of the time.
    monkeypatch.setitem(token_reach.SIDES, "s2_mlp", 32)
    path = tmp_path / "new" / "reach.png"
    assert token_reach.main(["s2_mlp", f"--output={path}"]) == 0
    assert "S2MLP: [5, 13, 25, 39] of 64 tokens" in capsys.readouterr().out
    assert path.read_bytes().startswith(b"\x89PNG")
    assert token_reach.main(["swin"]) == 2
    assert "FAMILY must be one of" in capsys.readouterr().err
