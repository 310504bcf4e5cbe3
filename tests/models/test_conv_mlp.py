"""ConvMLP: its checkpoints' names."""

import catalogue
import numpy as np
import pytest
from functional import check_authors_names
from keras import ops

from keras_vit.models import conv_mlp

pytestmark = pytest.mark.backend("torch")


def test_the_depthwise_convolution_has_no_residual():
    block = conv_mlp.ConvMLPBlock(mlp_ratio=2)
    block.build((None, 4, 5, 6))
    block.connect.kernel.assign(np.zeros((3, 3, 6, 1)))
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 6)).astype("float32")
    y = ops.convert_to_numpy(block(x))
    np.testing.assert_array_equal(y, np.broadcast_to(y[:1, :1, :1], y.shape))


def test_checkpoints_have_the_authors_names(tmp_path):
    check_authors_names(
        catalogue.make_model("conv mlp"),
        tmp_path,
        {
            "tokenizer.block.0.weight": (4, 3, 3, 3),
            "tokenizer.block.1.running_var": (4,),
            "tokenizer.block.6.weight": (8, 4, 3, 3),
            "conv_stages.conv_blocks.0.0.weight": (8, 8, 1, 1),
            "conv_stages.conv_blocks.0.7.num_batches_tracked": (),
            "conv_stages.downsample.bias": (8,),
            "stages.0.blocks.0.channel_mlp1.fc1.weight": (16, 8),
            "stages.0.blocks.0.connect.weight": (8, 1, 3, 3),
            "stages.0.blocks.0.connect_norm.weight": (8,),
            "stages.0.blocks.0.channel_mlp2.fc2.weight": (8, 16),
            "stages.0.downsample_mlp.downsample.weight": (12, 8, 3, 3),
            "norm.weight": (12,),
            "head.bias": (5,),
        },
    )
