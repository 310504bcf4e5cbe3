"""CycleMLP: a pyramid whose dense layers read each channel at another cell.

Chen et al. 2021, "CycleMLP: A MLP-like Architecture for Dense Prediction"
(2107.10224), checked against cycle_mlp.py of ShoufaChen/CycleMLP.
"""

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Rate, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import ResidualBlock
from keras_vit.layers.keras_layers import uniform
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import (
    architecture,
    check_levels,
    drop_path_rates,
    register,
)
from keras_vit.models.hire_mlp import weighted_sum
from keras_vit.models.image_model import ImageModel

__all__ = [
    "CycleMLP",
    "CycleMLPB1",
    "CycleMLPB2",
    "CycleMLPB3",
    "CycleMLPB4",
    "CycleMLPB5",
]

BRANCHES = 3  # along rows, along columns, and without displacement


def displaced(x, axis):
    """Return a map in which each channel is read at another cell.

    Channels 0, 1, 2, 3, ... at cell p are those of the cells p, p + 1, p - 1,
    p, ... along the axis; zero outside the map.
    """
    padding = [(0, 0)] * 4
    padding[axis] = (1, 1)
    padded = ops.swapaxes(ops.pad(x, padding), 0, axis)
    after = ops.swapaxes(padded[2:], 0, axis)
    before = ops.swapaxes(padded[:-2], 0, axis)
    place = np.arange(x.shape[-1]) % 3
    return ops.where(place == 0, x, ops.where(place == 1, after, before))


@keras.saving.register_keras_serializable(package="keras_vit")
class CycleMLPBlock(ResidualBlock):
    """Mixes neighbours along rows and along columns, then channels.

        h, w = W_h cycle_rows(z), W_w cycle_columns(z),   c = W_c z,   z = LN(x)
        u = x + W (a_h h + a_w w + a_c c)
        y = u + MLP(LN(u))

    `cycle` is `displaced`. The weights a are, for each channel, a softmax of an
    MLP of the mean of h + w + c.

    Args:
        mlp_dim: Width of the MLP's hidden layer.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H, W, C]`

    Reference:
        Chen et al. 2021, section 3.2; `CycleBlock` in cycle_mlp.py.
    """

    SHARDED = mlp_block.sharded("mlp")

    @checked
    def __init__(self, mlp_dim: Count, **kwargs):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim

    def build(self, input_shape):
        width = input_shape[-1]

        def dense(name, units=width, channels=width, **kwargs):
            shape = (*input_shape[:-1], channels)
            return mlp_block.dense(self, units, name, shape=shape, **kwargs)

        self.norm1 = self.make_norm("norm1", input_shape)
        self.mlp_c = dense("mlp_c", use_bias=False)
        self.sfc_h = dense("sfc_h")
        self.sfc_w = dense("sfc_w")
        self.reweight_fc1 = dense("reweight_fc1", width // 4)
        self.reweight_fc2 = dense("reweight_fc2", BRANCHES * width, width // 4)
        self.proj = dense("proj")
        self.norm2 = self.make_norm("norm2", input_shape)
        self.mlp = self.make(
            layers.DeiTMlp, self.mlp_dim, name="mlp", shape=input_shape
        )
        self.drop_path = self.make_drop_path(self.drop_path_rate, 4)

    def _forward(self, inputs, training):
        z = self.norm1(inputs)
        h, w = self.sfc_h(displaced(z, 2)), self.sfc_w(displaced(z, 1))
        mlp = self.reweight_fc1, self.reweight_fc2
        x = self.proj(weighted_sum((h, w, self.mlp_c(z)), *mlp))
        u = inputs + self.drop_path(x, training=training)
        return u + self.drop_path(self.mlp(self.norm2(u)), training=training)


@architecture
class CycleMLPConfig:
    """The architecture of a CycleMLP (Table 1).

    Args:
        depths: Number of blocks in each level.
        hidden_sizes: Width C of each level.
        mlp_ratios: Hidden width of the MLPs in each level, divided by C.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
    """

    depths: tuple[Count, ...]
    hidden_sizes: tuple[Count, ...]
    mlp_ratios: tuple[Count, ...]
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_levels(self, "hidden_sizes", "mlp_ratios")


class CycleMLPArguments(ModelArguments, total=False):
    """The fields of `CycleMLPConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    hidden_sizes: tuple[Count, ...] | None
    mlp_ratios: tuple[Count, ...] | None
    drop_path_rate: Rate | None


def forward(config: CycleMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of the last map, `[B, C]`."""
    rates = iter(drop_path_rates(config))
    for i, depth in enumerate(config.depths):
        side, strides, pad = (3, 2, (1, 1)) if i else (7, 4, (2, 2))
        pixels = side * side * x.shape[-1]
        x = keras.layers.Conv2D(
            *(config.hidden_sizes[i], side, strides),
            data_format="channels_last",
            kernel_initializer=uniform(pixels),
            bias_initializer=uniform(pixels),
            name=f"stage{i}_embedding",
        )(ops.pad(x, ((0, 0), pad, pad, (0, 0))))
        for j in range(depth):
            x = CycleMLPBlock(
                config.mlp_ratios[i] * config.hidden_sizes[i],
                drop_path_rate=next(rates),
                name=f"stage{i}_block{j}",
            )(x)  # [B, H / 4 / 2^i, W / 4 / 2^i, C]
    x = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    return ops.mean(x, axis=(1, 2))  # [B, C]


_FIRST = dict(hidden_sizes=(64, 128, 320, 512))
_WIDE = dict(hidden_sizes=(96, 192, 384, 768))
_FOURS, _EIGHTS = dict(mlp_ratios=(4, 4, 4, 4)), dict(mlp_ratios=(8, 8, 4, 4))
# Table 1.
VARIANTS = {
    "CycleMLPB1": dict(depths=(2, 2, 4, 2), **_FIRST, **_FOURS),
    "CycleMLPB2": dict(depths=(2, 3, 10, 3), **_FIRST, **_FOURS),
    "CycleMLPB3": dict(depths=(3, 4, 18, 3), **_FIRST, **_EIGHTS),
    "CycleMLPB4": dict(depths=(3, 8, 27, 3), **_FIRST, **_EIGHTS),
    "CycleMLPB5": dict(depths=(3, 4, 24, 3), **_WIDE, **_FOURS),
}
FAMILY = register(
    "cycle_mlp",
    "CycleMLP",
    CycleMLPConfig,
    forward,
    CycleMLPBlock,
    VARIANTS,
    layers=r"stage\d_embedding|stage\d_block\d+(?:/[^/]+)?|norm",
    small=dict(depths=(2, 2), hidden_sizes=(48, 96), mlp_ratios=(2, 2)),
)


def CycleMLP(**kwargs: Unpack[CycleMLPArguments]) -> ImageModel:
    """Build a CycleMLP of any size."""
    return construct(FAMILY, "CycleMLP", kwargs)


def CycleMLPB1(**kwargs: Unpack[CycleMLPArguments]) -> ImageModel:
    """CycleMLP-B1 of Table 1."""
    return construct(FAMILY, "CycleMLPB1", kwargs)


def CycleMLPB2(**kwargs: Unpack[CycleMLPArguments]) -> ImageModel:
    """CycleMLP-B2 of Table 1."""
    return construct(FAMILY, "CycleMLPB2", kwargs)


def CycleMLPB3(**kwargs: Unpack[CycleMLPArguments]) -> ImageModel:
    """CycleMLP-B3 of Table 1."""
    return construct(FAMILY, "CycleMLPB3", kwargs)


def CycleMLPB4(**kwargs: Unpack[CycleMLPArguments]) -> ImageModel:
    """CycleMLP-B4 of Table 1."""
    return construct(FAMILY, "CycleMLPB4", kwargs)


def CycleMLPB5(**kwargs: Unpack[CycleMLPArguments]) -> ImageModel:
    """CycleMLP-B5 of Table 1."""
    return construct(FAMILY, "CycleMLPB5", kwargs)
