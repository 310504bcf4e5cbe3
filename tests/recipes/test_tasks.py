"""Training for detection, segmentation and depth, and resuming it."""

import dataclasses
import functools
import json
import shlex

import keras
import numpy as np
import pytest
import small_runs
from PIL import Image

import keras_vit_cli
from keras_vit import data
from keras_vit_cli import opening
from recipes import (
    cli,
    evaluate,
    experiment,
    fields,
    finetune,
    task_settings,
    tasks,
)
from recipes.configs import depth, detect, segment

pytestmark = pytest.mark.usefixtures("plain_decoding")
CONFIGS = dict(
    detection=detect,
    segmentation=segment,
    instances=segment,
    panoptic=segment,
    depth=depth,
)

# What is printed of each object.
OBJECTS = ("scores", "labels", "names")


@pytest.fixture(autouse=True)
def few_scenes(monkeypatch):
    """Leaves 8 scenes to train on and 4 to evaluate."""
    found = data.load_task

    def load(*args, **kwargs):
        return tuple(
            dataclasses.replace(part, num_examples=count)
            for part, count in zip(found(*args, **kwargs), (8, 4), strict=True)
        )

    monkeypatch.setattr(data, "load_task", load)


def small(task, **changes):
    config = CONFIGS[task].get_config()
    config.model.architecture = experiment.Architecture(
        patch_size=16, hidden_size=16, num_layers=4, num_heads=2, mlp_dim=16
    )
    changes = dict(depth=dict(head_width=8)).get(task, {}) | changes
    if task in ("instances", "panoptic") or changes.get("head") == "eomt":
        changes = dict(num_points=32) | changes
    for name, value in (dict(name=task) | changes).items():
        setattr(config.task, name, value)
    config.data.batch_size = 4
    config.schedule.total_steps, config.schedule.warmup_steps = 4, 0
    config.evaluation.every = config.run.checkpoint_every = 2
    return config


@pytest.mark.thorough("tensorflow", "jax")
@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_resumes_ends_with_the_same_weights(tmp_path):
    # With random points, and masks whose probability depends on the step.
    config = small(
        "segmentation",
        head="eomt",
        num_blocks=1,
        masked_attention=True,
        eval_view="windows",
    )
    config.model.architecture.num_layers = 2
    whole = finetune.run(config, str(tmp_path / "whole"))
    assert {"step", "mIoU", "best_mIoU", "loss"} <= set(whole)
    assert np.isfinite(whole["loss"])
    folders = (tmp_path / name for name in ("whole", "resumed"))
    model = small_runs.assert_resumes(finetune.run, config, whole, *folders)
    assert model.task == "segmentation"


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("task", "head", "score", "keys"),
    [
        ("detection", "yolos", "AP50", {"boxes", *OBJECTS}),
        # That of the run that resumes, above.
        pytest.param(
            *("segmentation", "eomt", "mIoU", {"classes"}),
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *("instances", "eomt", "AP50", {"segments_info", *OBJECTS}),
            marks=pytest.mark.thorough,
        ),
        ("panoptic", "eomt", "PQ", {"segments_info"}),
        pytest.param(
            *("segmentation", "linear", "mIoU", {"classes"}),
            marks=pytest.mark.thorough,
        ),
        ("depth", "dpt", "delta1", {"depth"}),
    ],
)
def test_every_task_trains_and_predicts(
    task, head, score, keys, tmp_path, capsys, monkeypatch
):
    changes = dict(
        segmentation=dict(auxiliary_blocks=(2, 3), eval_view="windows"),
        panoptic=dict(auxiliary_blocks=(2, 3), eval_view="padded"),
    ).get(task if head == "eomt" else "", {})
    config = small(task, head=head, **changes)
    config.schedule.total_steps = 2
    found = finetune.run(config, str(tmp_path))
    assert 0 <= found[score] <= 1
    assert (tmp_path / "predictions.png").stat().st_size > 1000
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    model = str(tmp_path / "last.keras")
    assert evaluate.main([model, "--dataset=digit_scenes", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["task"], measured["images"]) == (task, 4)
    assert measured[score] == pytest.approx(found[score], abs=1e-3)
    assert evaluate.main([model, "--dataset=digit_scenes", "--clips=2"]) == 2
    assert "--clips needs a classifier" in capsys.readouterr().err
    # Loading takes longer than what the command line is refused for.
    monkeypatch.setattr(opening, "load", functools.cache(opening.load))
    assert keras_vit_cli.main(command[1:]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [set(json.loads(line)) for line in lines] == [{"image"} | keys] * 3
    assert (tmp_path / "found.png").stat().st_size > 1000
    for option in ("--top_k=3", "--format=csv", "--frame_step=2"):
        assert keras_vit_cli.main([*command[1:], option]) == 2
        assert option in capsys.readouterr().err


def write_masks(folder):
    """Write images of noise, half of it of each of two classes, from 1 on."""
    folder.mkdir()
    (folder / "classes.txt").write_text("left\nright\n")
    mask = np.repeat(np.array([[1, 2]], "uint8"), 24, axis=1).repeat(48, axis=0)
    mask[:8] = 0  # where a pixel does not count
    for part, count in (("train", 8), ("val", 4)):
        for i in range(count):
            pixels = np.random.default_rng(i).integers(0, 256, (48, 48, 3))
            for kind, values in (("images", pixels), ("masks", mask)):
                path = folder / part / kind / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values.astype("uint8")).save(path)


@pytest.mark.backend("torch")
@pytest.mark.usefixtures("no_pictures")
def test_a_frozen_backbone_stays_and_masks_mean_what_they_did(
    tmp_path, monkeypatch, capsys
):
    write_masks(tmp_path / "masks")
    monkeypatch.chdir(tmp_path)
    config = small("segmentation", head="linear", zero_is_ignored=True)
    config.data.dataset = "masks"
    config.model.tune, config.schedule.total_steps = "head", 2
    found = finetune.run(config, str(tmp_path / "run"))
    path = tmp_path / "run" / "last.keras"
    trained = {
        variable.path.split("/")[0]
        for variable in keras.models.load_model(path).trainable_variables
    }
    assert trained and not any("encoder" in name for name in trained)
    # From another place, as from this one.
    monkeypatch.chdir(tmp_path / "run")
    capsys.readouterr()
    assert evaluate.main([str(path), "--dataset=../masks", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["mIoU"] == pytest.approx(found["mIoU"], abs=1e-4)
    assert found["mIoU"] > 0


@pytest.mark.backend("torch")
def test_assertions_of_the_pipeline_are_errors_of_the_user(tmp_path):
    few = small("segmentation", head="eomt", max_objects=1)
    with pytest.raises(ValueError, match=r"of 'digit_scenes'. Received: 1 for"):
        tasks.run(few, tmp_path)


@pytest.mark.backend_independent
def test_wrong_settings_are_refused(tmp_path):
    for changes, message in (
        (dict(masked_attention=True), "task.masked_attention"),
        (dict(head="dpt"), "task.head"),
        (dict(scales=(2.0, 1.0)), "task.scales"),
        (dict(name="keypoints"), "task.name"),
        (dict(eval_view="windows"), "task.eval_view"),
        (dict(num_queries=0), "task.num_queries"),
        (dict(num_points=0), "`task.num_points` must be at least 1"),
        (dict(head_width=1), "`task.head_width` must be at least 2"),
        (dict(num_queries=2, max_objects=3), "at most `task.num_queries`"),
    ):
        with pytest.raises(ValueError, match=message):
            tasks.run(small("detection", **changes), tmp_path)
    for path, value in (("run.micro_batches", 2), ("data.augment", ("x",))):
        config = fields.changed(small("detection"), {path: value})
        with pytest.raises(ValueError, match=f"`{path}` has no effect"):
            tasks.run(config, tmp_path)
    for task, path, value in (
        ("depth", "task.anchors", True),
        ("detection", "task.num_blocks", 3),
        ("segmentation", "task.no_object_weight", 0.5),
        ("detection", "task.depth_unit", 1.0),
        ("depth", "task.depth_unit", 1.0),
        ("segmentation", "task.zero_is_ignored", True),
        ("detection", "data.broken", "skip"),
    ):
        config = fields.changed(small(task), {path: value})
        with pytest.raises(ValueError, match=f"`{path}` has no effect on"):
            tasks.run(config, tmp_path)
    config = fields.changed(
        small("detection"), {"data.dataset": "own", "data.split_seed": 1}
    )
    with pytest.raises(ValueError, match="'own', which has a part for eval"):
        tasks.run(config, tmp_path)
    config = fields.changed(
        small("depth"), {"data.dataset": str(tmp_path), "task.depth_unit": 0.0}
    )
    with pytest.raises(ValueError, match="`depth_unit` must be a positive"):
        tasks.run(config, tmp_path / "depth")
    with pytest.raises(ValueError, match=r"detect.py must be MODEL,DATASET"):
        detect.get_config("DeiTS16")


# Field -> the value of the authors, by the argument of the config.
# YOLOS: README.md, main.py and datasets/coco.py of hustvl/YOLOS
# at 5717fc2; the losses are those of `SetDetectionLoss`, tested elsewhere.
YOLOS = {
    "task.name": "detection",
    "task.num_queries": 100,
    "task.no_object_weight": 0.1,
    "task.auxiliary_blocks": (),
    "task.anchors": False,
    "data.flip": True,
    "optim.name": "AdamW",
    "optim.weight_decay": 1e-4,
    "optim.clip_norm": 0.1,
    "optim.layer_decay": 0.0,
    "schedule.name": "cosine",
    "schedule.final_lr": 1e-7,
    "schedule.warmup_steps": 0,
}
# EoMT: configs/dinov2, main.py, datasets, training/mask_classification_*.py and
# training/two_stage_warmup_poly_schedule.py of tue-mps/eomt at 7bd19dd.
EOMT = {
    "task.head": "eomt",
    "task.no_object_weight": 0.1,
    "task.num_points": 12_544,
    "task.masked_attention": True,
    "data.batch_size": 16,
    "data.flip": True,
    "optim.name": "AdamW",
    "optim.base_lr": 1e-4,
    "optim.weight_decay": 0.05,
    "optim.clip_norm": 0.01,
    "optim.layer_decay": 0.8,
    "optim.backbone_warmup": (500, 1000),
    "schedule.warmup_steps": 500,
    "model.architecture.patch_size": 16,
    "schedule.name": "PolynomialDecay(end_learning_rate=0.0, power=0.9)",
    "schedule.final_lr": 0.0,
}
COCO_EOMT = EOMT | {
    "task.num_queries": 200,
    "task.scales": (0.1, 2.0),
    "task.colours": 0.0,
    "task.eval_view": "padded",
    "data.image_size": (640,),
    "schedule.num_epochs": 12,
}
PUBLISHED = {
    "detect.py:DeiTTi16,coco/2017": YOLOS
    | {
        "task.mid_positions": False,
        "data.image_size": (512,),
        "data.batch_size": 8 * 2,
        "task.scales": (256 / 512, 608 / 512),
        "optim.base_lr": 5e-5,
        "schedule.num_epochs": 300,
    },
    "detect.py:DeiTS16,coco/2017": YOLOS
    | {
        "task.mid_positions": True,
        "data.image_size": (800,),
        "data.batch_size": 8,
        "task.scales": (480 / 800, 800 / 800),
        "optim.base_lr": 2.5e-5,
        "schedule.num_epochs": 150,
    },
    "segment.py:DINOv2L14,scene_parse150": EOMT
    | {
        "task.name": "segmentation",
        "task.num_queries": 100,
        "task.num_blocks": 4,
        "task.scales": (0.5, 2.0),
        "task.colours": 0.5,
        "task.eval_view": "windows",
        "data.image_size": (512,),
        "schedule.num_epochs": 31,
    },
    "segment.py:DINOv2S14,path/to/coco,panoptic": COCO_EOMT
    | {"task.name": "panoptic", "task.num_blocks": 3},
    "segment.py:DINOv2G14,path/to/coco,panoptic": COCO_EOMT
    | {"task.name": "panoptic", "task.num_blocks": 5},
    "segment.py:DINOv2L14,path/to/coco,instances": COCO_EOMT
    | {"task.name": "instances", "task.num_blocks": 4},
    # Ranftl et al. 2021, section 4.1, from memory.
    "depth.py:DINOv2S14,path/to/images": {
        "optim.name": "AdamW",
        "optim.base_lr": 1e-4,
        "data.image_size": (384,),
    },
}
# What differs from the authors'. YOLOS: images of any size; every second one is
# cropped before it is resized. EoMT: the backbone's rate falls with the head's,
# the authors' counts the steps from its own warm-up, and the last norm has
# the whole rate; hue, and how often colours change; the padding is black.


@pytest.mark.backend_independent
@pytest.mark.parametrize("argument", PUBLISHED)
def test_published_settings(argument):
    path = f"recipes/configs/{argument}"
    config, *_ = cli.parse(["", f"--config={path}"], path.split(":")[0])
    found = {key: fields.get(config, key) for key in PUBLISHED[argument]}
    assert found == PUBLISHED[argument]
    assert config.model.weights
    task_settings.check(config)
