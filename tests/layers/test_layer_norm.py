"""Layer normalisation with fewer passes under JAX."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers.keras_layers import LayerNorm

pytestmark = pytest.mark.backend("jax")


def make(layer_class, dtype):
    layer = layer_class(epsilon=1e-6, dtype=dtype)
    layer.build((None, 64))
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.normal(size=64))
    return layer


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_results_and_gradients_are_those_of_keras(dtype):
    import jax

    # A mean of ten deviations.
    rng = np.random.default_rng(1)
    x = (10 + rng.normal(size=(8, 64))).astype("float32")
    weights = rng.normal(size=(8, 64)).astype("float32")
    found = []
    for layer_class in (LayerNorm, keras.layers.LayerNormalization):
        layer = make(layer_class, dtype)

        def loss(x, layer=layer):
            return ops.sum(weights * ops.cast(layer(x), "float32"))

        found.append((ops.cast(layer(x), "float32"), jax.grad(loss)(x)))
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    for ours, keras_own in zip(*found, strict=True):
        scale = float(ops.max(ops.abs(keras_own)))
        assert scale > 1
        np.testing.assert_allclose(
            ours, keras_own, rtol=0, atol=tolerance * scale
        )


def test_equal_values_become_the_bias_in_bfloat16():
    layer = make(LayerNorm, "bfloat16")
    # Their mean and mean square are rounded; the difference may be negative.
    found = layer(ops.cast(np.full((3, 64), 100.1), "bfloat16"))
    expected = ops.broadcast_to(layer.beta, (3, 64))
    np.testing.assert_array_equal(
        ops.cast(found, "float32"), ops.cast(expected, "float32")
    )
