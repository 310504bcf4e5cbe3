"""S2-MLP: the size of the known layout, its shifts, its own files."""

import numpy as np
import pytest
from functional import check_size
from keras import ops

from keras_vit.models import s2_mlp

# With 1000 classes at 224 x 224: parameters, billions of multiply-accumulates.
# Published: 71 M and 14.0, 51 M and 9.7; no known layout has the latter.
SIZES = {
    "S2MLPWide": (72_239_848, 13.99),
    "S2MLPDeep": (53_916_520, 10.46),
}


@pytest.mark.backend("jax")
@pytest.mark.parametrize("variant", s2_mlp.VARIANTS)
def test_parameters_and_operations_are_those_of_the_port(variant):
    check_size(variant, *SIZES[variant])


@pytest.mark.backend("torch")
def test_quarters_of_channels_move_by_one_cell_and_borders_stay():
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 8)).astype("float32")
    expected = x.copy()
    expected[:, 1:, :, :2] = x[:, :-1, :, :2]
    expected[:, :-1, :, 2:4] = x[:, 1:, :, 2:4]
    expected[:, :, 1:, 4:6] = x[:, :, :-1, 4:6]
    expected[:, :, :-1, 6:] = x[:, :, 1:, 6:]
    found = ops.convert_to_numpy(s2_mlp.spatial_shift(x))
    np.testing.assert_array_equal(found, expected)
