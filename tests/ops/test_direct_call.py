"""Direct calls do what Keras' calls do."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import MlpBlock, TransformerBlock
from keras_vit.layers.dense import Dense
from keras_vit.ops import direct_call

pytestmark = pytest.mark.backend("torch")
if keras.backend.backend() == "torch":
    import torch


@pytest.fixture
def by_keras(monkeypatch):
    """Lists the names of layers in the order in which Keras calls them."""
    calls = []
    call = keras.layers.Layer.__call__

    def record(layer, *args, **kwargs):
        calls.append(layer.name)
        return call(layer, *args, **kwargs)

    monkeypatch.setattr(keras.layers.Layer, "__call__", record)
    return calls


def tokens(dtype="float32"):
    values = np.random.default_rng(0).normal(size=(2, 5, 8))
    return ops.convert_to_tensor(values, dtype)


def array(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def built(layer):
    layer.build((None, 5, 8))
    return layer


@pytest.mark.parametrize("policy", ["float32", "bfloat16", "mixed_bfloat16"])
def test_a_model_computes_what_it_does_by_keras(policy, by_keras, monkeypatch):
    block = built(TransformerBlock(2, 16, dropout_rate=0.5, dtype=policy))
    x = keras.Input((5, 8), dtype=block.compute_dtype)
    model = keras.Model(x, block(x))
    inputs = tokens(block.compute_dtype)

    def run():
        by_keras.clear()
        keras.utils.set_random_seed(0)
        return [model(inputs, training=t) for t in (False, True)]

    direct = run()
    assert "Dense_0" not in by_keras
    monkeypatch.setattr("keras_vit.ops.direct_call._IS_TORCH", False)
    expected = run()
    assert "Dense_0" in by_keras
    for ours, theirs in zip(direct, expected, strict=True):
        np.testing.assert_array_equal(array(ours), array(theirs))
        assert ours.dtype == theirs.dtype
    assert abs(array(direct[1] - direct[0])).max() > 0  # dropout


def test_training_comes_from_an_outer_call():
    mlp = built(MlpBlock(16, dropout_rate=0.5))

    class Outer(keras.layers.Layer):
        def call(self, inputs):
            return mlp(inputs)

    model, x = keras.Sequential([Outer()]), tokens()
    still = array(mlp(x))
    np.testing.assert_array_equal(array(model(x, training=False)), still)
    assert abs(array(model(x, training=True)) - still).max() > 0


def test_hooks_see_the_call():
    dense, seen = built(Dense(3)), []
    dense.register_forward_hook(lambda layer, inputs, y: seen.append(y.shape))
    dense(tokens())
    assert seen == [(2, 5, 3)]


def test_a_float32_layer_stays_so_within_mixed_precision():
    dense = built(Dense(3, dtype="float32"))

    class Outer(keras.layers.Layer):
        def call(self, inputs):
            return dense(ops.cast(inputs, "float32"))

    found = Outer(dtype="mixed_bfloat16")(tokens())
    rounded = ops.cast(tokens("bfloat16"), "float32")
    np.testing.assert_array_equal(array(found), array(dense(rounded)))


def test_inputs_are_cast():
    assert built(Dense(3))(tokens("float64")).dtype == tokens().dtype


def test_quantised_layers_compute_in_int8():
    dense = built(Dense(64))
    before = dense(tokens())
    dense.quantize("int8")
    after = dense(tokens())
    assert 0 < abs(after - before).max() < 0.1


def test_activity_is_regularised():
    dense = built(Dense(3, activity_regularizer="l2"))
    dense(tokens())
    assert len(dense.losses) == 1


@pytest.mark.parametrize("shape", [(2, 5, 7), (8,)])
def test_inputs_that_do_not_fit_have_keras_error(shape):
    with pytest.raises(ValueError, match="incompatible with the layer"):
        built(Dense(3))(ops.ones(shape))


def test_masks_are_passed_on():
    x = tokens()
    x._keras_mask = ops.ones((2, 5), "bool")
    assert built(Dense(3))(x)._keras_mask is x._keras_mask


def test_a_layer_of_a_remat_scope_is_recomputed(by_keras):
    with keras.RematScope(mode="full"):
        dense = built(Dense(3))
    dense(tokens())
    assert by_keras == [dense.name]


def test_a_layer_is_built_by_its_first_call():
    assert Dense(3)(tokens()).shape == (2, 5, 3)


@pytest.mark.parametrize("private", ["hook", "mask"])
def test_without_a_private_name_keras_calls_all_layers(
    private, by_keras, monkeypatch
):
    block, x = built(TransformerBlock(2, 16)), tokens()
    expected = array(block(x, training=False))
    by_keras.clear()
    if private == "hook":
        monkeypatch.delattr(torch.nn.modules.module, "_has_any_global_hook")
    else:
        monkeypatch.setattr(direct_call, "_KNOWS_MASKS", False)
    found = array(block(x, training=False))
    assert "Dense_0" in by_keras
    np.testing.assert_array_equal(found, expected)
