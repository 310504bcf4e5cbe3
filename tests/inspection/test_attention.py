"""Attention, computed again on demand."""

import keras
import numpy as np
import pytest
import realistic
from catalogue import ENCODERS, make_model
from keras import ops

from keras_vit import inspection

pytestmark = pytest.mark.backend("torch")


def test_models_of_other_families_have_none():
    assert inspection.has_rollout(make_model("token"))
    assert not inspection.has_rollout(make_model("mixer"))


@pytest.mark.parametrize("name", ["token", *ENCODERS])
def test_weights_are_those_the_block_used(name):
    model = realistic.fill(make_model(name))
    x = np.random.default_rng(0).uniform(0, 255, (2, *model.input_shape[1:]))
    weights = inspection.attention_weights(model, x.astype("float32"))[-1]
    block = model.blocks[-1]
    z = keras.Model(model.input, block.input)(x)
    attention = block.attention
    normed = z if block.norm_placement == "after" else block.norm_0(z)
    qkv = ops.convert_to_numpy(attention.qkv(normed))
    value = qkv.reshape(2, weights.shape[-1], 2, 3, -1)[..., 2, :]
    mixed = np.einsum("baij,bjae->biae", weights, value)
    mixed = mixed.reshape(2, weights.shape[-1], -1)
    if attention.qkv_bias == "qv":  # a constant, since weights sum to 1
        mixed = mixed + ops.convert_to_numpy(attention.v_bias)
    if getattr(attention, "norm", None) is not None:
        mixed = attention.norm(mixed)
    np.testing.assert_allclose(
        ops.convert_to_numpy(attention(normed)),
        ops.convert_to_numpy(attention.out(mixed)),
        rtol=1e-4,
        atol=1e-5,
    )


def test_rollout_follows_the_only_path():
    # With uniform attention everywhere all patches count alike.
    model = make_model("token")
    for weight in model.weights:
        if "qkv" in weight.path:
            weight.assign(np.zeros(weight.shape))
    x = np.zeros((1, *model.input_shape[1:]), "float32")
    rollout = inspection.attention_rollout(model, x)
    np.testing.assert_allclose(rollout, 1 / rollout[0].size, rtol=1e-6)


def test_images_of_another_shape_are_refused():
    model = make_model("token")
    shape = model.input_shape[1:]
    for wrong in (shape, (0, *shape), (2, shape[0] + 1, *shape[1:])):
        for function in (
            inspection.attention_rollout,
            inspection.attended_distances,
        ):
            with pytest.raises(ValueError, match="`images` must be a batch"):
                function(model, np.zeros(wrong))
    found = inspection.attention_rollout(model, np.zeros((1, *shape)).tolist())
    assert len(found) == 1


def test_a_model_without_blocks_is_refused():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs), name="plain")
    with pytest.raises(ValueError, match="must be a model of keras_vit.*plain"):
        inspection.attention_weights(model, np.zeros((1, 4)))


def test_a_model_that_is_called_twice_is_refused():
    model = make_model("token")
    x = keras.Input(model.input_shape[1:])
    twice = keras.Model(x, model(x) + model(-x))
    with pytest.raises(ValueError, match="must call 'ViT' once.*2 times"):
        images = np.zeros((1, *model.input_shape[1:]), "float32")
        inspection.attention_weights(twice, images)
