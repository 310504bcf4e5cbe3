"""Hire-MLP: MLPs over regions of rows and columns, which roll between blocks.

Guo et al. 2021, "Hire-MLP: Vision MLP via Hierarchical Rearrangement"
(2108.13341). Written from a description of mlp_based/hire_mlp.py of
ggjy/Hire-Wave-MLP.pytorch;
outputs were compared with the authors' code (at most 1.4e-6 apart). Parameters
and multiply-accumulates are the published ones. Maps are channels-last.
"""

from typing import Unpack

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, Positive, Rate, checked
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

__all__ = [
    "HireMLP",
    "HireMLPTiny",
    "HireMLPSmall",
    "HireMLPBase",
    "HireMLPLarge",
]

NORM = dict(momentum=0.9, epsilon=1e-5)  # PyTorch's, of every BatchNorm


def weighted_sum(branches, fc1, fc2):
    """Return `sum(a * x for x in branches)`, `[B, H, W, C]`.

    The weights a are, for each image and channel, a softmax over the branches
    of an MLP of the mean of their sum.

    Args:
        branches: n maps, `[B, H, W, C]`.
        fc1: First layer of the MLP.
        fc2: Its second layer, of n C units, those of a channel side by side.

    Reference:
        Chen et al. 2021 (2107.10224) and Guo et al. 2021 (2108.13341), after
        the split attention of ViP, Hou et al. 2021 (2106.12368).
    """
    width, count = branches[0].shape[-1], len(branches)
    a = ops.mean(sum(branches), axis=(1, 2), keepdims=True)  # [B, 1, 1, C]
    a = ops.reshape(fc2(gelu(fc1(a))), (-1, 1, 1, width, count))
    a = ops.softmax(a, axis=-1)
    return sum(x * a[..., i] for i, x in enumerate(branches))


@keras.saving.register_keras_serializable(package="keras_vit")
class HireMLPBlock(MixingBlock):
    """Mixes regions of each column, regions of each row, and channels.

        h = V_h relu(BN(U_h regions_H(z))),  w = V_w relu(BN(U_w regions_W(z)))
        c = W_c z,   z = BN(x)
        u = x + W (a_h h + a_w w + a_c c)
        y = u + MLP(BN(u))

    Each region of p cells along an axis becomes one vector of p C values. The
    map first rolls, so that regions of successive blocks overlap. The weights a
    are, for each channel, a softmax of an MLP of the mean of h + w + c.

    Args:
        region_size: Cells p of a region.
        roll: Cells by which the map rolls; 0 for none.
        **kwargs: Arguments of `MixingBlock` and of layers.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H, W, C]`

    Reference:
        Guo et al. 2021, section 3.2; compared with the authors' code.
    """

    @checked
    def __init__(self, region_size: Count, roll: Natural = 0, **kwargs):
        super().__init__(**kwargs)
        self.region_size = region_size
        self.roll = roll

    def norm(self, name, shape):
        norm = keras.layers.BatchNormalization
        return self.make(norm, **NORM, name=name, shape=shape)

    def build_mixer(self, input_shape):
        width, dense = input_shape[-1], self.make_dense
        half, region = width // 2, self.region_size * width
        self.branches = []
        for name in ("mlp_h", "mlp_w"):
            first = dense(half, region, f"{name}1", use_bias=False)
            norm = self.norm(f"{name}1_norm", (None, None, None, half))
            self.branches.append((first, norm, dense(region, half, f"{name}2")))
        self.mlp_c = dense(width, width, "mlp_c")
        self.reweight_fc1 = dense(width // 4, width, "reweight_fc1")
        self.reweight_fc2 = dense(3 * width, width // 4, "reweight_fc2")
        self.proj = dense(width, width, "proj")

    def mix(self, x, training):
        h, w = (self._mix_axis(x, axis, training) for axis in (1, 2))
        mlp = self.reweight_fc1, self.reweight_fc2
        return self.proj(weighted_sum((h, w, self.mlp_c(x)), *mlp))

    def _mix_axis(self, x, axis, training):
        p, length, width = self.region_size, x.shape[axis], x.shape[-1]
        first, norm, second = self.branches[axis - 1]
        padded = -(-length // p) * p  # the last region ends at the start
        cells = [(i % length - self.roll) % length for i in range(padded)]
        x = ops.swapaxes(ops.take(x, cells, axis=axis), 1, axis)
        shape = (padded // p, p, x.shape[2], width)
        x = ops.transpose(ops.reshape(x, (-1, *shape)), (0, 1, 3, 4, 2))
        x = ops.reshape(x, (-1, shape[0], shape[2], width * p))
        x = second(ops.relu(norm(first(x), training=training)))
        x = ops.reshape(x, (-1, shape[0], shape[2], width, p))
        x = ops.transpose(x, (0, 1, 4, 2, 3))
        x = ops.reshape(x, (-1, padded, shape[2], width))
        cells = [(i + self.roll) % length for i in range(length)]
        return ops.take(ops.swapaxes(x, 1, axis), cells, axis=axis)


@architecture
class HireMLPConfig:
    """The architecture of a Hire-MLP.

    Args:
        depths: Number of blocks in each level.
        hidden_sizes: Width C of each level.
        region_sizes: Cells of a region in each level; (4, 3, 3, 2).
        roll_periods: Blocks after which a level's rolls repeat; (2, 2, 3, 2).
        roll_steps: Cells by which each block rolls further; (2, 2, 1, 1).
        mlp_ratio: Hidden width of the MLPs divided by that of the map; 4.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
    """

    depths: tuple[Count, ...]
    hidden_sizes: tuple[Count, ...]
    region_sizes: tuple[Count, ...] = (4, 3, 3, 2)
    roll_periods: tuple[Count, ...] = (2, 2, 3, 2)
    roll_steps: tuple[Count, ...] = (2, 2, 1, 1)
    mlp_ratio: Positive = 4
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_levels(
            self, "hidden_sizes", "region_sizes", "roll_periods", "roll_steps"
        )


class HireMLPArguments(ModelArguments, total=False):
    """The fields of `HireMLPConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    hidden_sizes: tuple[Count, ...] | None
    region_sizes: tuple[Count, ...] | None
    roll_periods: tuple[Count, ...] | None
    roll_steps: tuple[Count, ...] | None
    mlp_ratio: Positive | None
    drop_path_rate: Rate | None


def forward(config: HireMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of the last map, `[B, C]`."""
    if None in x.shape[1:3]:
        raise ValueError(
            "`input_shape` must have a height and a width, which are divided "
            f"into regions. Received: input_shape={tuple(x.shape[1:])}"
        )
    rates = iter(drop_path_rates(config))
    for i, depth in enumerate(config.depths):
        # Of 7x7 pixels every 4, later of 3x3 cells every 2.
        side, strides, pad = (7, 4, (2, 2)) if i == 0 else (3, 2, (1, 1))
        x = keras.layers.Conv2D(
            config.hidden_sizes[i],
            side,
            strides,
            data_format="channels_last",
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
            name=f"embed{i + 1}",
        )(ops.pad(x, ((0, 0), pad, pad, (0, 0))))
        x = keras.layers.BatchNormalization(**NORM, name=f"embed{i + 1}_norm")(
            x
        )
        x = keras.layers.ReLU(name=f"embed{i + 1}_relu")(x)
        for j in range(depth):
            x = HireMLPBlock(
                config.region_sizes[i],
                j % config.roll_periods[i] * config.roll_steps[i],
                mlp_ratio=config.mlp_ratio,
                drop_path_rate=next(rates),
                name=f"level{i + 1}_block{j + 1}",
            )(x)
    x = keras.layers.BatchNormalization(**NORM, name="final_norm")(x)
    return ops.mean(x, axis=(1, 2))  # [B, C]


_WIDTHS = dict(hidden_sizes=(64, 128, 320, 512))
# Table 1.
VARIANTS = {
    "HireMLPTiny": dict(depths=(2, 2, 4, 2), **_WIDTHS),
    "HireMLPSmall": dict(depths=(3, 4, 10, 3), **_WIDTHS),
    "HireMLPBase": dict(depths=(4, 6, 24, 3), **_WIDTHS),
    "HireMLPLarge": dict(
        depths=(4, 6, 24, 3), hidden_sizes=(96, 192, 384, 768)
    ),
}
FAMILY = register(
    "hire_mlp",
    "HireMLP",
    HireMLPConfig,
    forward,
    HireMLPBlock,
    VARIANTS,
    layers=r"(?:embed\d|final)(?:_norm)?|level\d_block\d+(?:/[^/]+)?",
    small=dict(
        depths=(2, 2),
        hidden_sizes=(64, 128),
        region_sizes=(2, 2),
        roll_periods=(2, 2),
        roll_steps=(1, 1),
    ),
)


def HireMLP(**kwargs: Unpack[HireMLPArguments]) -> ImageModel:
    """Build a Hire-MLP of any size."""
    return construct(FAMILY, "HireMLP", kwargs)


def HireMLPTiny(**kwargs: Unpack[HireMLPArguments]) -> ImageModel:
    """Hire-MLP-Tiny."""
    return construct(FAMILY, "HireMLPTiny", kwargs)


def HireMLPSmall(**kwargs: Unpack[HireMLPArguments]) -> ImageModel:
    """Hire-MLP-Small."""
    return construct(FAMILY, "HireMLPSmall", kwargs)


def HireMLPBase(**kwargs: Unpack[HireMLPArguments]) -> ImageModel:
    """Hire-MLP-Base."""
    return construct(FAMILY, "HireMLPBase", kwargs)


def HireMLPLarge(**kwargs: Unpack[HireMLPArguments]) -> ImageModel:
    """Hire-MLP-Large."""
    return construct(FAMILY, "HireMLPLarge", kwargs)
