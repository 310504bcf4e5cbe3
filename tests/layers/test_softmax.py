"""The softmax of pooled attention, and its gradient."""

import numpy as np
import pytest
from keras import ops

from keras_vit.layers.softmax import softmax


@pytest.mark.backend("jax")
def test_its_gradient_is_that_of_the_softmax_of_keras():
    import jax

    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(2, 3, 5)).astype("float32")

    def gradient(function):
        return jax.grad(lambda x: ops.sum(weights * function(x)))(x)

    np.testing.assert_array_equal(softmax(x), ops.softmax(x))
    expected = gradient(ops.softmax)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(gradient(softmax), expected, atol=1e-6)
