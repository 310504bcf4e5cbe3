"""Training for detection, segmentation and depth, and resuming it."""

import dataclasses
import json
import shlex
import shutil

import keras
import numpy as np
import pytest

import keras_vit_cli
from keras_vit import data
from recipes import cli, experiment, fields, finetune, tasks
from recipes.configs import depth, detect, segment

CONFIGS = dict(detection=detect, segmentation=segment, depth=depth)


@pytest.fixture(autouse=True)
def few_scenes(monkeypatch):
    """Leaves 24 scenes to train on and 12 to evaluate."""
    found = data.load_task

    def load(*args, **kwargs):
        return tuple(
            dataclasses.replace(part, num_examples=count)
            for part, count in zip(
                found(*args, **kwargs), (24, 12), strict=True
            )
        )

    monkeypatch.setattr(data, "load_task", load)


def small(task, **changes):
    config = CONFIGS[task].get_config()
    config.model.architecture = experiment.Architecture(
        patch_size=16, hidden_size=16, num_layers=4, num_heads=2, mlp_dim=16
    )
    config.task.head_width = 8
    config.task.num_points = 32
    for name, value in changes.items():
        setattr(config.task, name, value)
    config.data.batch_size = 4
    config.schedule.total_steps, config.schedule.warmup_steps = 4, 0
    config.evaluation.every = config.run.checkpoint_every = 2
    return config


def test_a_run_that_resumes_ends_with_the_same_weights(tmp_path):
    config = small("detection")
    whole = finetune.run(config, str(tmp_path / "whole"))
    assert {"step", "AP50", "best_AP50", "loss"} <= set(whole)
    assert np.isfinite(whole["loss"])
    model = keras.models.load_model(tmp_path / "whole/last.keras")
    assert model.task == "detection"
    assert (tmp_path / "whole/predictions.png").stat().st_size > 1000
    # As if it were killed before its last checkpoint was complete.
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    shutil.rmtree(max((tmp_path / "resumed/checkpoints").glob("*[0-9]")))
    (tmp_path / "resumed/last.keras").unlink()
    assert finetune.run(config, str(tmp_path / "resumed")) == whole
    resumed = keras.models.load_model(tmp_path / "resumed/last.keras")
    for one, other in zip(model.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("task", "head", "score", "key"),
    [
        ("segmentation", "eomt", "mIoU", "classes"),
        ("segmentation", "linear", "mIoU", "classes"),
        ("depth", "dpt", "delta1", "depth"),
    ],
)
def test_every_task_trains_and_predicts(
    task, head, score, key, tmp_path, capsys
):
    changes = dict(auxiliary_blocks=(2, 3)) if head == "eomt" else {}
    found = finetune.run(small(task, head=head, **changes), str(tmp_path))
    assert 0 <= found[score] <= 1
    assert (tmp_path / "predictions.png").stat().st_size > 1000
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert keras_vit_cli.main(command[1:]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [set(json.loads(line)) for line in lines] == [{"image", key}] * 3
    assert (tmp_path / "found.png").stat().st_size > 1000


@pytest.mark.backend("torch")
def test_a_frozen_backbone_stays(tmp_path):
    config = small("segmentation", head="linear")
    config.model.tune = "head"
    finetune.run(config, str(tmp_path))
    model = keras.models.load_model(tmp_path / "last.keras")
    trained = {v.path.split("/")[0] for v in model.trainable_variables}
    assert trained and not any("encoder" in name for name in trained)


@pytest.mark.backend_independent
def test_wrong_settings_are_refused(tmp_path):
    for changes, message in (
        (dict(head="dpt"), "task.head"),
        (dict(scales=(2.0, 1.0)), "task.scales"),
        (dict(name="instances"), "task.name"),
        (dict(num_queries=0), "task.num_queries"),
    ):
        with pytest.raises(ValueError, match=message):
            tasks.run(small("detection", **changes), tmp_path)
    for path, value in (("run.micro_batches", 2), ("data.augment", ("x",))):
        config = fields.changed(small("detection"), {path: value})
        with pytest.raises(ValueError, match=f"`{path}` has no effect"):
            tasks.run(config, tmp_path)
    with pytest.raises(ValueError, match=r"detect.py must be MODEL,DATASET"):
        detect.get_config("DeiTS16")


@pytest.mark.backend_independent
def test_published_settings():
    for file, expected in (
        # Fang et al. 2021: tiny and small, 300 and 150 epochs of COCO.
        ("detect", dict(name="AdamW", base_lr=2.5e-5, weight_decay=1e-4)),
        ("segment", dict(name="AdamW", base_lr=1e-4, layer_decay=0.8)),
        ("depth", dict(name="AdamW", base_lr=1e-4)),
    ):
        path = f"recipes/configs/{file}.py:DINOv2S14,path/to/images"
        config, *_ = cli.parse(["", f"--config={path}"], path.split(":")[0])
        for key, value in expected.items():
            assert getattr(config.optim, key) == value
        assert config.model.weights
        tasks.check(config)
