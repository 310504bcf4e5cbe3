"""The fine-tuning recipe, from images to a model that can be used."""

import csv
import errno
import json
import os
import shutil
import struct

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_runs import rows_of, small_vit

from keras_vit import data, distribution, training
from keras_vit.models.families import FAMILIES
from recipes import (
    checks,
    experiment,
    fields,
    finetune,
    fitting,
    inputs,
    training_step,
)
from recipes import workdir as workdirs

pytestmark = pytest.mark.backend("torch")
no_pictures = pytest.mark.usefixtures("no_pictures")


def write_folder(root, per_class=6, size=(20, 30), parts=("",)):
    rng = np.random.default_rng(0)
    for part in parts:
        for shade, name in ((40, "dark"), (200, "light")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(per_class):
                pixels = shade + rng.integers(0, 40, (*size, 3))
                encoded = tf.io.encode_jpeg(pixels.astype("uint8"))
                (folder / f"{i}.jpg").write_bytes(encoded.numpy())


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("jax")
def test_a_run_leaves_everything_in_its_workdir(digits_run):
    _, workdir, results, printed = digits_run
    for name in (
        "config.json",
        "metrics.csv",
        "best.keras",
        "last.keras",
        "curves.png",
        "predictions.png",
        "examples",
        "tensorboard",
        "checkpoints",
    ):
        assert (workdir / name).exists(), name
    for part in ("train", "validation"):
        assert any((workdir / "tensorboard" / part).iterdir())
    for name in ("curves.png", "predictions.png"):
        start = (workdir / name).read_bytes()[:24]
        assert start[:4] == b"\x89PNG"
        assert min(struct.unpack(">II", start[16:])) > 200
        assert str(workdir / name) in printed
    assert f"{results['accuracy']:.2%} of 359 evaluation images" in printed
    assert "WARNING: an image is only 4 tokens." in printed


def test_config_json_holds_all_fields_resolved(digits_run):
    config, workdir, *_ = digits_run
    written = json.loads((workdir / "config.json").read_text())
    assert written["config"]["optim"]["base_lr"] == config.optim.base_lr
    assert written["config"]["model"]["architecture"]["hidden_size"] == 16
    derived = written["derived"]
    assert derived["image_size"] == [8, 8]
    assert derived["channels"] == 1
    assert derived["classes"] == 10
    assert derived["train_images"] + derived["eval_images"] == 1797


def test_training_stops_at_exactly_the_last_step(digits_run):
    rows = rows_of(digits_run[1])
    assert [int(row["step"]) for row in rows] == [2, 4, 5]
    assert float(rows[-1]["learning_rate"]) == 0
    assert float(rows[-1]["val_loss"]) > 0


def test_the_result_is_the_last_evaluation_and_the_best_is_named_so(
    digits_run,
):
    _, workdir, results, printed = digits_run
    rows = rows_of(workdir)
    last, best = rows[-1], max(rows, key=lambda row: float(row["val_accuracy"]))
    expected = {
        f"{prefix}{name}": float(row[column])
        for prefix, row in (("", last), ("best_", best))
        for name, column in (
            ("loss", "val_loss"),
            ("accuracy", "val_accuracy"),
            ("step", "step"),
        )
    }
    assert results == pytest.approx(expected, abs=1e-6)
    assert f"Last evaluation (step 5): {results['accuracy']:.2%}" in printed
    assert f"Best evaluation (step {results['best_step']}):" in printed
    # What is proposed to be used is what the result is of.
    assert f"keras-vit predict {workdir / 'last.keras'}" in printed


def test_last_keras_is_the_model_of_the_last_evaluation(digits_run):
    config, workdir, results, _ = digits_run
    model = keras.models.load_model(workdir / "last.keras", compile=False)
    assert model.get_layer("head").class_names == tuple("0123456789")
    model.compile(
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    train, evaluation = inputs.load(config)
    _, batches = inputs.pipelines(
        config, inputs.dataset_info(config, train), train, evaluation
    )
    found = model.evaluate(data.as_pairs(batches()), verbose=0)
    expected = [results["loss"], results["accuracy"]]
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_workdir_of_another_config_is_refused_before_any_work(
    digits_run, make_config, monkeypatch
):
    monkeypatch.setattr(finetune.data, "load", lambda *_, **__: 1 / 0)
    with pytest.raises(ValueError, match="base_lr: 0.01 there, 0.5 here"):
        finetune.run(make_config(base_lr=0.5), str(digits_run[1]))


def test_a_finished_run_only_draws_its_figures_again(
    digits_run, tmp_path, make_config, monkeypatch, capsys
):
    workdir = tmp_path / "again"
    shutil.copytree(digits_run[1], workdir)
    # As if it had been trained on another backend.
    text = (workdir / "config.json").read_text()
    (workdir / "config.json").write_text(
        text.replace('"backend": "', '"backend": "other-')
    )
    names = ("config.json", "metrics.csv", "last.keras", "best.keras")
    before = {name: (workdir / name).stat() for name in names}
    for name in ("curves.png", "predictions.png"):
        (workdir / name).unlink()
    shutil.rmtree(workdir / "checkpoints")

    monkeypatch.setattr(finetune.fitting, "fit", lambda *_, **__: 1 / 0)
    assert finetune.run(make_config(), str(workdir)) == digits_run[2]
    printed = capsys.readouterr().out
    assert "is finished: nothing is trained" in printed
    # What has been removed is not listed.
    assert "again/best.keras" in printed and "again/check" not in printed
    for name, stat in before.items():
        now = (workdir / name).stat()
        assert (now.st_mtime_ns, now.st_ino) == (stat.st_mtime_ns, stat.st_ino)
    for name in ("curves.png", "predictions.png"):
        assert (workdir / name).stat().st_size > 1000
    assert not (workdir / "checkpoints").exists()


@no_pictures
def test_a_finished_run_without_its_last_model_saves_it_again(
    digits_run, tmp_path, make_config
):
    workdir = tmp_path / "again"
    shutil.copytree(digits_run[1], workdir)
    # Killed while it saved it, and beside it another command that runs.
    parts = workdir / ".part-killed", workdir / ".part-running"
    for part, name in zip(parts, ("last.keras", "model.onnx"), strict=True):
        part.mkdir()
        shutil.copy(workdir / "last.keras", part / name)
    (workdir / "last.keras").unlink()
    assert finetune.run(make_config(), str(workdir)) == digits_run[2]
    assert [part.exists() for part in parts] == [False, True]
    assert rows_of(workdir) == rows_of(digits_run[1])
    ours, theirs = (
        keras.models.load_model(x / "last.keras", compile=False).get_weights()
        for x in (workdir, digits_run[1])
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in ("last.keras", "metrics.csv"):
        (workdir / name).unlink()
    with pytest.raises(ValueError, match="without that of step 2"):
        finetune.run(make_config(), str(workdir))


def test_a_workdir_in_use_is_refused_before_anything_is_touched(
    tmp_path, make_config, monkeypatch
):
    monkeypatch.setattr(finetune.data, "load", lambda *_, **__: 1 / 0)
    with workdirs.lock(tmp_path, distribution.Devices(kind="cpu")):
        with pytest.raises(ValueError, match="in use by process"):
            finetune.run(make_config(), str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]


@no_pictures
@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("tensorflow", "jax")
def test_evaluated_and_saved_weights_are_the_polyak_average(
    tmp_path, make_config, monkeypatch
):
    seen = []

    class Recorder(training.Progress):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(self.model.get_weights())
            super().on_train_batch_end(batch, logs)

    monkeypatch.setattr(training, "Progress", Recorder)
    results = finetune.run(
        make_config(ema_momentum=0.6, total_steps=8, eval_every=4),
        str(tmp_path),
    )
    assert len(seen) == 8
    average, averages = seen[0], []
    for weights in seen:
        average = [
            0.6 * old + 0.4 * new
            for old, new in zip(average, weights, strict=True)
        ]
        averages.append(average)
    rows = rows_of(tmp_path)
    best = int(np.argmax([float(row["val_accuracy"]) for row in rows]))
    for name, step in (("best", 4 * (best + 1)), ("last", 8)):
        saved = keras.models.load_model(tmp_path / f"{name}.keras")
        saved = saved.get_weights()
        for ours, expected in zip(saved, averages[step - 1], strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-6)
        differences = [
            np.abs(a - b).max() for a, b in zip(saved, seen[-1], strict=True)
        ]
        assert max(differences) > 1e-4
    assert results["loss"] == pytest.approx(
        float(rows[-1]["val_loss"]), abs=1e-5
    )


@no_pictures
@pytest.mark.usefixtures("plain_decoding")
def test_a_folder_of_rectangular_photographs_trains(tmp_path, make_config):
    write_folder(tmp_path / "photos", parts=("train", "test"))
    workdir = tmp_path / "run"
    finetune.run(
        make_config(
            dataset=str(tmp_path / "photos"),
            image_size=(16, 24),
            architecture=finetune.Architecture(
                hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32
            ),
            crop="inception",
            flip=True,
            batch_size=4,
            total_steps=0,
            num_epochs=2,
            eval_every=0,
            optimizer="sgd",
            weight_decay=0.1,
            label_smoothing=0.1,
        ),
        str(workdir),
    )
    derived = json.loads((workdir / "config.json").read_text())["derived"]
    assert derived["image_size"] == [16, 24]
    assert derived["model"]["patch_size"] == 4
    assert (derived["total_steps"], derived["eval_every"]) == (6, 3)
    model = keras.models.load_model(workdir / "best.keras", compile=False)
    assert model.get_layer("head").class_names == ("dark", "light")


@no_pictures
@pytest.mark.usefixtures("plain_decoding")
def test_a_broken_image_stops_the_run_or_is_listed_with_the_reason(
    tmp_path, make_config, capsys
):
    write_folder(tmp_path / "photos")
    broken = tmp_path / "photos" / "dark" / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (tmp_path / "photos" / "dark" / "raw.cr2").write_bytes(b"not read")
    config = make_config(
        dataset=str(tmp_path / "photos"), image_size=(8,), batch_size=4
    )
    with pytest.raises(ValueError, match="dark/broken.jpg"):
        finetune.run(config, str(tmp_path / "run"))
    config.data.broken = "skip"
    broken.with_name(os.fsdecode(b"K\xe4se.jpg")).write_bytes(b"no UTF-8")
    finetune.run(config, str(tmp_path / "other"))
    written = json.loads((tmp_path / "other" / "config.json").read_text())
    assert written["derived"]["skipped_images"] == 2
    assert written["derived"]["ignored_files"] == {"unsupported": {".cr2": 1}}
    printed = capsys.readouterr().out
    assert (
        "1 file ignored (unsupported: 1 .cr2); 2 broken files left" in printed
    )
    with open(tmp_path / "other" / "skipped.csv", newline="") as file:
        other, row = sorted(csv.DictReader(file), key=lambda row: row["path"])
    assert row["path"] == str(broken)
    assert "Invalid JPEG data" in row["reason"]
    assert other["path"].endswith("dark/K\\udce4se.jpg")


@pytest.mark.parametrize(
    ("image_size", "patch_size"),
    [((8, 8), 4), ((28, 28), 4), ((384, 224), 16), ((2, 2), 1)],
)
def test_the_small_model_takes_patches_that_fit(
    make_config, image_size, patch_size
):
    config = make_config(architecture=finetune.Architecture(num_layers=2))
    arguments = training_step._model_arguments(config, image_size)
    assert arguments == FAMILIES["vit"].small | {
        "patch_size": patch_size,
        "num_layers": 2,
    }
    config.model.name = "ViTB16"
    assert training_step._model_arguments(config, image_size) == {
        "num_layers": 2
    }


def test_weight_decay_is_for_kernels_alone():
    model = small_vit()
    optimizer = training_step._optimizer(
        experiment.Optim(weight_decay=0.1), 0.1, model, model, 10
    )
    assert optimizer.weight_decay == 0.1
    decayed = {
        variable.path.split("/")[-1]
        for variable in model.trainable_variables
        if optimizer._use_weight_decay(variable)
    }
    assert decayed == {"kernel"}
    optimizer = training_step._optimizer(
        experiment.Optim(), 0.1, model, model, 10
    )
    assert optimizer.weight_decay is None


def test_learning_rate_rises_from_zero_and_falls_to_zero(make_config):
    rate = training_step._schedule(make_config(base_lr=0.5), 30, 10)
    rates = [float(rate(step)) for step in range(31)]
    np.testing.assert_allclose(rates[:11], np.linspace(0, 0.5, 11), atol=1e-6)
    cosine = 0.25 * (1 + np.cos(np.pi * np.linspace(0, 1, 21)))
    np.testing.assert_allclose(rates[10:], cosine, atol=1e-6)
    constant_start = training_step._schedule(make_config(base_lr=0.5), 30, 0)
    assert float(constant_start(0)) == 0.5
    config = make_config(base_lr=0.5, final_lr=0.1)
    assert float(training_step._schedule(config, 30, 10)(30)) == (
        pytest.approx(0.1)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model="ViTB61"), "Nearest names: .*ViTB16"),
        (dict(crop="centre"), "`data.crop` must be one of"),
        (dict(batch_size=0), "`data.batch_size` must be at least 1"),
        (
            dict(total_steps=0),
            "`schedule.total_steps` or `schedule.num_epochs`",
        ),
        (dict(ema_momentum=1.0), "`optim.ema_momentum` .* below 1"),
        (dict(label_smoothing=float("nan")), "`optim.label_smoothing`"),
        (dict(base_lr=0.0), "`optim.base_lr` must be a positive number"),
        (
            dict(batch_size=100_000, total_steps=0, num_epochs=2),
            "`data.batch_size` must be at most 1438",
        ),
        (dict(image_size=(4,)), "must leave more than one patch"),
        (dict(image_size=(8, 0)), "`image_size` must be"),
        (dict(image_size=("a",)), "`data.image_size` must be"),
        (dict(channels=5), "`channels` must be"),
        (dict(dataset="./nowhere"), "which is not there"),
        (dict(train_split="train[:10%]"), "`eval_split` must be '' for a"),
        (dict(eval_split="val"), "`eval_split` must be '' for a data set"),
        (dict(frame_step=4), "`data.frame_step` has no effect on a set of im"),
        (dict(frame_rate=30.0), "`data.frame_rate` has no effect on a set wi"),
        (
            dict(dataset="moving_digits", frame_rate=30.0),
            "`data.frame_rate` has no effect on a set without video files",
        ),
        # Before the data set, which may have to be fetched.
        (dict(weights="nowhere.npz", dataset="digit"), "`weights` must be"),
        (dict(image_size=(10,)), "multiples of the patch, 4x4"),
        (
            dict(architecture=finetune.Architecture(pooling="unpooled")),
            "`model.architecture.pooling`",
        ),
        (
            dict(architecture=finetune.Architecture(num_heads=7)),
            "`hidden_size` must be a multiple of `num_heads`",
        ),
    ],
)
def test_bad_input_is_refused_and_leaves_no_workdir(
    tmp_path, make_config, changes, message
):
    workdir = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        finetune.run(make_config(**changes), str(workdir))
    assert not workdir.exists()


@pytest.mark.parametrize(
    ("path", "value", "others"),
    [
        ("model.lora_rank", 4, {"model.tune": "head"}),
        ("data.min_area", 0.3, {"data.crop": "pad"}),
        ("data.pad", 2, {"data.crop": "inception"}),
        ("data.resize", 12, {"data.crop": "inception"}),
        ("optim.momentum", 0.5, {"optim.name": "adam"}),
        ("optim.momentum", 0.5, {"optim.name": "RMSprop(rho=0.8)"}),
        ("optim.layer_decay", 0.7, {"model.tune": "head"}),
        ("optim.backbone_warmup", (1, 2), {"model.tune": "head"}),
        ("schedule.final_lr", 1e-4, {"schedule.name": "linear"}),
        ("run.model_parallel", 2, {"run.strategy": "data"}),
        ("evaluation.fewshot_shots", (1,), {}),
        ("evaluation.fewshot_every", 2, {}),
    ],
)
def test_fields_without_effect_are_refused(make_config, path, value, others):
    config = fields.changed(make_config(), others)
    checks.check(config)
    config = fields.changed(config, {path: value})
    with pytest.raises(ValueError, match=f"`{path}` has no effect on a run"):
        checks.check(config)


@pytest.mark.parametrize(
    ("name", "momentum"),
    [("SGD(nesterov=True)", 0.8), ("SGD(momentum=0.5)", 0.5)],
)
def test_sgd_of_keras_has_the_momentum_of_the_config(name, momentum):
    model = small_vit()
    settings = experiment.Optim(name=name, momentum=0.8)
    optimizer = training_step._optimizer(settings, 0.1, model, model, 10)
    assert optimizer.momentum == momentum


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, make_config):
    config = make_config(
        optimizer="sgd", base_lr=1e30, clip_norm=0.0, warmup_steps=0
    )
    with pytest.raises(ValueError, match="step [123](\\.| gave).*`optim.base"):
        finetune.run(config, str(tmp_path))


def test_a_full_disk_is_refused_by_the_name_of_the_workdir(
    tmp_path, make_config, monkeypatch
):
    def save(*arguments):
        raise ValueError(f"RESOURCE_EXHAUSTED: {os.strerror(errno.ENOSPC)}")

    full = "disk of .*/run is full, or its quota. Free"
    monkeypatch.setattr(training.Checkpoints, "save", save)
    with pytest.raises(OSError, match=full):
        finetune.run(make_config(), str(tmp_path / "run"))
    with pytest.raises(OSError, match=full):
        with fitting._naming_full_disk(tmp_path / "run"):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
