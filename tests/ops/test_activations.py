"""The activations of MLPs."""

import math

import numpy as np
import pytest
from keras import ops

from keras_vit.layers import Rescaling
from keras_vit.ops.linear import gelu


@pytest.mark.backend("tensorflow")
def test_constants_of_float64_are_not_those_of_float32():
    x = np.linspace(-4, 4, 9)[None]
    scaled = Rescaling(0.1, 0.7, dtype="float64")(x)
    np.testing.assert_allclose(scaled, x * 0.1 + 0.7, rtol=1e-14)
    expected = [v / 2 * (1 + math.erf(v / 2**0.5)) for v in x[0]]
    found = gelu(ops.convert_to_tensor(x[0], "float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
