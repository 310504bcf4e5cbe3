"""Convolutions of channels-last images and videos."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import core
from keras_vit.ops.convolution import conv, sum_of_slices


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("inputs", "kernel", "strides", "padding"),
    [
        ((2, 7, 6, 3), (3, 3, 3, 4), 2, "same"),
        ((2, 6, 6, 3), (2, 2, 3, 4), (2, 1), "valid"),
        ((1, 5, 6, 6, 4), (3, 3, 3, 1, 4), (1, 2, 2), "valid"),
    ],
)
def test_results_are_those_of_keras(inputs, kernel, strides, padding):
    rng = np.random.default_rng(0)
    inputs, kernel = (
        ops.convert_to_tensor(rng.normal(size=shape).astype("float32"))
        for shape in (inputs, kernel)
    )
    found = conv(inputs, kernel, strides, padding)
    expected = ops.conv(
        inputs, kernel, strides, padding, data_format="channels_last"
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert found.is_contiguous()  # no copy waits for the next layer


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("DepthwiseConv2D", dict(kernel_size=3, padding="same")),
        ("DepthwiseConv2D", dict(kernel_size=2, strides=2, depth_multiplier=2)),
        ("DepthwiseConv2D", dict(kernel_size=3, dilation_rate=2)),
        ("Conv2DTranspose", dict(filters=5, kernel_size=2, strides=2)),
    ],
)
def test_layers_are_those_of_keras(name, arguments):
    images = np.random.default_rng(0).normal(size=(2, 7, 6, 4))
    options = dict(
        activation="gelu",
        bias_initializer="normal",
        data_format="channels_last",
    )
    layer = getattr(core, name)(**options, **arguments)
    plain = getattr(keras.layers, name).from_config(layer.get_config())
    plain.build(images.shape)
    found = layer(images)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        *map(ops.convert_to_numpy, (found, plain(images))), rtol=0, atol=1e-5
    )


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("kernel_size", "strides"),
    [
        ((3, 3, 3), (1, 1, 1)),
        ((1, 5, 5), (1, 4, 4)),
        ((3, 3, 3), (2, 8, 1)),
    ],
)
def test_a_sum_over_slices_has_the_gradients_of_a_convolution(
    kernel_size, strides
):
    import jax

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 11, 9, 3)).astype("float32")
    kernel = rng.normal(size=(*kernel_size, 3)).astype("float32")
    axes = zip(x.shape[1:4], kernel_size, strides, strict=True)
    size = tuple((n - k) // s + 1 for n, k, s in axes)
    weights = rng.normal(size=(2, *size, 3)).astype("float32")

    @jax.jit
    def products(x, kernel, weights):
        found, gradients = jax.vjp(
            lambda *args: sum_of_slices(*args, strides, size), x, kernel
        )
        return found, *gradients(weights)

    expected = [np.zeros_like(each) for each in (weights, x, kernel)]
    for tap in np.ndindex(*kernel_size):
        read = (slice(None),) + tuple(
            slice(i, i + s * (m - 1) + 1, s)
            for i, s, m in zip(tap, strides, size, strict=True)
        )
        expected[0] += x[read] * kernel[tap]
        expected[1][read] += weights * kernel[tap]
        expected[2][tap] = np.sum(x[read] * weights, (0, 1, 2, 3))
    found = products(x, kernel, weights)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
