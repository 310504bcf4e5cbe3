"""Linear probes and low-rank updates."""

import catalogue
import keras
import numpy as np
import pytest
import realistic
from functional import values_of
from small_runs import seeded_vit

from keras_vit import training

pytestmark = pytest.mark.backend("torch")

IMAGES = (
    np.random.default_rng(0).uniform(0, 255, (8, 8, 8, 3)).astype("float32")
)
LABELS = np.arange(8) % 3


def predict(model):
    # Traced anew: TensorFlow would continue without the updates.
    model = keras.Model(model.input, model.output)
    return model.predict(IMAGES, verbose=0)


def train(model):
    # Another model of the same layers: compiled, it could not be saved plain.
    model = keras.Model(model.input, model.output)
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(IMAGES, LABELS, batch_size=4, epochs=3, verbose=0)


def shuffle(model):
    """Makes up what training would find."""
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))


def paths_of(model):
    return {v.path for v in model.trainable_variables}


def changed(before, after):
    return {path for path in before if (before[path] != after[path]).any()}


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_a_linear_probe_moves_the_head_alone():
    model = seeded_vit()
    training.train_head_only(model)
    before = values_of(model)
    train(model)
    assert changed(before, values_of(model)) == {"head/kernel", "head/bias"}


def test_a_quantized_head_is_no_linear_probe():
    model = seeded_vit()
    model.quantize("int8", filters="head")
    with pytest.raises(ValueError, match="`model` must be in a float"):
        training.train_head_only(model)


@pytest.mark.parametrize("remat", [False, True])
def test_low_rank_updates_move_head_and_updates_alone(tmp_path, remat):
    model = seeded_vit(remat=remat)
    expected = predict(model)
    training.train_low_rank(model, 2)
    # Nothing has changed yet.
    np.testing.assert_allclose(predict(model), expected, rtol=1e-6)
    before = values_of(model)
    train(model)
    moved = changed(before, values_of(model))
    assert {path for path in moved if "lora" not in path} == {
        "head/kernel",
        "head/bias",
    }
    # B of two projections in two blocks; A follows once B is not zero.
    assert len([path for path in moved if "lora_kernel_b" in path]) == 4
    assert len([path for path in moved if "lora_kernel_a" in path]) == 4


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_files_hold_low_rank_updates_and_what_they_make(tmp_path):
    model = seeded_vit()
    training.train_low_rank(model, 2)
    model.head.enable_lora(2, lora_alpha=6)
    shuffle(model)
    file, weights = tmp_path / "model.keras", tmp_path / "model.weights.h5"
    model.save(file)
    loaded = keras.models.load_model(file)
    expected, found = values_of(model), values_of(loaded)
    assert expected.keys() == found.keys() and not changed(expected, found)
    for again in loaded, keras.models.clone_model(model):
        assert paths_of(again) == paths_of(model)
        assert again.head.lora_alpha == 6

    def kernels(model):
        layers = [b.attention.qkv for b in model.blocks] + [model.head]
        return [keras.ops.convert_to_numpy(x.kernel) for x in layers]

    model.save_weights(weights)
    plain = seeded_vit()
    plain.load_weights(weights)
    from_file = seeded_vit(weights=str(file))
    plain.save_weights(weights)
    begun = seeded_vit()
    training.train_low_rank(begun, 2)
    begun.load_weights(weights)
    for other in plain, from_file, begun:
        for one, two in zip(kernels(other), kernels(model), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)
    # With both factors 0, neither would have a gradient.
    assert values_of(begun)[next(p for p in paths_of(begun) if "_a" in p)].all()


class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def test_low_rank_training_resumes_exactly(tmp_path):
    def begin():
        model = seeded_vit()
        training.train_low_rank(model, 2)
        model.compile(
            keras.optimizers.Adam(0.1),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    def fit(model, epochs=2, callbacks=()):
        model.fit(
            IMAGES, LABELS, epochs=epochs, callbacks=callbacks, verbose=0,
            batch_size=2, shuffle=False,
        )  # fmt: skip
        return values_of(model)

    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    model = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[backup, Stop()])
    model.save(tmp_path / "model.keras")
    before, expected = values_of(model), fit(begin())
    assert len(changed(before, expected)) == 10
    assert not changed(expected, fit(begin(), callbacks=[backup]))
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not changed(expected, fit(loaded, epochs=1))


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_low_rank_updates_of_a_quantised_model_load(mode, tmp_path):
    model = seeded_vit()
    model.quantize(mode)
    training.train_low_rank(model, 2)
    shuffle(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert paths_of(loaded) == paths_of(model)
    assert not changed(values_of(model), values_of(loaded))


@pytest.mark.parametrize("name", catalogue.ENCODERS)
def test_low_rank_updates_of_every_encoder(name):
    model = realistic.fill(catalogue.make_model(name))
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (4, *model.input_shape[1:]))
    expected = model.predict(images, verbose=0)
    training.train_low_rank(model, 2)
    before = values_of(model)
    tuned = keras.Model(model.input, model.output)
    np.testing.assert_allclose(
        tuned.predict(images, verbose=0), expected, rtol=1e-5, atol=1e-5
    )
    tuned.compile("sgd", "mse")
    tuned.train_on_batch(images, rng.normal(size=expected.shape))
    # A follows once B is not zero.
    attention = "encoderblock_0/MultiHeadDotProductAttention_0"
    updates = {f"{attention}/{x}/lora_kernel_b" for x in ("qkv", "out")}
    moved = changed(before, values_of(model))
    assert moved == updates | {v.path for v in model.head.weights}
    assert paths_of(keras.models.clone_model(model)) == paths_of(model)


def test_low_rank_updates_follow_a_linear_probe():
    model, expected = seeded_vit(), seeded_vit()
    training.train_head_only(model)
    training.train_low_rank(model, 2)
    training.train_low_rank(expected, 2)
    assert paths_of(model) == paths_of(expected)


def test_a_frozen_backbone_is_trained_by_its_updates():
    backbone = seeded_vit(include_top=False, classes=None)
    backbone.trainable = False
    model = keras.Sequential([backbone, keras.layers.Dense(3)])
    training.train_low_rank(model, 2)
    assert any("lora_kernel_a" in path for path in paths_of(model))


def test_low_rank_updates_freeze_the_weights_of_a_block_itself():
    model = catalogue.make_model("res_mlp")
    training.train_low_rank(model, 2)
    assert {path.split("/")[-1] for path in paths_of(model)} == {
        "lora_kernel_a", "lora_kernel_b", "kernel", "bias",
    }  # fmt: skip
    assert paths_of(keras.models.clone_model(model)) == paths_of(model)


def test_what_cannot_be_trained_is_refused():
    backbone = seeded_vit(include_top=False, classes=None)
    trained = paths_of(backbone)
    with pytest.raises(ValueError, match="must have a head"):
        training.train_head_only(backbone)
    assert paths_of(backbone) == trained
    frozen = keras.Sequential([seeded_vit()])
    frozen.trainable = False
    with pytest.raises(ValueError, match="in a model that is frozen"):
        training.train_head_only(frozen)
    with pytest.raises(
        ValueError, match="`rank` must be an integer, at least 1"
    ):
        training.train_low_rank(seeded_vit(), 0)
    inputs = keras.Input((4,))
    dense = keras.Model(inputs, keras.layers.Dense(2, name="head")(inputs))
    with pytest.raises(ValueError, match="must be a model of keras_vit"):
        training.train_low_rank(dense, 2)
