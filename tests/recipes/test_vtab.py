"""All tasks of VTAB, one after another."""

import dataclasses
import json
import runpy
import sys

import pytest
from small_runs import changed

from keras_vit.data import vtab as tasks
from recipes import cli, vtab
from tests.mocked import mocked_tfds

pytest.importorskip("tensorflow_datasets")
# Of TFDS itself, on reading mocked sets.
pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("no_pictures"),
]


def config_of(argument, *flags):
    flag = f"--config={vtab.DEFAULT_CONFIG}:{argument}"
    return cli.parse(["vtab", flag, *flags], vtab.DEFAULT_CONFIG)[0]


def test_flags_reach_every_task():
    config = config_of("ViTH14", "--config.run.optim.base_lr=0.003")
    assert config.tasks == tuple(tasks.TASKS)
    # 384 pixels are no whole number of patches.
    assert (config.run.data.image_size, config.run.data.resize) == ((378,), 441)
    assert vtab.config_of(config.run, "dmlab").optim.base_lr == 0.003


@pytest.mark.parametrize("argument", ["ViTB16,", ",dtd", ""])
def test_an_incomplete_argument_is_refused(argument):
    with pytest.raises(ValueError, match="must be MODEL or MODEL,TASK"):
        config_of(argument)


@pytest.mark.usefixtures("plain_decoding")
def test_tasks_are_run_once_and_scored(tmp_path, make_config, capsys):
    run = make_config(
        crop="resize",
        resize=9,
        flip=True,
        image_size=(8,),
        channels=3,
        batch_size=2,
        total_steps=2,
        warmup_steps=0,
    )
    flag = "--config.tasks=patch_camelyon,kitti_distance"
    config = dataclasses.replace(config_of("ViT", flag), run=run)
    # The four tasks of a group are finished already.
    group = [n for n, t in tasks.TASKS.items() if t.group == "specialized"]
    accuracies = dict(zip(group, (0.1, 0.2, 0.3, 0.4), strict=True))
    finished = json.dumps({"accuracies": accuracies})
    (tmp_path / "results.json").write_text(finished)

    with mocked_tfds(num_examples=2):
        results = vtab.run(config, str(tmp_path))
    printed = capsys.readouterr().out
    assert "vtab/patch_camelyon is finished" in printed
    assert not (tmp_path / "patch_camelyon").exists()
    new = results["accuracies"]["kitti_distance"]
    assert new in (0, 0.5, 1)
    assert f"kitti_distance{new:14.2%}" in printed
    assert results["accuracies"] == accuracies | {"kitti_distance": new}
    assert results["scores"] == {"specialized": pytest.approx(0.25)}
    assert f"specialized{0.25:19.2%}" in printed
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == results
    # Not cropped, which would change the label.
    task = json.loads((tmp_path / "kitti_distance/config.json").read_text())
    assert task["config"]["data"]["crop"] == "none"
    assert task["config"]["data"]["flip"]

    # Once more there is nothing left to do.
    assert vtab.run(config, str(tmp_path)) == results
    for text in ("[]", '{"accuracies": {"dtd": "half"}}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(ValueError, match="results.json must hold .*Remove"):
            vtab.run(config, str(tmp_path))
    other = vtab.Config(run=changed(run, base_lr=0.5))
    with pytest.raises(ValueError, match="optim.base_lr: 0.01 there, 0.5 here"):
        vtab.run(other, str(tmp_path))


def test_rate_and_steps_are_selected_by_validation_images(
    tmp_path, make_config, monkeypatch
):
    runs = []

    def run(config, folder):
        runs.append((config, folder))
        best = (config.optim.base_lr, config.schedule.total_steps) == (0.003, 9)
        return {"accuracy": 0.9 if best else 0.5}

    monkeypatch.setattr(vtab.finetune, "run", run)
    config = vtab.Config(
        run=make_config(base_lr=0.01, total_steps=4),
        tasks=("dtd", "dmlab"),
        base_lrs=(0.003, 0.01),
        total_steps=(4, 9),
    )
    vtab.run(config, str(tmp_path))
    *tried, dtd, dmlab = runs
    assert len(tried) == 8
    for each, folder in tried:
        splits = (each.data.train_split, each.data.eval_split)
        assert splits == ("train800", "val200")
        name = f"lr_{each.optim.base_lr:g}_steps_{each.schedule.total_steps}"
        assert folder.startswith(str(tmp_path / name))
        assert each.evaluation.every == each.schedule.total_steps
    assert [each.data.dataset for each, _ in (dtd, dmlab)] == [
        "vtab/dtd",
        "vtab/dmlab",
    ]
    for each, _ in (dtd, dmlab):
        assert (each.optim.base_lr, each.schedule.total_steps) == (0.003, 9)
        assert (each.data.train_split, each.data.eval_split) == ("", "")
    written = json.loads((tmp_path / "selection.json").read_text())
    assert written["selected"] == "lr_0.003_steps_9"
    assert written["scores"]["lr_0.01_steps_4"] == 0.5
    with pytest.raises(ValueError, match="`optim.base_lr` must be a positive"):
        wrong = dataclasses.replace(config, base_lrs=(0.1, -1.0))
        vtab.run(wrong, str(tmp_path / "wrong"))
    with pytest.raises(ValueError, match="must be different, rates in the six"):
        same = dataclasses.replace(config, base_lrs=(0.1, 0.10000001))
        vtab.run(same, str(tmp_path / "wrong"))
    # One of each is not selected.
    del runs[:]
    one = dataclasses.replace(config, base_lrs=(0.1,), total_steps=())
    vtab.run(one, str(tmp_path / "one"))
    assert [each.optim.base_lr for each, _ in runs] == [0.1, 0.1]


def test_the_config_file_makes_the_config_of_the_program(
    tmp_path, monkeypatch, capsys
):
    """As `python -m` has it, where the recipe is the module `__main__`."""
    (tmp_path / "results.json").write_text('{"accuracies": {"dtd": 0.5}}')
    words = ["vtab", "--config.tasks=dtd", f"--workdir={tmp_path}"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        runpy.run_module("recipes.vtab", run_name="__main__", alter_sys=True)
    assert not end.value.code
    assert "vtab/dtd is finished" in capsys.readouterr().out


def test_what_cannot_be_run_is_refused(tmp_path, make_config):
    with pytest.raises(ValueError, match="must be that of all tasks"):
        vtab.run(make_config(), str(tmp_path / "run"))
    config = vtab.Config(run=make_config(), tasks=("dtd", "dmlabs"))
    with pytest.raises(ValueError, match="Nearest names: .'dmlab'"):
        vtab.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
