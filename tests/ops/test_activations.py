"""The activations of MLPs."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import Rescaling
from keras_vit.ops.activations import gelu, gelu_tanh


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


@pytest.mark.backend("tensorflow")
def test_constants_of_float64_are_not_those_of_float32():
    x = np.linspace(-4, 4, 9)[None]
    scaled = Rescaling(0.1, 0.7, dtype="float64")(x)
    np.testing.assert_allclose(scaled, x * 0.1 + 0.7, rtol=1e-14)
    expected = [v / 2 * (1 + math.erf(v / 2**0.5)) for v in x[0]]
    found = gelu(ops.convert_to_tensor(x[0], "float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gelu_takes_symbols():
    x = keras.Input((3,))
    model = keras.Model(x, gelu_tanh(x))
    values = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(values)),
        ops.convert_to_numpy(ops.gelu(values, approximate=True)),
        atol=1e-6,
    )
