"""Pre-training without labels, from the config to fine-tuning."""

import csv
import json
import os
import signal

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training
from recipes import cli, experiment, finetune, masked_patch


def small_config(**changes):
    return masked_patch.Config(
        **dict(
            dataset="digits",
            architecture=experiment.Architecture(
                patch_size=2,
                hidden_size=16,
                num_layers=1,
                num_heads=2,
                mlp_dim=32,
                dropout_rate=0.1,
            ),
            crop="pad",
            batch_size=32,
            total_steps=5,
            eval_every=2,
            warmup_steps=1,
            base_lr=0.01,
            optimizer="adam",
            fewshot_dataset="digits",
            fewshot_shots=(1,),
            fewshot_every=2,
        )
        | changes
    )


def config_of(*arguments):
    file, *rest = arguments
    flag = f"--config={masked_patch.DEFAULT_CONFIG}{file}"
    return cli.parse(["recipe", flag, *rest], masked_patch.DEFAULT_CONFIG)[0]


def rows_of(workdir):
    with open(workdir / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def weights_of(path):
    return keras.models.load_model(path, compile=False).get_weights()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(workdir, results)"""
    workdir = tmp_path_factory.mktemp("masked_patch")
    return workdir, masked_patch.run(small_config(), str(workdir))


def test_the_paper_trains_a_million_steps():
    config = config_of(":ViTB16,jft300m", "--config.dataset=path")
    assert (config.total_steps, config.batch_size) == (1_000_000, 4096)
    assert (config.optimizer, config.base_lr) == ("adam", 2e-4)
    assert (config.warmup_steps, config.schedule) == (10_000, "cosine")
    assert (config.target, config.corrupted) == ("mean_colour", 0.5)
    assert (config.dataset, config.image_size) == ("path", (224,))
    experiment.check(config)


def test_the_argument_names_model_and_data_set():
    assert config_of("", "--config.target=pixels").target == "pixels"
    assert config_of(":ViT,mine").architecture.patch_size == 0
    with pytest.raises(ValueError, match="MODEL,DATASET.*'ViTB16'"):
        config_of(":ViTB16")


def test_a_run_leaves_everything_in_its_workdir(run):
    workdir, results = run
    for name in ("checkpoints", "tensorboard", "curves.png", "best.keras"):
        assert (workdir / name).exists(), name
    written = json.loads((workdir / "config.json").read_text())
    assert written["config"]["target"] == "mean_colour"
    assert written["derived"]["patches"] == [4, 4]
    rows = rows_of(workdir)
    assert [int(row["step"]) for row in rows] == [2, 4, 5]
    assert results["loss"] == min(float(row["val_loss"]) for row in rows)
    # Eight shades of grey: less than a guess that knows nothing.
    assert results["loss"] < np.log(8)
    assert 0 < results["accuracy"] < 1


def test_few_shot_accuracy_is_that_of_the_trunk(run):
    measured = [float(row["digits/1-shot"]) for row in rows_of(run[0])]
    # At the second evaluation and at the last; the others are nan.
    assert [value == value for value in measured] == [False, True, True]
    # Of the class token, not of predicted colours: far better than chance.
    assert min(measured[1:]) > 0.2


def test_fine_tuning_begins_with_what_was_learned(run, tmp_path, make_config):
    best = run[0] / "best.keras"
    model = keras.models.load_model(best, compile=False)
    assert model.output_shape == (None, 16)
    config = make_config(
        weights=str(best),
        architecture=experiment.Architecture(),
        total_steps=1,
        base_lr=1e-30,
    )
    finetune.run(config, str(tmp_path))
    tuned = keras.models.load_model(tmp_path / "best.keras", compile=False)
    assert tuned.get_layer("head").labels == tuple("0123456789")
    learned = {w.path: w for w in model.weights}
    for weight in tuned.weights:
        if not weight.path.startswith(("head", "seed")):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(weight),
                keras.ops.convert_to_numpy(learned.pop(weight.path)),
            )
    assert not [path for path in learned if "seed" not in path]
    assert keras_vit.ViT(weights=str(best), classes=3).output_shape[1] == 3


def test_a_run_that_was_stopped_ends_with_the_same_bits(
    run, tmp_path, monkeypatch
):
    class Stopped(training.Progress):
        def on_train_batch_begin(self, batch, logs=None):
            if self.step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            super().on_train_batch_begin(batch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(training, "Progress", Stopped)
        with pytest.raises(SystemExit, match="143"):
            masked_patch.run(small_config(), str(tmp_path))
    assert [int(row["step"]) for row in rows_of(tmp_path)] == [2]
    assert masked_patch.run(small_config(), str(tmp_path)) == run[1]
    for name in ("metrics.csv", "config.json"):
        ours, theirs = (x / name for x in (tmp_path, run[0]))
        assert ours.read_bytes() == theirs.read_bytes()
    ours, theirs = (weights_of(x / "best.keras") for x in (tmp_path, run[0]))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_pixels_have_no_accuracy_and_micro_batches_work(tmp_path):
    config = small_config(
        target="pixels",
        corrupted=0.25,
        total_steps=2,
        micro_batches=2,
        ema_momentum=0.5,
        architecture=experiment.Architecture(
            patch_size=4, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8
        ),
    )
    results = masked_patch.run(config, str(tmp_path))
    assert list(results) == ["loss"]
    assert 0 < results["loss"] < 4  # of values from -1 to 1
    assert (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(target="colour"), "`target` must be one of .*'colour'"),
        (dict(corrupted=0.0), "`fraction` must be above 0.*fraction=0"),
        (dict(batch_size=0), "`batch_size` must be at least 1"),
    ],
)
def test_wrong_fields_are_refused_before_the_workdir_is_written(
    tmp_path, changes, message
):
    with pytest.raises(ValueError, match=message):
        masked_patch.run(small_config(**changes), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
