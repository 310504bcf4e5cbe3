"""Hire-MLP: its regions, its checkpoints' names."""

import catalogue
import keras
import numpy as np
import pytest
from functional import check_authors_names
from keras import ops

from keras_vit.models import hire_mlp

pytestmark = pytest.mark.backend("torch")


def test_blocks_of_a_level_roll_further_until_the_period_ends():
    model = catalogue.make_model(
        "hire mlp",
        depths=(3, 4),
        region_sizes=(2, 3),
        roll_periods=(2, 3),
        roll_steps=(2, 1),
        remat=False,
    )
    assert [b.roll for b in model.blocks] == [0, 2, 0, 0, 1, 2, 0]
    assert [b.region_size for b in model.blocks] == [2] * 3 + [3] * 4


@pytest.mark.parametrize("axis", [1, 2])
def test_a_region_is_rolled_filled_up_and_mixed_as_one_vector(axis):
    block = hire_mlp.HireMLPBlock(region_size=3, roll=1)
    block.build((None, 4, 5, 4))
    rng = np.random.default_rng(0)
    for weight in block.weights:
        weight.assign(rng.uniform(0.5, 1, weight.shape))
    x = rng.normal(size=(2, 4, 5, 4)).astype("float32")
    # As in PyTorch, along the first of two axes, [B, C, H, W].
    y = np.moveaxis(x, (3, axis), (1, 2))
    length = y.shape[2]
    y = np.roll(y, 1, 2)
    y = np.concatenate([y, y[:, :, : -length % 3]], axis=2)
    b, c, height, width = y.shape
    y = y.reshape(b, c, height // 3, 3, width).transpose(0, 2, 4, 1, 3)
    y = y.reshape(b, height // 3, width, 3 * c)
    first, norm, second = block.branches[axis - 1]
    y = second(keras.activations.relu(norm(first(y))))
    y = ops.convert_to_numpy(y).reshape(b, height // 3, width, c, 3)
    y = y.transpose(0, 3, 1, 4, 2).reshape(b, c, height, width)
    y = np.roll(y[:, :, :length], -1, 2)
    found = ops.convert_to_numpy(block._mix_axis(x, axis, False))
    expected = np.moveaxis(y, (1, 2), (3, axis))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_checkpoints_have_the_authors_names(tmp_path):
    check_authors_names(
        catalogue.make_model("hire mlp"),
        tmp_path,
        {
            "patch_embed.proj.weight": (8, 3, 7, 7),
            "patch_embed.norm.running_mean": (8,),
            "network.0.0.norm1.num_batches_tracked": (),
            "network.0.0.attn.mlp_h1.weight": (4, 16, 1, 1),
            "network.0.0.attn.mlp_w1_norm.weight": (4,),
            "network.0.0.attn.mlp_w2.bias": (16,),
            "network.0.0.attn.reweight.fc2.weight": (24, 2, 1, 1),
            "network.0.0.mlp.fc1.weight": (32, 8, 1, 1),
            "network.1.proj.weight": (12, 8, 3, 3),
            "network.2.0.attn.proj.bias": (12,),
            "norm.running_var": (12,),
            "head.weight": (5, 12),
        },
        roll_periods=(2, 2),
        roll_steps=(1, 1),
    )
