"""S2-MLP: its shifts."""

import numpy as np
import pytest
from keras import ops

from keras_vit.models import s2_mlp

pytestmark = pytest.mark.backend("torch")


def test_quarters_of_channels_move_by_one_cell_and_borders_stay():
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 8)).astype("float32")
    expected = x.copy()
    expected[:, 1:, :, :2] = x[:, :-1, :, :2]
    expected[:, :-1, :, 2:4] = x[:, 1:, :, 2:4]
    expected[:, :, 1:, 4:6] = x[:, :, :-1, 4:6]
    expected[:, :, :-1, 6:] = x[:, :, 1:, 6:]
    found = ops.convert_to_numpy(s2_mlp.spatial_shift(x))
    np.testing.assert_array_equal(found, expected)
