"""ConvMLP: convolutions first, then MLPs over channels and depthwise kernels.

Li et al. 2021, "ConvMLP: Hierarchical Convolutional MLPs for Vision"
(2109.04454). Written from a description of src/convmlp.py of
SHI-Labs/Convolutional-MLPs;
outputs were compared with the authors' code (at most 1.4e-6 apart). Parameters
and multiply-accumulates are the published ones. Maps are channels-last.
"""

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Positive, Rate
from keras_vit.layers.keras_layers import DepthwiseConv2D, MaxPooling2D, uniform
from keras_vit.layers.mixing_block import MixingBlock
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, check_levels, register
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.linear import gelu

__all__ = ["ConvMLP", "ConvMLPS", "ConvMLPM", "ConvMLPL"]

EPSILON = 1e-5  # of every norm, PyTorch's default


@keras.saving.register_keras_serializable(package="keras_vit")
class ConvMLPBlock(MixingBlock):
    """Mixes channels, then each cell with its neighbours, then channels.

        u = x + MLP_1(LN(x))
        v = depthwise_3x3(LN(u))
        y = v + MLP_2(LN(v))

    Args:
        **kwargs: Arguments of `MixingBlock` and of layers.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`

    Reference:
        Li et al. 2021, section 3.3; compared with the authors' code.
    """

    def build_mixer(self, input_shape):
        width = input_shape[-1]
        mlp_dim = int(self.mlp_ratio * width)
        self.mlp1_fc1 = self.make_dense(
            mlp_dim, width, "channel_mlp1_fc1", activation=gelu
        )
        self.mlp1_fc2 = self.make_dense(width, mlp_dim, "channel_mlp1_fc2")
        self.connect_norm = self.norm("connect_norm", input_shape)
        self.connect = self.make(
            DepthwiseConv2D,
            3,
            padding="same",
            use_bias=False,
            data_format="channels_last",
            # He's, with the fan-out that PyTorch computes: 9 D.
            depthwise_initializer=keras.initializers.RandomNormal(
                stddev=(2 / (9 * width)) ** 0.5
            ),
            name="connect",
            shape=input_shape,
        )

    def _forward(self, x, training):
        def residual(fc1, fc2, x):
            return self.drop_path(fc2(fc1(x)), training=training)

        x = x + residual(self.mlp1_fc1, self.mlp1_fc2, self.norm1(x))
        x = self.connect(self.connect_norm(x))  # without a residual
        return x + residual(self.fc1, self.fc2, self.norm2(x))


def convolve(x, filters, side, name, strides=1, relu=True):
    """Apply a convolution with PyTorch's padding, then BatchNorm and ReLU.

    Args:
        x: A map, `[B, H, W, C]`.
        filters: Channels of the result.
        side: Cells per side of the kernel.
        name: Name of the convolution, from which the others are named.
        strides: Cells between two windows.
        relu: Whether BatchNorm and ReLU follow; otherwise there is a bias.
    """
    pad = (side // 2,) * 2
    x = keras.layers.Conv2D(
        filters,
        side,
        strides,
        use_bias=not relu,
        data_format="channels_last",
        kernel_initializer=keras.initializers.VarianceScaling(
            2.0, "fan_out", "untruncated_normal"
        ),
        bias_initializer=uniform(side * side * x.shape[-1]),
        name=name,
    )(ops.pad(x, ((0, 0), pad, pad, (0, 0))) if side > 1 else x)
    if not relu:
        return x
    x = keras.layers.BatchNormalization(
        momentum=0.9, epsilon=EPSILON, name=f"{name}_bn"
    )(x)
    return keras.layers.ReLU(name=f"{name}_relu")(x)


@architecture
class ConvMLPConfig:
    """The architecture of a ConvMLP.

    Args:
        depths: Number of blocks in each level of MLPs.
        hidden_sizes: Width D of each level.
        stem_size: Width of the first convolutions; 64.
        num_conv_blocks: Number of bottlenecks before the MLPs; 2.
        mlp_ratio: Width of the MLPs' hidden layer divided by that of the map;
            2.
        drop_path_rate: Stochastic depth of the last block of each level; it
            grows linearly from 0 in the first.
    """

    depths: tuple[Count, ...]
    hidden_sizes: tuple[Count, ...]
    stem_size: Count = 64
    num_conv_blocks: Count = 2
    mlp_ratio: Positive = 2
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_levels(self, "hidden_sizes")


class ConvMLPArguments(ModelArguments, total=False):
    """The fields of `ConvMLPConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    hidden_sizes: tuple[Count, ...] | None
    stem_size: Count | None
    num_conv_blocks: Count | None
    mlp_ratio: Positive | None
    drop_path_rate: Rate | None


def forward(config: ConvMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of the last map, `[B, D]`."""
    half, width = config.stem_size // 2, config.stem_size
    x = convolve(x, half, 3, "tokenizer1", strides=2)
    x = convolve(x, half, 3, "tokenizer2")
    x = convolve(x, width, 3, "tokenizer3")
    # After a ReLU, padding with zeros equals PyTorch's minus infinity.
    x = MaxPooling2D(3, 2, data_format="channels_last", name="tokenizer_pool")(
        ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    )
    for i in range(1, config.num_conv_blocks + 1):
        y = convolve(x, config.hidden_sizes[0], 1, f"conv_block{i}_1")
        y = convolve(y, config.hidden_sizes[0], 3, f"conv_block{i}_2")
        x = x + convolve(y, width, 1, f"conv_block{i}_3")
    for i, depth in enumerate(config.depths, 1):
        x = convolve(
            x, config.hidden_sizes[i - 1], 3, f"down{i}", strides=2, relu=False
        )
        for j, rate in enumerate(np.linspace(0, config.drop_path_rate, depth)):
            x = ConvMLPBlock(
                mlp_ratio=config.mlp_ratio,
                drop_path_rate=float(rate),
                name=f"stage{i}_block{j + 1}",
            )(x)
    x = keras.layers.LayerNormalization(epsilon=EPSILON, name="final_norm")(x)
    return ops.mean(x, axis=(1, 2))  # [B, D]


_SMALL = dict(hidden_sizes=(128, 256, 512), stem_size=64)
# Table 1.
VARIANTS = {
    "ConvMLPS": dict(
        depths=(2, 4, 2), num_conv_blocks=2, mlp_ratio=2, **_SMALL
    ),
    "ConvMLPM": dict(
        depths=(3, 6, 3), num_conv_blocks=3, mlp_ratio=3, **_SMALL
    ),
    "ConvMLPL": dict(
        depths=(4, 8, 3),
        hidden_sizes=(192, 384, 768),
        stem_size=96,
        num_conv_blocks=3,
        mlp_ratio=3,
    ),
}
FAMILY = register(
    "conv_mlp",
    "ConvMLP",
    ConvMLPConfig,
    forward,
    ConvMLPBlock,
    VARIANTS,
    layers=r"(?:tokenizer\d|conv_block\d+_\d|down\d)(?:_bn)?"
    r"|stage\d_block\d+(?:/[^/]+)?|final_norm",
    small=dict(
        depths=(2,), hidden_sizes=(128,), stem_size=64, num_conv_blocks=1
    ),
)


def ConvMLP(**kwargs: Unpack[ConvMLPArguments]) -> ImageModel:
    """Build a ConvMLP of any size."""
    return construct(FAMILY, "ConvMLP", kwargs)


def ConvMLPS(**kwargs: Unpack[ConvMLPArguments]) -> ImageModel:
    """ConvMLP-S."""
    return construct(FAMILY, "ConvMLPS", kwargs)


def ConvMLPM(**kwargs: Unpack[ConvMLPArguments]) -> ImageModel:
    """ConvMLP-M."""
    return construct(FAMILY, "ConvMLPM", kwargs)


def ConvMLPL(**kwargs: Unpack[ConvMLPArguments]) -> ImageModel:
    """ConvMLP-L."""
    return construct(FAMILY, "ConvMLPL", kwargs)
