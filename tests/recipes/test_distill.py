"""Runs with a teacher: better with it, resumed exactly, and settings."""

import dataclasses
import os

import keras
import numpy as np
import processes
import pytest
import small_runs
import start_recipe
from sklearn import linear_model

from keras_vit import data, distribution, training
from recipes import (
    begin,
    cli,
    distill,
    experiment,
    fields,
    finetune,
    fitting,
    inputs,
    training_step,
)
from recipes import workdir as workdirs
from recipes.configs import distill as configs


def small(model="ViT", teacher="", method="hard", **changes):
    own = dict(
        model=model,
        architecture=experiment.Architecture(
            patch_size=2, hidden_size=32, num_layers=2, num_heads=4, mlp_dim=64
        ),
        base_lr=3e-3,
    )
    config = small_runs.small_config(distill.Config(), **own | changes)
    config.distill.teacher, config.distill.method = str(teacher), method
    return config


def linear_teacher(path):
    """Saves a model of logistic regression on all digits; its accuracy."""
    train, evaluated = data.load("digits")
    pixels, others = (
        source.images.reshape(source.num_examples, -1) / 255
        for source in (train, evaluated)
    )
    found = linear_model.LogisticRegression(max_iter=300)
    found.fit(pixels, train.labels)
    images = keras.Input((8, 8, 1))
    dense = keras.layers.Dense(10)
    x = dense(keras.layers.Flatten()(images))
    dense.set_weights([found.coef_.T / 255, found.intercept_])
    keras.Model(images, x).save(path)
    return found.score(others, evaluated.labels)


# docs/recipes/distill.md has the same of photographs, with three seeds.
@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.backend("torch")
@pytest.mark.usefixtures("no_pictures")
def test_a_student_of_a_better_teacher_is_better(tmp_path):
    few = dict(
        architecture=experiment.Architecture(
            patch_size=4, hidden_size=64, num_layers=1, num_heads=2, mlp_dim=128
        ),
        optimizer="sgd",
        base_lr=0.1,
        batch_size=50,
        shots=5,
        total_steps=150,
        eval_every=150,
        warmup_steps=20,
    )
    accuracy = linear_teacher(tmp_path / "teacher.keras")
    plain = finetune.run(small(**few), str(tmp_path / "plain"))
    # Of the same images, between which MixUp makes others.
    config = small("ViT", tmp_path / "teacher.keras", "match", **few)
    config.data.augment = ("MixUp(alpha=1.0)",)
    taught = finetune.run(config, str(tmp_path / "taught"))
    # Of 359 images, two standard errors of a difference are at most 0.075.
    assert plain["accuracy"] + 0.075 < taught["accuracy"] < accuracy


@pytest.mark.thorough("tensorflow", "jax")
@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_resumes_ends_with_the_same_weights(tmp_path):
    tiny = dict(
        architecture=experiment.Architecture(
            patch_size=4, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16
        ),
        augment=("MixUp(alpha=0.5)",),
        checkpoint_every=2,
        eval_fraction=0.05,
    )
    finetune.run(small(**tiny, total_steps=2), str(tmp_path / "teacher"))
    path = tmp_path / "teacher/last.keras"
    config = small("DeiT", path, **tiny, total_steps=4, eval_every=2)
    whole = finetune.run(config, str(tmp_path / "whole"))
    assert np.isfinite(whole["loss"]) and 0 <= whole["accuracy"] <= 1
    folders = (tmp_path / name for name in ("whole", "resumed"))
    model = small_runs.assert_resumes(finetune.run, config, whole, *folders)
    # An ordinary DeiT, whose two classifiers learned different things.
    assert model.family == "deit"
    head = model.get_layer("head")
    assert not np.array_equal(head.token.kernel, head.distillation.kernel)


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_a_student_is_measured_on_several_devices(tmp_path):
    processes.call(measure_on_two_devices, tmp_path)


def measure_on_two_devices(folder):
    start_recipe.pretend_devices(2)
    linear_teacher(folder / "teacher.keras")
    config = small(teacher=folder / "teacher.keras")
    devices, images = distribution.setup(), inputs.prepare(config, folder)
    batches = inputs.pipelines(
        config, images.info, images.train, images.evaluation
    )
    objective, (_, evaluation) = distill.prepare(
        config, devices, images, batches
    )
    built = begin.build(config, devices, images, objective)
    with devices.training_scope():
        pairs = data.as_pairs(devices.batches(evaluation))
        logs = built.trainer.evaluate(pairs, steps=1, return_dict=True)
    assert devices.num_devices == 2 and 0 <= logs["accuracy"] <= 1


@pytest.mark.backend("torch")
@pytest.mark.usefixtures("no_pictures")
def test_stored_predictions_are_written_once(tmp_path, monkeypatch):
    tiny = dict(
        architecture=experiment.Architecture(
            patch_size=4, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16
        ),
        augment=("MixUp(alpha=0.5)",),
        total_steps=3,
        eval_fraction=0.05,
    )
    linear_teacher(tmp_path / "teacher.keras")
    config = small("DeiT", tmp_path / "teacher.keras", "soft", **tiny)
    config.distill.predictions = str(tmp_path / "predictions")
    written = finetune.run(config, str(tmp_path / "written"))
    size = (tmp_path / "predictions/train").stat().st_size
    assert size == 3 * config.data.batch_size * 10 * 2

    # As if it were killed while it wrote the second batch.
    os.truncate(tmp_path / "predictions/train", size // 2)
    with workdirs.lock(tmp_path / "predictions", distribution.setup()):
        with pytest.raises(ValueError, match="`distill.predictions` must not"):
            finetune.run(config, str(tmp_path / "at_once"))
    assert (tmp_path / "predictions/train").stat().st_size == size // 2
    assert finetune.run(config, str(tmp_path / "again")) == written
    assert (tmp_path / "predictions/train").stat().st_size == size

    teacher = training.open_teacher(config.distill.teacher)
    monkeypatch.setattr(training, "open_teacher", None)
    images = inputs.prepare(config, tmp_path / "none")
    batches = inputs.pipelines(
        config, images.info, images.train, images.evaluation
    )
    devices = fitting.set_up(config)
    _, (train, evaluated) = distill.prepare(config, devices, images, batches)
    first, second = train(0).take(2).as_numpy_iterator()
    (resumed,) = train(1).take(1).as_numpy_iterator()
    for name in ("images", "teacher"):
        given = resumed["images"][name]
        np.testing.assert_array_equal(given, second["images"][name])
        assert not np.array_equal(given, first["images"][name])
    theirs = teacher.predict(first["images"]["images"], verbose=0)
    stored = first["images"]["teacher"]  # in float16
    np.testing.assert_allclose(stored, theirs, rtol=1e-3, atol=1e-3)
    # Several processes evaluate a range of the images each.
    for batch in (*evaluated(0, 2), *evaluated(1, 2)):
        counted = np.asarray(batch["weights"]) > 0
        pixels = np.asarray(batch["images"]["images"])[counted]
        found = np.asarray(batch["images"]["teacher"])[counted]
        theirs = teacher.predict(pixels, verbose=0)
        np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-3)
    several = dataclasses.replace(devices, num_processes=2)
    source = dataclasses.replace(images.train, images=None, stream=print)
    streams = dataclasses.replace(images, train=source)
    with pytest.raises(ValueError, match="several processes that read"):
        distill.prepare(config, several, streams, batches)
    config.distill.probabilities = True  # of logits, which are stored
    with pytest.raises(ValueError, match="which differs in probabilities"):
        distill.prepare(config, devices, images, batches)
    config.distill.probabilities = False
    config.seed += 1
    with pytest.raises(ValueError, match="which differs in seed"):
        distill.prepare(config, devices, images, batches)
    (tmp_path / "predictions/predictions.json").unlink()
    with pytest.raises(ValueError, match="must have a predictions.json"):
        distill.prepare(config, devices, images, batches)


@pytest.mark.backend("torch")
@pytest.mark.usefixtures("no_pictures")
def test_stored_probabilities_are_those_of_the_teacher(tmp_path):
    images = keras.Input((8, 8, 1))
    # Of which most round to 0 in float16.
    sharp = keras.layers.Dense(10, activation="softmax")
    scores = sharp(keras.layers.Flatten()(images))
    keras.Model(images, scores).save(tmp_path / "teacher.keras")
    config = small("ViT", tmp_path / "teacher.keras", "match", total_steps=2)
    config.distill.probabilities, config.distill.temperature = True, 8.0
    computed = finetune.run(config, str(tmp_path / "computed"))
    config.distill.predictions = str(tmp_path / "predictions")
    stored = finetune.run(config, str(tmp_path / "stored"))
    assert stored["loss"] == pytest.approx(computed["loss"], rel=1e-3)


@pytest.mark.backend("torch")
def test_what_a_plan_compiles_has_the_teacher(tmp_path):
    tiny = dict(
        architecture=experiment.Architecture(
            patch_size=4, hidden_size=8, num_layers=1, num_heads=1, mlp_dim=8
        )
    )
    train, _ = data.load("digits")
    config = small("DeiT", tmp_path / "teacher.keras", **tiny)
    info = inputs.dataset_info(config, train)
    assert distill.planned(small(**tiny), info) == (None, None)
    linear_teacher(config.distill.teacher)
    # Released weights are not fetched.
    for path, channels in (
        (config.distill.teacher, 1),
        ("ViTTi16/augreg+imagenet2012", 3),
    ):
        config.distill.teacher = path
        info = dataclasses.replace(info, channels=channels)
        objective, batch = distill.planned(config, info)
        trainer = training_step.build(config, info, "cpu", objective).trainer
        pixels, labels = batch(trainer)
        assert pixels.shape == (None, 8, 8, channels)
        assert labels.shape == (None, 10)
        assert trainer.output_shape == (None, 3, 10)


@pytest.mark.backend_independent
def test_settings():
    def config_of(arguments):
        path = f"recipes/configs/distill.py:{arguments}"
        config, *_ = cli.parse(["", f"--config={path}"], path.split(":")[0])
        config.distill.teacher = "x"
        distill.check(config)
        return config

    # Touvron et al. 2021, Table 9.
    deit = {
        "data.batch_size": 1024,
        "data.image_size": (224,),
        "optim.base_lr": 5e-4 * 1024 / 512,
        "optim.weight_decay": 0.05,
        "optim.label_smoothing": 0.1,
        "schedule.num_epochs": 300,
        "schedule.warmup_steps": 5 * 1_281_167 // 1024,
        "model.architecture.drop_path_rate": 0.1,
        "distill.method": "hard",
    }
    for model in ("DeiTTi16", "DeiTS16", "DeiTB16"):
        config = config_of(f"{model},imagenet2012")
        for field, value in deit.items():
            assert fields.get(config, field) == value, field
        assert "RandomErasing(factor=(0.25, 0.25))" in config.data.augment
        assert {"MixUp(alpha=0.8)", "CutMix()"} < {*config.data.augment}
    config = config_of("DeiTS16,imagenet2012,match")
    assert config.data.augment == ("MixUp(alpha=1.0)",)
    assert config.distill.method == "match"
    with pytest.raises(ValueError, match="must be MODEL,DATASET"):
        configs.get_config("DeiTS16")
    for path, value, message in (
        ("distill.method", "harder", "`distill.method` must be one of"),
        ("distill.weight", 1.0, "`distill.weight` must be at least 0 and"),
        ("optim.loss", "sigmoid", "`optim.loss` has no effect on a student"),
    ):
        with pytest.raises(ValueError, match=message):
            distill.check(fields.changed(small(), {path: value}))
    for teacher, method, path in (
        ("x", "hard", "distill.temperature"),
        ("x", "match", "distill.weight"),
        ("x", "match", "optim.label_smoothing"),
        ("", "hard", "distill.temperature"),
        ("", "soft", "distill.method"),
    ):
        config = small(teacher=teacher, method=method)
        if path != "distill.method":
            config = fields.changed(config, {path: 0.5})
        with pytest.raises(ValueError, match=f"`{path}` has no effect on"):
            distill.check(config)
