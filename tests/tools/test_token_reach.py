"""The page on token mixing: its code by reference, its pictures, the reach."""

import re

import numpy as np
import pytest

from keras_vit.models import families
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


@pytest.mark.backend_independent
def test_every_family_has_a_picture_on_the_page():
    text = PAGE.read_text()
    for name in families.FAMILIES:
        path = f"images/token_reach/{name}.png"
        assert f"({path})" in text
        assert (PAGE.parent / path).is_file()


@pytest.mark.backend("tensorflow", "torch")  # slow on JAX
@pytest.mark.parametrize("name", ["s2_mlp", "mixer"])
def test_a_token_reaches_as_far_as_its_block_mixes(name):
    reach = token_reach.reach_of(name)
    assert reach.shape == (16, 16)
    assert reach.max() == reach[8, 8] == 1
    found = {tuple(place) for place in np.argwhere(reach)}
    cross = {(8, 8), (7, 8), (9, 8), (8, 7), (8, 9)}
    assert found == cross if name == "s2_mlp" else len(found) == 256


@pytest.mark.backend("torch")
def test_pictures_are_drawn_and_unknown_families_refused(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    flags = ["s2_mlp", f"--output={tmp_path}"]
    assert token_reach.main(flags) == 0
    assert "s2_mlp.png: 5 of 256 tokens" in capsys.readouterr().out
    assert (tmp_path / "s2_mlp.png").read_bytes().startswith(b"\x89PNG")
    assert token_reach.main(["swin"]) == 2
    assert "FAMILY must be one of" in capsys.readouterr().err
