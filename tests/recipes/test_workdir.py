"""The folder of a run."""

import dataclasses
import errno
import json
import os
import pathlib
import socket
import subprocess
import sys

import keras
import pytest
from small_runs import changed

from keras_vit import distribution
from recipes import (
    experiment,
    fewshot,
    fields,
    finetune,
    fitting,
    pretrain,
    sweep,
    unlabelled,
    vtab,
)
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


def test_a_log_is_cut_to_the_rows_up_to_a_step(tmp_path):
    log = tmp_path / "metrics.csv"
    assert workdirs.cut_log(log, 5) == []
    whole = "epoch,step,loss\r\n0,3,1.5\r\n1,6,1.25\r\n"
    log.write_bytes((whole + "2,9,1.").encode())
    # The last row was cut off with the process.
    assert workdirs.cut_log(log, 100)[-1]["step"] == "6"
    assert log.read_bytes().decode() == whole
    assert len(workdirs.cut_log(log, 3)) == 1
    assert log.read_bytes().decode() == whole[: whole.index("1,6")]
    # Without rows not even the header is left, which is written with them.
    assert workdirs.cut_log(log, 2) == []
    assert log.read_bytes() == b""


def test_a_blank_line_of_a_log_is_no_row(tmp_path):
    log = tmp_path / "metrics.csv"
    log.write_bytes(b"epoch,step\r\n\r\n0,3\r\n1,6\r\n")
    assert [row["step"] for row in workdirs.cut_log(log, 3)] == ["3"]
    assert log.read_bytes() == b"epoch,step\r\n0,3\r\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("epoch,loss\n0,1\n", "line 2 with no 'step'"),
        ("0,3\n1,6\n", "line 2 with no 'step'"),
        ("step,loss\n3\n", "line 2 with another number of values than"),
        ("step\n3,1\n", "line 2 with another number of values than"),
        ("step,val_loss\n3,1\n\n6,one\n", "line 4 with val_loss='one'"),
    ],
)
def test_a_log_that_no_run_wrote_is_refused(tmp_path, text, wrong):
    log = tmp_path / "metrics.csv"
    log.write_text(text)
    for read in (workdirs.read_log, lambda path: workdirs.cut_log(path, 3)):
        message = f"as a run has written it.*csv', {wrong}"
        with pytest.raises(ValueError, match=message):
            read(log)
    assert log.read_text() == text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("step,val_loss,val_acc\n3,1,0\n", "line 2 with no 'val_accuracy'"),
        ("step,val_accuracy\n3,nan\n6,\n", "line 3 with val_accuracy=''"),
    ],
)
def test_a_log_without_what_is_reported_is_refused(tmp_path, text, wrong):
    (tmp_path / "metrics.csv").write_text(text)
    for read in (
        lambda: fitting.results(tmp_path / "metrics.csv"),
        lambda: workdirs.refuse_missing_log(tmp_path, (3,), "val_accuracy"),
    ):
        with pytest.raises(ValueError, match=wrong):
            read()


def test_a_run_does_not_resume_without_its_evaluations(tmp_path):
    """Another best model would replace that of the lost ones."""
    workdirs.refuse_missing_log(tmp_path, ())
    with pytest.raises(ValueError, match="that of step 3.* from step 3 on"):
        workdirs.refuse_missing_log(tmp_path, (3, 6))
    (tmp_path / "metrics.csv").write_text("epoch,step\r\n0,3\r\n1,6")
    with pytest.raises(ValueError, match="that of step 6.* from step 6 on"):
        workdirs.refuse_missing_log(tmp_path, (3, 6))
    with pytest.raises(ValueError, match="without. Restore it"):
        workdirs.refuse_missing_log(tmp_path, (3,))
    (tmp_path / "best.keras").touch()
    workdirs.refuse_missing_log(tmp_path, (3,))


def test_checkpoints_without_their_config_are_refused(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    assert not workdirs.refuse_other_config(tmp_path, Config())
    (tmp_path / "checkpoints" / "4").mkdir()
    with pytest.raises(ValueError, match="must have the config.json"):
        workdirs.refuse_other_config(tmp_path, Config())


def test_another_config_is_refused_with_the_difference(tmp_path):
    workdirs.write_config(tmp_path, Config(), {})
    other = Config(lr=0.2, inner=Inner(width=8))
    with pytest.raises(ValueError, match="same config") as refusal:
        workdirs.refuse_other_config(tmp_path, other)
    assert "lr: 0.1 there, 0.2 here" in str(refusal.value)
    assert "inner.width: 4 there, 8 here" in str(refusal.value)
    assert "size" not in str(refusal.value)


def test_a_run_begun_with_a_flat_config_resumes(tmp_path):
    flat = dict(
        model="ViT",
        architecture=dict(num_layers=2, of_another_version=0),
        batch_size=8,
        trained="head",
        optimizer="adam",
        schedule="linear",
        eval_every=10,
        seed=3,
        cluster=dict(num_processes=2),
    )
    pathlib.Path(tmp_path, "config.json").write_text(
        json.dumps(dict(config=flat))
    )
    config = changed(
        experiment.Config(),
        architecture=experiment.Architecture(num_layers=2),
        batch_size=8,
        tune="head",
        optimizer="adam",
        schedule="linear",
        eval_every=10,
        seed=3,
        split_seed=3,  # by which earlier versions split
    )
    free = fields.RUNTIME
    assert workdirs.refuse_other_config(tmp_path, config, free)
    other = changed(config, tune="all", batch_size=9)
    with pytest.raises(ValueError, match="batch_size: 8 there") as error:
        workdirs.refuse_other_config(tmp_path, other, free)
    assert "  model.tune: 'head' there, 'all' here\n" in str(error.value)
    assert "cluster" not in str(error.value)


def test_a_field_that_did_not_exist_then_has_its_default(tmp_path):
    text = '{"config": {"width": 8}}'
    pathlib.Path(tmp_path, "config.json").write_text(text)
    fields = [("width", int, 32), ("height", int, 0)]
    config = dataclasses.make_dataclass("Config", fields)
    assert workdirs.refuse_other_config(tmp_path, config(8))
    with pytest.raises(ValueError, match="height: 0 there, 4 here"):
        workdirs.refuse_other_config(tmp_path, config(8, 4))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"config": 3}'])
def test_a_config_that_no_run_wrote_is_refused(tmp_path, text):
    pathlib.Path(tmp_path, "config.json").write_text(text)
    with pytest.raises(ValueError, match="no run has written"):
        workdirs.refuse_other_config(tmp_path, Config())


@pytest.mark.parametrize("derived", [None, [], 3, ""])
def test_what_is_derived_is_empty_where_it_was_removed(tmp_path, derived):
    workdirs.write_config(tmp_path, Config(), derived)
    assert workdirs.read_derived(tmp_path) == {}


ALONE = distribution.Devices(kind="cpu")
HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("process 12345 on elsewhere", file=file, flush=True)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "recipe", [fewshot, finetune, pretrain, sweep, unlabelled, vtab]
)
@pytest.mark.parametrize("url", ["gs://bucket/run", "file:///tmp/run"])
def test_every_recipe_refuses_a_url_at_once(tmp_path, monkeypatch, recipe, url):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda _: 1 / 0)
    config = getattr(recipe, "Config", finetune.Config)()
    with pytest.raises(ValueError, match=f"Received: '{url}'.* mounted"):
        recipe.run(config, url)
    assert not list(tmp_path.iterdir())


def test_a_path_is_not_a_url(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    for path in ("runs/a:b", "/mnt/c", "a=b://c"):
        assert workdirs.path_of(path) == pathlib.Path(path)
    assert str(workdirs.path_of("~/runs")) == "/home/somebody/runs"
    assert str(workdirs.path_of("~no user/runs")) == "~no user/runs"
    assert workdirs.default("ViT", "~no user") == "runs/_no_user"
    with pytest.raises(ValueError, match="URL"):
        workdirs.path_of(pathlib.Path("gs://bucket/run"))


def test_a_workdir_in_use_is_refused_with_its_holder(tmp_path):
    with workdirs.lock(tmp_path, ALONE):
        before = sorted(tmp_path.iterdir())
        holder = f"process {os.getpid()} on {socket.gethostname()} since 2"
        with pytest.raises(ValueError, match=holder):
            with workdirs.lock(tmp_path, ALONE):
                pass
        assert sorted(tmp_path.iterdir()) == before
    with workdirs.lock(tmp_path, ALONE):
        pass


def test_a_killed_process_leaves_no_lock_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / workdirs.LOCK],
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        with pytest.raises(ValueError, match="process 12345 on elsewhere"):
            with workdirs.lock(tmp_path, ALONE):
                pass
        process.kill()
        process.wait()
        with workdirs.lock(tmp_path, ALONE):
            text = (tmp_path / workdirs.LOCK).read_text()
            assert text.startswith(f"process {os.getpid()} ")


def test_a_lock_leaves_no_trace(tmp_path):
    with workdirs.lock(tmp_path / "a" / "new", ALONE):
        assert (tmp_path / "a" / "new" / workdirs.LOCK).exists()
    assert not (tmp_path / "a" / "new").exists()
    (tmp_path / "metrics.csv").touch()
    with pytest.raises(ZeroDivisionError), workdirs.lock(tmp_path, ALONE):
        raise ZeroDivisionError
    assert {path.name for path in tmp_path.iterdir()} == {"a", "metrics.csv"}


def test_a_file_system_without_locks_is_told_of(tmp_path, monkeypatch, capsys):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(workdirs.fcntl, "flock", flock)
    with workdirs.lock(tmp_path, ALONE):
        pass
    assert "has no locks" in capsys.readouterr().out


def test_only_the_main_process_locks_and_all_are_refused(tmp_path, monkeypatch):
    main, other = (
        distribution.Devices(kind="cpu", num_processes=2, process_index=i)
        for i in (0, 1)
    )
    refused = []

    def any_process(_, flag):
        refused.append(flag)
        return (any(refused),)

    monkeypatch.setattr(distribution, "any_process", any_process)
    with workdirs.lock(tmp_path, main), workdirs.lock(tmp_path, other):
        with pytest.raises(ValueError, match=f"process {os.getpid()} on"):
            with workdirs.lock(tmp_path, main):
                pass
        with pytest.raises(ValueError, match="main process could not lock"):
            with workdirs.lock(tmp_path, other):
                pass
    assert refused == [False, False, True, False]


def write_finished(workdir):
    workdirs.write_config(workdir, Config(), {"total_steps": 6})
    (workdir / "last.keras").touch()
    (workdir / "metrics.csv").write_text("epoch,step\r\n0,3\r\n1,6\r\n")


def test_a_run_is_finished_with_its_last_row_and_model(tmp_path):
    assert not workdirs.is_finished(tmp_path / "none", ALONE)
    write_finished(tmp_path)
    assert workdirs.is_finished(tmp_path, ALONE)
    other = dataclasses.replace(ALONE, num_processes=1, process_index=1)
    assert not workdirs.is_finished(tmp_path, other)  # the main one looks
    (tmp_path / "last.keras").unlink()
    assert not workdirs.is_finished(tmp_path, ALONE)
    write_finished(tmp_path)
    # The last row was cut off with the process.
    (tmp_path / "metrics.csv").write_text("epoch,step\r\n0,3\r\n1,6")
    assert not workdirs.is_finished(tmp_path, ALONE)
