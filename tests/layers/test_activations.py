"""The activations of MLPs."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers.activations import gelu_tanh


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 3e-5), ("bfloat16", 0.05)]
)
def test_gelu_and_its_gradients_are_those_of_keras(dtype, tolerance):
    import tensorflow as tf

    x = ops.cast(np.linspace(-8, 8, 801), dtype)
    found = []
    for function in (gelu_tanh, ops.gelu):
        with (
            tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward,
            tf.GradientTape() as outer,
        ):
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            first = inner.gradient(y, x)
        second = outer.gradient(first, x), forward.jvp(first)
        found.append((y, first, forward.jvp(y), *second))
    for ours, theirs in zip(*found, strict=True):
        ours, theirs = (ops.cast(value, "float32") for value in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def test_gelu_takes_symbols():
    x = keras.Input((3,))
    model = keras.Model(x, gelu_tanh(x))
    values = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(values)),
        ops.convert_to_numpy(ops.gelu(values, approximate=True)),
        atol=1e-6,
    )
