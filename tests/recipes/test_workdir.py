"""The folder of a run."""

import dataclasses
import json
import pathlib

import pytest

from recipes import workdir as workdirs


@dataclasses.dataclass(kw_only=True, slots=True)
class Inner:
    width: int = 4


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    lr: float = 0.1
    size: tuple[int, ...] = (8, 8)
    inner: Inner = dataclasses.field(default_factory=Inner)


def test_default_is_named_after_the_data_set_and_the_model():
    assert workdirs.default("ViT", "digits") == "runs/digits"
    assert workdirs.default("ViTB16", "cifar10:3.*.*") == (
        "runs/cifar10_3._._-ViTB16"
    )
    assert workdirs.default("ViT", "path/to/images/") == "runs/images"


def test_same_config_is_taken_again_and_earlier_files_go(tmp_path):
    assert workdirs.refuse_other_config(tmp_path / "new", Config()) is False
    workdirs.write_config(tmp_path, Config(), {"steps": 3})
    (tmp_path / "best.keras").write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    assert workdirs.refuse_other_config(tmp_path, Config()) is True
    workdirs.write_config(tmp_path, Config(), {"steps": 3})
    assert not (tmp_path / "best.keras").exists()
    assert (tmp_path / "mine.txt").exists()
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "config": {"lr": 0.1, "size": [8, 8], "inner": {"width": 4}},
        "derived": {"steps": 3},
    }


def test_another_config_is_refused_with_the_difference(tmp_path):
    workdirs.write_config(tmp_path, Config(), {})
    other = Config(lr=0.2, inner=Inner(width=8))
    with pytest.raises(ValueError, match="same config") as refusal:
        workdirs.refuse_other_config(tmp_path, other)
    assert "lr: 0.1 there, 0.2 here" in str(refusal.value)
    assert "inner.width: 4 there, 8 here" in str(refusal.value)
    assert "size" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"config": 3}'])
def test_a_config_that_no_run_wrote_is_refused(tmp_path, text):
    pathlib.Path(tmp_path, "config.json").write_text(text)
    with pytest.raises(ValueError, match="no run has written"):
        workdirs.refuse_other_config(tmp_path, Config())
