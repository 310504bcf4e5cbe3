"""Convolutions of channels-last images and videos."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import keras_layers
from keras_vit.ops.convolution import conv


@pytest.mark.backend("torch", "jax")
@pytest.mark.parametrize(
    ("inputs", "kernel", "strides", "padding"),
    [
        ((2, 7, 6, 3), (3, 3, 3, 4), 2, "same"),
        ((2, 6, 6, 3), (2, 2, 3, 4), (2, 1), "valid"),
        ((1, 5, 6, 6, 4), (3, 3, 3, 1, 4), (1, 2, 2), "valid"),
        ((2, 8, 13, 12, 3), (3, 7, 5, 3, 4), (2, 4, 2), "valid"),
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
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)
    if keras.backend.backend() == "torch":
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
    layer = getattr(keras_layers, name)(**options, **arguments)
    plain = getattr(keras.layers, name).from_config(layer.get_config())
    plain.build(images.shape)
    found = layer(images)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        *map(ops.convert_to_numpy, (found, plain(images))), rtol=0, atol=1e-5
    )
