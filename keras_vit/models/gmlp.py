"""gMLP: MLPs whose hidden units are gated by other tokens.

Liu et al. 2021, "Pay Attention to MLPs" (2105.08050). The authors published no
code; checked against timm/models/mlp_mixer.py, with its initialisers.
"""

from typing import Annotated, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Rate, checked
from keras_vit.layers.base import ResidualBlock, check_shape
from keras_vit.layers.keras_layers import Dense
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, register
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.linear import gelu

__all__ = ["GMLP", "GMLPTi16", "GMLPS16", "GMLPB16"]

# One half of the hidden units gates the other.
Even = Annotated[int, "even and positive", lambda n: n > 0 and n % 2 == 0]


@keras.saving.register_keras_serializable(package="keras_vit")
class GMLPBlock(ResidualBlock):
    """An MLP over channels with a spatial gating unit between its layers.

        [u, v] = GELU(Dense(LN(x)))
        y = x + Dense(u * (A LN(v) + b))

    A and b act on the tokens of each channel. A starts near 0 and b at 1, so
    that a new block is a plain MLP.

    Args:
        mlp_dim: Hidden width of the MLP, of which one half gates the other.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, N, D]`
    Output shape: `[B, N, D]`

    Raises:
        ValueError: If the number of tokens differs from the one it was built
            for.

    Reference:
        Liu et al. 2021, section 2; checked against `SpatialGatingBlock` in
        timm/models/mlp_mixer.py.
    """

    @checked
    def __init__(self, mlp_dim: Even, **kwargs):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim

    def build(self, input_shape):
        batch_size, tokens, width = input_shape
        self._token_shape = (tokens, width)

        def dense(units, fan_in, name, **kwargs):
            return self.make(
                Dense,
                units,
                kernel_initializer="glorot_uniform",
                bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
                name=name,
                shape=(batch_size, tokens, fan_in),
                **kwargs,
            )

        gated = self.mlp_dim // 2
        self.norm = self.make_norm("norm", input_shape, 1e-6)
        self.fc1 = dense(self.mlp_dim, width, "fc1", activation=gelu)
        shape = (batch_size, tokens, gated)
        self.gate_norm = self.make_norm("gate_norm", shape)
        self.gate = self.make(
            Dense,
            tokens,
            kernel_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            bias_initializer="ones",
            name="gate",
            shape=(batch_size, gated, tokens),
        )
        self.fc2 = dense(width, gated, "fc2")
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def token_kernels(self) -> dict:
        """Return name -> (kernel over tokens, None for the grid's shape)."""
        return {"gate": (self.gate.kernel, None)}

    def _forward(self, inputs, training):
        inputs = check_shape(self, inputs, self._token_shape)
        x = self.fc1(self.norm(inputs))
        u, v = ops.split(x, 2, axis=-1)  # [B, N, F / 2] each
        v = ops.swapaxes(self.gate_norm(v), 1, 2)  # [B, F / 2, N]
        v = ops.swapaxes(self.gate(v), 1, 2)  # [B, N, F / 2]
        return inputs + self.drop_path(self.fc2(u * v), training=training)


@architecture
class GMLPConfig:
    """The architecture of a gMLP, in the terms of Table 1.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        num_layers: Number of blocks.
        hidden_size: Width D of the tokens.
        mlp_dim: Hidden width F of the blocks, before it is split.
        drop_path_rate: Stochastic depth, the same in all blocks.
    """

    patch_size: Pair
    num_layers: Count
    hidden_size: Count
    mlp_dim: Even
    drop_path_rate: Rate = 0.0


class GMLPArguments(ModelArguments, total=False):
    """The fields of `GMLPConfig`, as arguments."""

    patch_size: Pair | None
    num_layers: Count | None
    hidden_size: Count | None
    mlp_dim: Even | None
    drop_path_rate: Rate | None


def forward(config: GMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of all tokens, `[B, D]`."""
    x = layers.PatchEmbedding(
        config.patch_size, config.hidden_size, name="stem"
    )(x)  # [B, N, D]
    for i in range(config.num_layers):
        x = GMLPBlock(
            config.mlp_dim,
            drop_path_rate=config.drop_path_rate,
            name=f"blocks_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    return ops.mean(x, axis=1)  # [B, D]


# Table 1.
VARIANTS = {
    f"GMLP{name}16": dict(
        patch_size=16, num_layers=30, hidden_size=width, mlp_dim=6 * width
    )
    for name, width in (("Ti", 128), ("S", 256), ("B", 512))
}
FAMILY = register(
    "gmlp",
    "GMLP",
    GMLPConfig,
    forward,
    GMLPBlock,
    VARIANTS,
    layers=r"stem|blocks_\d+(?:/[^/]+)?|norm",
    small=dict(hidden_size=96, num_layers=4, mlp_dim=384),
)


def GMLP(**kwargs: Unpack[GMLPArguments]) -> ImageModel:
    """Build a gMLP of any size."""
    return construct(FAMILY, "GMLP", kwargs)


def GMLPTi16(**kwargs: Unpack[GMLPArguments]) -> ImageModel:
    """gMLP-Ti/16 of Table 1."""
    return construct(FAMILY, "GMLPTi16", kwargs)


def GMLPS16(**kwargs: Unpack[GMLPArguments]) -> ImageModel:
    """gMLP-S/16 of Table 1."""
    return construct(FAMILY, "GMLPS16", kwargs)


def GMLPB16(**kwargs: Unpack[GMLPArguments]) -> ImageModel:
    """gMLP-B/16 of Table 1."""
    return construct(FAMILY, "GMLPB16", kwargs)
