"""AS-MLP: features move along the axes, and MLPs mix channels alone.

Lian et al. 2021, "AS-MLP: An Axial Shifted MLP Architecture for Vision"
(2107.08391). Written from a description of models/as_mlp.py of svip-lab/AS-MLP;
outputs were compared with the authors' code (at most 1.4e-6 apart). Parameters
and multiply-accumulates are the published ones. What differs: maps are
channels-last.
"""

from typing import Annotated, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Positive, Rate, as_pair, checked
from keras_vit.layers.keras_layers import uniform
from keras_vit.layers.mixing_block import MixingBlock
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import (
    architecture,
    check_levels,
    drop_path_rates,
    register,
)
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.linear import gelu

__all__ = ["ASMLP", "ASMLPT", "ASMLPS", "ASMLPB"]

Odd = Annotated[int, "odd and positive", lambda n: n > 0 and n % 2]
EPSILON = 1e-5  # of every norm, PyTorch's default


def axial_shift(x, axis: int, shift_size: int):
    """Shift groups of channels along an axis by -s/2, ..., s/2 cells.

    Args:
        x: A map, `[B, H, W, C]`, with zeros around it.
        axis: 1 for columns of the map, 2 for rows.
        shift_size: Number s of groups, odd.
    """
    pad, width = shift_size // 2, x.shape[-1]
    group = -(-width // shift_size)
    padded = ops.pad(x, [(pad * (i == axis),) * 2 for i in range(4)])
    shifted = []
    for g, channel in enumerate(range(0, width, group)):
        start = 2 * pad - g  # the output at p is the input at p - g + pad
        where = [slice(None)] * 3 + [slice(channel, channel + group)]
        where[axis] = slice(start, (start - 2 * pad) or None)
        shifted.append(padded[tuple(where)])
    return ops.concatenate(shifted, axis=-1)


@keras.saving.register_keras_serializable(package="keras_vit")
class ASMLPBlock(MixingBlock):
    """Mixes each cell with its neighbours in its row and in its column.

        z = gelu(norm(W_1 norm(x)))
        u = x + W_3 norm(gelu(W_h shift_h(z)) + gelu(W_v shift_v(z)))
        y = u + MLP(norm(u))       with norms over all channels and cells

    Args:
        shift_size: Cells that a cell sees along each axis, odd.
        **kwargs: Arguments of `MixingBlock` and of layers.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`

    Reference:
        Lian et al. 2021, section 3.2; compared with the authors' code.
    """

    @checked
    def __init__(self, shift_size: Odd = 5, **kwargs):
        super().__init__(**kwargs)
        self.shift_size = shift_size

    def norm(self, name, shape):
        norm = layers.GroupNorm
        return self.make(norm, 1, epsilon=EPSILON, name=name, shape=shape)

    def initializers(self, fan_in):
        return dict(
            kernel_initializer=uniform(fan_in), bias_initializer=uniform(fan_in)
        )

    def build_mixer(self, input_shape):
        width = input_shape[-1]
        self.shift_norm1, self.shift_norm2 = (
            self.norm(f"axial_shift_norm{n}", input_shape) for n in (1, 2)
        )
        self.conv1, self.conv_row, self.conv_column, self.conv3 = (
            self.make_dense(width, width, f"axial_shift_conv{n}")
            for n in ("1", "2_1", "2_2", "3")
        )

    def mix(self, x, training):
        x = gelu(self.shift_norm1(self.conv1(x)))
        along_row = axial_shift(x, 2, self.shift_size)
        along_column = axial_shift(x, 1, self.shift_size)
        row, column = self.conv_row(along_row), self.conv_column(along_column)
        return self.conv3(self.shift_norm2(gelu(row) + gelu(column)))


@architecture
class ASMLPConfig:
    """The architecture of an AS-MLP.

    Args:
        depths: Number of blocks in each level.
        hidden_sizes: Width D of each level.
        patch_size: Pixels per side of a patch; 4.
        shift_size: Cells that a cell sees along each axis, odd; 5.
        mlp_ratio: Hidden width of the MLPs divided by that of the map; 4.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
    """

    depths: tuple[Count, ...]
    hidden_sizes: tuple[Count, ...]
    patch_size: Pair = 4
    shift_size: Odd = 5
    mlp_ratio: Positive = 4
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_levels(self, "hidden_sizes")


class ASMLPArguments(ModelArguments, total=False):
    """The fields of `ASMLPConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    hidden_sizes: tuple[Count, ...] | None
    patch_size: Pair | None
    shift_size: Odd | None
    mlp_ratio: Positive | None
    drop_path_rate: Rate | None


def forward(config: ASMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of the last map, `[B, D]`."""
    patch = as_pair(config.patch_size)
    multiple = [n * 2 ** (len(config.depths) - 1) for n in patch]
    if any(n and n % m for n, m in zip(x.shape[1:3], multiple, strict=True)):
        raise ValueError(
            "`input_shape` must have a height and a width that are multiples "
            f"of {multiple}. Received: input_shape={tuple(x.shape[1:])}"
        )
    pixels = patch[0] * patch[1] * x.shape[-1]
    x = keras.layers.Conv2D(
        config.hidden_sizes[0],
        patch,
        patch,
        data_format="channels_last",
        kernel_initializer=uniform(pixels),
        bias_initializer=uniform(pixels),
        name="stem",
    )(x)
    x = layers.GroupNorm(1, epsilon=EPSILON, name="stem_norm")(x)
    rates = iter(drop_path_rates(config))
    for i, depth in enumerate(config.depths, 1):
        if i > 1:  # merge patches of 2x2 cells
            parts = [x[:, row::2, col::2] for col in (0, 1) for row in (0, 1)]
            x = ops.concatenate(parts, axis=-1)  # [B, H / 2, W / 2, 4 D]
            x = layers.GroupNorm(1, epsilon=EPSILON, name=f"merge{i}_norm")(x)
            x = keras.layers.Dense(
                config.hidden_sizes[i - 1],
                use_bias=False,
                kernel_initializer=uniform(x.shape[-1]),
                name=f"merge{i}",
            )(x)
        for j in range(1, depth + 1):
            x = ASMLPBlock(
                config.shift_size,
                mlp_ratio=config.mlp_ratio,
                drop_path_rate=next(rates),
                name=f"stage{i}_block{j}",
            )(x)
    x = layers.GroupNorm(1, epsilon=EPSILON, name="final_norm")(x)
    return ops.mean(x, axis=(1, 2))  # [B, D]


# Table 1.
VARIANTS = {
    "ASMLPT": dict(depths=(2, 2, 6, 2), hidden_sizes=(96, 192, 384, 768)),
    "ASMLPS": dict(depths=(2, 2, 18, 2), hidden_sizes=(96, 192, 384, 768)),
    "ASMLPB": dict(depths=(2, 2, 18, 2), hidden_sizes=(128, 256, 512, 1024)),
}
FAMILY = register(
    "as_mlp",
    "ASMLP",
    ASMLPConfig,
    forward,
    ASMLPBlock,
    VARIANTS,
    layers=r"(?:stem|merge\d|final)(?:_norm)?|stage\d_block\d+(?:/[^/]+)?",
    small=dict(depths=(4,), hidden_sizes=(96,)),
)


def ASMLP(**kwargs: Unpack[ASMLPArguments]) -> ImageModel:
    """Build an AS-MLP of any size."""
    return construct(FAMILY, "ASMLP", kwargs)


def ASMLPT(**kwargs: Unpack[ASMLPArguments]) -> ImageModel:
    """AS-MLP-T."""
    return construct(FAMILY, "ASMLPT", kwargs)


def ASMLPS(**kwargs: Unpack[ASMLPArguments]) -> ImageModel:
    """AS-MLP-S."""
    return construct(FAMILY, "ASMLPS", kwargs)


def ASMLPB(**kwargs: Unpack[ASMLPArguments]) -> ImageModel:
    """AS-MLP-B."""
    return construct(FAMILY, "ASMLPB", kwargs)
