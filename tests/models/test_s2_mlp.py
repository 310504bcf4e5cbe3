"""S2-MLP: the size of the known layout, its shifts, its own files."""

import catalogue
import numpy as np
import pytest
from functional import check_size, values_of
from keras import ops

import keras_vit
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


@pytest.mark.backend("torch")
def test_our_own_files_are_read(tmp_path):
    model = catalogue.make_model("s2 mlp")
    model.head.kernel.assign(np.ones((16, 5)))
    model.save(tmp_path / "model.keras")
    again = keras_vit.from_pretrained(
        tmp_path / "model.keras", input_shape=(8, 16, 3)
    )
    assert again.architecture == model.architecture
    for key, value in values_of(again).items():
        np.testing.assert_array_equal(value, values_of(model)[key])
