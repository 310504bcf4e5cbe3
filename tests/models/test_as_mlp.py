"""AS-MLP: its shifts, its checkpoints' names."""

import catalogue
import numpy as np
import pytest
from functional import check_authors_names
from keras import ops

from keras_vit.models import as_mlp

pytestmark = pytest.mark.backend("torch")


@pytest.mark.parametrize("axis", [1, 2])
def test_a_shift_rolls_groups_of_channels_over_zeros(axis):
    x = np.random.default_rng(0).normal(size=(1, 4, 3, 8)).astype("float32")
    pad = [(2 * (i == axis),) * 2 for i in range(4)]
    padded, expected = np.pad(x, pad), []
    for shift, first in zip((-2, -1, 0, 1), range(0, 8, 2), strict=True):
        rolled = np.roll(padded[..., first : first + 2], shift, axis)
        expected.append(np.take(rolled, range(2, 2 + x.shape[axis]), axis))
    found = ops.convert_to_numpy(as_mlp.axial_shift(x, axis, 5))
    np.testing.assert_array_equal(found, np.concatenate(expected, axis=-1))


def test_a_model_of_open_size_takes_images_of_any_size():
    arguments = dict(remat=False, include_preprocessing=False)
    image = np.random.default_rng(0).normal(size=(1, 16, 24, 3))
    fixed = catalogue.make_model("as mlp", input_shape=(16, 24, 3), **arguments)
    open_size = catalogue.make_model(
        "as mlp", input_shape=(None, None, 3), **arguments
    )
    open_size.set_weights(fixed.get_weights())
    np.testing.assert_allclose(
        ops.convert_to_numpy(open_size(image)),
        ops.convert_to_numpy(fixed(image)),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(input_shape=(20, 16, 3)), r"multiples of \[8, 8\]"),
        (dict(shift_size=4), "`shift_size` must be odd"),
        (dict(hidden_sizes=(8,)), "`hidden_sizes` must have a value"),
    ],
)
def test_impossible_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        catalogue.make_model("as mlp", **changes)


def test_checkpoints_have_the_authors_names(tmp_path):
    check_authors_names(
        catalogue.make_model("as mlp"),
        tmp_path,
        {
            "patch_embed.proj.weight": (8, 3, 4, 4),
            "patch_embed.norm.weight": (8,),
            "layers.0.blocks.0.norm1.bias": (8,),
            "layers.0.blocks.0.axial_shift.conv2_1.weight": (8, 8, 1, 1),
            "layers.0.blocks.0.axial_shift.norm2.weight": (8,),
            "layers.0.blocks.0.mlp.fc1.weight": (32, 8, 1, 1),
            "layers.0.downsample.norm.weight": (32,),
            "layers.0.downsample.reduction.weight": (12, 32, 1, 1),
            "norm.bias": (12,),
            "head.weight": (5, 12),
        },
        shift_size=5,
    )
