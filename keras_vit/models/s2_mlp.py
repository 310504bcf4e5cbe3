"""S2-MLP: features move by one patch, and MLPs mix channels alone.

Yu et al. 2021, "S2-MLP: Spatial-Shift MLP Architecture for Vision"
(2106.07477). The authors released no code: this follows a port to Jittor, and
is not compared with the authors' code. The published size of the deep model,
51 M parameters and 9.7 G multiply-accumulates, is not reproduced by any known
layout; this one has 53.9 M and 10.5 G.
"""

from typing import Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Positive, Rate
from keras_vit.layers.mixing_block import MixingBlock
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, drop_path_rates, register
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.linear import gelu

__all__ = ["S2MLP", "S2MLPWide", "S2MLPDeep"]


def spatial_shift(x):
    """Move each quarter of the channels by one cell in its own direction.

    Down, up, to the right and to the left. A cell at the border that nothing
    moves into keeps its value.

    Args:
        x: A map, `[B, H, W, C]`.
    """
    quarter = x.shape[-1] // 4
    down, up, right = (
        x[..., i * quarter : (i + 1) * quarter] for i in range(3)
    )
    left = x[..., 3 * quarter :]
    moved = [
        ops.concatenate([down[:, :1], down[:, :-1]], axis=1),
        ops.concatenate([up[:, 1:], up[:, -1:]], axis=1),
        ops.concatenate([right[:, :, :1], right[:, :, :-1]], axis=2),
        ops.concatenate([left[:, :, 1:], left[:, :, -1:]], axis=2),
    ]
    return ops.concatenate(moved, axis=-1)


@keras.saving.register_keras_serializable(package="keras_vit")
class S2MLPBlock(MixingBlock):
    """Mixes each patch with its four neighbours, then channels.

        u = x + W_2 shift(gelu(W_1 LN(x)))
        y = u + MLP(LN(u))

    Args:
        **kwargs: Arguments of `MixingBlock` and of layers.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`

    Reference:
        Yu et al. 2021, section 3.2. Not compared with the authors' code, which
        is not public.
    """

    def build_mixer(self, input_shape):
        width = input_shape[-1]
        self.shift_fc1 = self.make_dense(
            width, width, "spatial_shift_fc1", activation=gelu
        )
        self.shift_fc2 = self.make_dense(width, width, "spatial_shift_fc2")

    def mix(self, x, training):
        return self.shift_fc2(spatial_shift(self.shift_fc1(x)))


@architecture
class S2MLPConfig:
    """The architecture of an S2-MLP.

    Args:
        num_layers: Number of blocks.
        hidden_size: Width D of the tokens.
        patch_size: Pixels per side of a patch, or (height, width).
        mlp_ratio: Width of the MLPs' hidden layer divided by that of the
            tokens; 4.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
    """

    num_layers: Count
    hidden_size: Count
    patch_size: Pair
    mlp_ratio: Positive = 4
    drop_path_rate: Rate = 0.0


class S2MLPArguments(ModelArguments, total=False):
    """The fields of `S2MLPConfig`, as arguments."""

    num_layers: Count | None
    hidden_size: Count | None
    patch_size: Pair | None
    mlp_ratio: Positive | None
    drop_path_rate: Rate | None


def forward(config: S2MLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of all tokens, `[B, D]`."""
    stem = layers.PatchEmbedding(
        config.patch_size, config.hidden_size, name="stem"
    )
    tokens = stem(x)  # [B, N, D]
    x = ops.reshape(tokens, (-1, *stem.grid_size, config.hidden_size))
    for i, rate in enumerate(drop_path_rates(config)):
        x = S2MLPBlock(
            config.mlp_ratio, drop_path_rate=rate, name=f"S2MLPBlock_{i}"
        )(x)
    return ops.mean(x, axis=(1, 2))  # [B, D], without a norm, as in the port


# Table 1; the deep model's size is not the published one, see above.
VARIANTS = {
    "S2MLPWide": dict(patch_size=16, num_layers=12, hidden_size=768),
    "S2MLPDeep": dict(patch_size=16, num_layers=36, hidden_size=384),
}
FAMILY = register(
    "s2_mlp",
    "S2MLP",
    S2MLPConfig,
    forward,
    S2MLPBlock,
    VARIANTS,
    layers=r"stem|S2MLPBlock_\d+(?:/[^/]+)?",
    small=dict(num_layers=6, hidden_size=96),
)


def S2MLP(**kwargs: Unpack[S2MLPArguments]) -> ImageModel:
    """Build an S2-MLP of any size.

    Not compared with the authors' code.
    """
    return construct(FAMILY, "S2MLP", kwargs)


def S2MLPWide(**kwargs: Unpack[S2MLPArguments]) -> ImageModel:
    """S2-MLP-wide."""
    return construct(FAMILY, "S2MLPWide", kwargs)


def S2MLPDeep(**kwargs: Unpack[S2MLPArguments]) -> ImageModel:
    """S2-MLP-deep."""
    return construct(FAMILY, "S2MLPDeep", kwargs)
