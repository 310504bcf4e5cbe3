"""Convolutions of channels-last images and videos."""

import numpy as np
import pytest
from keras import ops

from keras_vit.ops.convolution import conv


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
