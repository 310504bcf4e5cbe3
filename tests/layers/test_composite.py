"""Sublayers follow their layer, through saving, loading and cloning."""

import warnings

import catalogue
import keras
import numpy as np
import pytest
import realistic
from functional import values_of

import keras_vit

pytestmark = pytest.mark.backend("torch")
ON_ALL = pytest.mark.backend("tensorflow", "jax", "torch")

IMAGES = np.random.default_rng(0).uniform(0, 255, (4, 16, 8, 3))
LABELS = np.arange(4) % 3


def make_model(name="token", **arguments):
    return realistic.fill(catalogue.make_model(name, **arguments))


def reload(model, path):
    model.save(path)
    return keras.saving.load_model(path)


def predict(model, images=IMAGES):
    return model.predict(images, verbose=0)


def trainable_paths(model):
    return sorted(w.path for w in model.trainable_weights)


def make_tuned(backbone):
    """A user's own head on a frozen backbone, compiled."""
    backbone.trainable = False
    inputs = keras.Input(backbone.input_shape[1:])
    outputs = keras.layers.Dense(3, name="mine")(backbone(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


@pytest.mark.parametrize("name", ["features", "hybrid"])
def test_a_frozen_backbone_stays_frozen_when_loaded(name, tmp_path):
    backbone = make_model(name, include_top=False)
    images = np.resize(IMAGES, (4, *backbone.input_shape[1:]))
    model = make_tuned(backbone)
    model.fit(images, LABELS, verbose=0)
    again = reload(model, tmp_path / "model.keras")
    assert trainable_paths(again) == trainable_paths(model)
    assert len(trainable_paths(again)) == 2
    # The optimizer continues with its moments.
    for old, new in zip(
        model.optimizer.variables, again.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(old), keras.ops.convert_to_numpy(new)
        )
    before = values_of(again)
    again.fit(images, LABELS, verbose=0)
    after = values_of(again)
    moved = {p for p in before if (before[p] != after[p]).any()}
    assert {path.split("/")[-2] for path in moved} == {"mine"}
    model.fit(images, LABELS, verbose=0)
    for path, value in values_of(model).items():
        np.testing.assert_allclose(value, after[path], atol=1e-6, err_msg=path)


def test_a_clone_is_frozen_where_the_model_is():
    model = make_model()
    model.get_layer("encoderblock_0").trainable = False
    model.get_layer("encoderblock_1").mlp.dense_0.trainable = False
    clone = keras.models.clone_model(model)
    assert trainable_paths(clone) == trainable_paths(model)
    # And a block thaws with its sublayers.
    block = clone.get_layer("encoderblock_0")
    block.trainable = True
    assert len(block.trainable_weights) == len(block.weights)


def test_a_sublayer_frozen_on_its_own_stays_frozen(tmp_path):
    model = make_model("hybrid")
    model.get_layer("resnet").units[0].conv2.trainable = False
    model.get_layer("encoderblock_1").attention.qkv.trainable = False
    again = reload(model, tmp_path / "model.keras")
    assert trainable_paths(again) == trainable_paths(model)
    assert len(trainable_paths(again)) == len(again.weights) - 3


def assert_close(found, expected):
    # Compiled in another order of variables, the last bits may differ.
    atol = 1e-3 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


WEIGHTS_ONLY = keras.quantizers.Int8QuantizationConfig(
    activation_quantizer=None
)


@pytest.mark.parametrize(
    ("mode", "config"),
    [
        pytest.param("int8", None, marks=ON_ALL),
        pytest.param("int4", None, marks=ON_ALL),
        ("float8", None),
        (None, WEIGHTS_ONLY),
        (None, keras.quantizers.Int4QuantizationConfig(block_size=8)),
    ],
)
@pytest.mark.thorough("tensorflow", "jax")
def test_a_quantised_model_loads_as_it_was_saved(mode, config, tmp_path):
    model = make_model(representation_size=12)
    float_outputs = predict(model)
    model.quantize(mode, config=config, filters=keras_vit.layers.quantizable)
    outputs = predict(model)
    difference = np.abs(outputs - float_outputs).max()
    assert 0 < difference < 0.5 * np.abs(float_outputs).max()
    again = reload(model, tmp_path / "model.keras")
    assert {w.path: (w.dtype, tuple(w.shape)) for w in again.weights} == {
        w.path: (w.dtype, tuple(w.shape)) for w in model.weights
    }
    assert_close(predict(again), outputs)
    # The second generation is as good as the first.
    again = reload(again, tmp_path / "again.keras")
    assert_close(predict(again), outputs)
    clone = keras.models.clone_model(model)
    assert sorted(w.path for w in clone.weights) == sorted(
        w.path for w in model.weights
    )


def test_the_head_is_quantised_with_the_rest_and_nothing_warns():
    model = make_model()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*quantize")
        model.quantize("int8", filters=keras_vit.layers.quantizable)
    kernels = [w for w in model.weights if w.path.endswith("/kernel")]
    floats = {w.path for w in kernels if w.dtype != "int8"}
    assert floats == {"embedding/kernel"}
    assert model.get_layer("head").kernel.dtype == "int8"
