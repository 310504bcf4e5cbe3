"""Pre-training without labels, from the config to fine-tuning."""

import json

import keras
import numpy as np
import pytest
import small_runs
from small_runs import rows_of

import keras_vit
from keras_vit import data
from recipes import (
    begin,
    experiment,
    finetune,
    fitting,
    inputs,
    probes,
    unlabelled,
)

pytestmark = pytest.mark.backend("torch")


def small_config(**changes):
    own = dict(
        architecture=experiment.Architecture(
            patch_size=2,
            hidden_size=16,
            num_layers=1,
            num_heads=2,
            mlp_dim=32,
            dropout_rate=0.1,
        ),
        fewshot_dataset="digits",
        fewshot_shots=(1,),
        fewshot_every=2,
    )
    return small_runs.small_config(unlabelled.Config(), **own | changes)


NO_ARCHITECTURE = experiment.Architecture(patch_size=4)
OF_PATCHES = dict(objective="masked_patch")
OF_MAE = {
    "objective": "mae",
    "mae.decoder_num_layers": 1,
    "mae.decoder_hidden_size": 16,
    "mae.decoder_num_heads": 2,
    "mae.decoder_mlp_dim": 16,
    "probe.dataset": "digits",
    "fewshot_dataset": "",
    "fewshot_shots": (5,),
    "fewshot_every": 1,
    "eval_fraction": 0.05,
}

OF_DINO = {
    "objective": "dino",
    "dino.local_size": 0,
    "dino.num_local": 2,
    "dino.num_prototypes": 8,
    "dino.hidden_size": 8,
    "dino.bottleneck_size": 8,
    "dino.distort": False,
    "dino.patch_weight": 1.0,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(workdir, results) of masked patches"""
    workdir = tmp_path_factory.mktemp("masked_patch")
    return workdir, unlabelled.run(small_config(**OF_PATCHES), str(workdir))


@pytest.fixture(scope="module")
def mae_run(tmp_path_factory):
    """(workdir, results) of a masked autoencoder"""
    workdir = tmp_path_factory.mktemp("mae")
    return workdir, unlabelled.run(small_config(**OF_MAE), str(workdir))


def test_a_run_leaves_everything_in_its_workdir(run):
    workdir, results = run
    names = ("checkpoints", "tensorboard", "curves.png")
    for name in (*names, "best.keras", "last.keras"):
        assert (workdir / name).exists(), name
    written = json.loads((workdir / "config.json").read_text())
    assert written["config"]["masked_patch"]["target"] == "mean_colour"
    assert written["derived"]["patches"] == [4, 4]
    rows = rows_of(workdir)
    assert [int(row["step"]) for row in rows] == [2, 4, 5]
    losses = [float(row["val_loss"]) for row in rows]
    assert (results["loss"], results["step"]) == (losses[-1], 5)
    assert results["best_loss"] == min(losses)
    # Eight shades of grey: less than a guess that knows nothing.
    assert results["loss"] < np.log(8)
    assert 0 < results["accuracy"] < 1


def test_a_masked_autoencoder_leaves_its_decoder_and_a_picture(mae_run):
    workdir, results = mae_run
    assert list(results) == ["loss", "step", "best_loss", "best_step"]
    rows = rows_of(workdir)
    assert [int(row["step"]) for row in rows] == [2, 4, 5]
    for name in ("digits/knn", "digits/linear"):
        assert all(0.1 < float(row[name]) < 1 for row in rows)
    assert (workdir / "reconstructions.png").stat().st_size > 10_000
    whole, model = (
        keras.models.load_model(workdir / name, compile=False)
        for name in ("autoencoder.keras", "last.keras")
    )
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 1))
    np.testing.assert_allclose(
        whole.encoder().predict(pixels), model.predict(pixels), atol=1e-6
    )
    assert whole.num_visible == 4 and whole.options["target"] == "patch"
    # The positions are fixed, and all else was trained.
    positions = model.get_layer("posembed_input").pos_embedding
    fixed = keras_vit.heads.mae(keras_vit.ViT(**model_sizes(model)))
    np.testing.assert_array_equal(
        positions.numpy() if hasattr(positions, "numpy") else positions,
        fixed.get_layer("posembed_input").pos_embedding,
    )


def model_sizes(model):
    sizes = dict(model.metadata, include_top=False)
    names = ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim")
    shape = model.input_shape[1:]
    return {name: sizes[name] for name in names} | dict(
        include_top=False, input_shape=shape
    )


def test_few_shot_accuracy_is_that_of_the_saved_model(run):
    measured = [float(row["digits/1-shot"]) for row in rows_of(run[0])]
    # At the second evaluation and at the last; the others are nan.
    assert [value == value for value in measured] == [False, True, True]
    # Not of the model that is trained, whose output is predicted colours.
    model = keras.models.load_model(run[0] / "last.keras", compile=False)
    callback = probes.callback(model, experiment.Source(), (1,))
    trained = keras.Model()
    trained.stop_training = True
    callback.set_model(trained)
    callback.on_train_begin()
    logs = {}
    callback.on_epoch_end(0, logs)
    assert logs["digits/1-shot"] == pytest.approx(measured[-1], abs=1e-3)


@pytest.mark.parametrize("kind", ["run", "mae_run"])
@pytest.mark.usefixtures("no_pictures")
def test_fine_tuning_starts_from_the_trained_weights(
    kind, request, tmp_path, make_config
):
    last = request.getfixturevalue(kind)[0] / "last.keras"
    model = keras.models.load_model(last, compile=False)
    assert model.output_shape == (None, 16)
    config = make_config(
        weights=str(last),
        architecture=experiment.Architecture(),
        total_steps=1,
        base_lr=1e-30,
    )
    finetune.run(config, str(tmp_path))
    tuned = keras.models.load_model(tmp_path / "last.keras", compile=False)
    assert tuned.get_layer("head").class_names == tuple("0123456789")
    learned = {w.path: w for w in model.weights}
    for weight in tuned.weights:
        if not weight.path.startswith(("head", "seed")):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(weight),
                keras.ops.convert_to_numpy(learned.pop(weight.path)),
            )
    assert not [path for path in learned if "seed" not in path]
    assert keras_vit.ViT(weights=str(last), classes=3).output_shape[1] == 3


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("tensorflow", "jax")
@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("kind", "own"), [("run", OF_PATCHES), ("mae_run", OF_MAE)]
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    kind, own, request, tmp_path
):
    workdir, results = request.getfixturevalue(kind)
    small_runs.assert_resumes(
        unlabelled.run, small_config(**own), results, workdir, tmp_path / "run"
    )


@pytest.mark.parametrize(
    "own",
    [
        OF_PATCHES,
        OF_PATCHES | {"masked_patch.target": "downsized"},
        OF_PATCHES | {"masked_patch.target": "pixels"},
        OF_MAE,
        OF_DINO,
    ],
)
def test_what_a_plan_compiles_takes_the_batches_of_a_run(own, tmp_path):
    config = small_config(**own, crop="inception")  # to float32
    images = inputs.prepare(config, tmp_path)
    devices = fitting.set_up(config)
    objective, batch = unlabelled.planned(config, images.info)
    built = begin.build(config, devices, images, objective)
    train, _ = unlabelled.METHODS[config.objective].batches(
        config, images, built
    )
    given = data.as_pairs(train(0)).element_spec
    planned = batch(built.trainer)

    def of(specs):
        return keras.tree.map_structure(
            lambda x: (*x.shape[1:], getattr(x.dtype, "name", x.dtype)), specs
        )

    assert of(planned[0]) == of(given[0])
    assert of(planned[1]) == of(given[1])


@pytest.mark.usefixtures("no_pictures")
def test_pixels_have_no_accuracy_and_micro_batches_work(tmp_path):
    config = small_config(
        **OF_PATCHES,
        **{"masked_patch.target": "pixels", "masked_patch.corrupted": 0.25},
        total_steps=2,
        micro_batches=2,
        ema_momentum=0.5,
        architecture=experiment.Architecture(
            patch_size=4, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8
        ),
    )
    results = unlabelled.run(config, str(tmp_path))
    assert list(results) == ["loss", "step", "best_loss", "best_step"]
    assert 0 < results["loss"] < 4  # of values from -1 to 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"masked_patch.target": "colour"}, "`target` must be one of"),
        ({"masked_patch.corrupted": 0.0}, "`fraction` must be above 0"),
        (dict(objective="simclr"), "`objective` must be one of .*'simclr'"),
        (OF_MAE | {"mae.target": "colour"}, "`target` must be .*'colour'"),
        (
            OF_MAE | dict(model="MLPMixer", architecture=NO_ARCHITECTURE),
            "whose blocks take more tokens for the head 'mae'",
        ),
        (dict(batch_size=0), "`data.batch_size` must be at least 1"),
        ({"probe.every": 0}, "`probe.every` must be at least 1"),
        ({"probe.every": 2}, "`probe.every` has no effect on a run without"),
        (dict(label_smoothing=0.1), "`optim.label_smoothing` has no effect"),
        ({"mae.mask_ratio": 0.5}, "`mae` has no effect on objective='masked_"),
    ],
)
def test_wrong_fields_are_refused_before_the_workdir_is_written(
    tmp_path, changes, message
):
    config = small_config(**OF_PATCHES | changes)
    with pytest.raises(ValueError, match=message):
        unlabelled.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
