"""Group normalisation with a stable variance."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers


@pytest.mark.parametrize("shape", [(4, 1, 1, 64), (2, 5, 3, 64), (2, 7, 64)])
def test_groups_of_large_and_nearly_equal_values_are_normalised(shape):
    rng = np.random.default_rng(0)
    x = (30 + 0.1 * rng.normal(size=shape)).astype("float32")
    layer = layers.GroupNorm(32, epsilon=1e-6)
    layer.build(shape)
    gamma, beta = rng.normal(size=(2, 64)).astype("float32")
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    grouped = x.astype("float64").reshape(len(x), -1, 32, 2)
    centred = grouped - grouped.mean(axis=(1, 3), keepdims=True)
    variance = np.square(centred).mean(axis=(1, 3), keepdims=True)
    expected = (centred / np.sqrt(variance + 1e-6)).reshape(shape)
    expected = expected * gamma + beta
    found = ops.convert_to_numpy(layer(x))
    # 2e-6 lie between two float32 numbers at 30; close pairs are divided by
    # deviations below 1e-3.
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_statistics_are_float32_with_narrow_inputs():
    layer = layers.GroupNorm(2, dtype="mixed_bfloat16")
    x = ops.cast(np.full((1, 2, 2, 4), 3e4), "bfloat16")
    found = layer(x)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    # Numbers of float32 near 3e4 / sqrt(1e-3) are 0.06 apart.
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(found, "float32")), 0, atol=0.06
    )
