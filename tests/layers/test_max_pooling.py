"""Max-pooling of channels-last images."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers.keras_layers import MaxPooling2D

pytestmark = pytest.mark.backend("torch")


@pytest.mark.parametrize(
    ("size", "padding"), [((6, 8), "same"), ((7, 5), "same"), ((7, 6), "valid")]
)
def test_results_and_gradients_are_those_of_keras(size, padding):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, *size, 3)).astype("float32")
    found = []
    for pooling in (MaxPooling2D, keras.layers.MaxPooling2D):
        x = ops.convert_to_tensor(images).requires_grad_()
        layer = pooling(3, 2, padding, data_format="channels_last")
        y = layer(x)
        y.square().sum().backward()
        found.append((y.detach(), x.grad))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
