"""The folder of a run."""

import dataclasses
import pathlib

import pytest

from recipes import workdir as workdirs

pytestmark = pytest.mark.backend_independent


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


def test_same_config_is_taken_again_and_files_stay(tmp_path):
    assert workdirs.refuse_other_config(tmp_path / "new", Config()) is False
    workdirs.write_config(tmp_path, Config(), {"steps": 3})
    (tmp_path / "best.keras").write_text("kept")
    assert workdirs.refuse_other_config(tmp_path, Config()) is True
    workdirs.write_config(tmp_path, Config(), {"steps": 3})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best.keras",
        "config.json",
    ]


def test_a_log_is_cut_to_the_rows_up_to_a_step(tmp_path):
    log = tmp_path / "metrics.csv"
    assert workdirs.cut_log(log, 5) == []
    whole = "epoch,step,loss\r\n0,3,1.5\r\n1,6,1.25\r\n"
    log.write_bytes((whole + "2,9,1.").encode())
    # The last row was cut off with the process.
    assert workdirs.cut_log(log, 100)[-1]["step"] == "6"
    assert log.read_bytes().decode() == whole
    assert len(workdirs.cut_log(log, 5)) == 1
    assert log.read_bytes().decode() == whole[: whole.index("1,6")]
    # Without rows not even the header is left, which is written with them.
    assert workdirs.cut_log(log, 2) == []
    assert log.read_bytes() == b""


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
