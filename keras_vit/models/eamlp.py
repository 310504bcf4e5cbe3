"""EAMLP: external attention, two linear layers in place of keys and values.

Guo et al. 2021, "Beyond Self-attention: External Attention using Two Linear
Layers for Visual Tasks" (2105.02358), checked against EAMLP/models of
MenghaoGuo/EANet: a T2T-ViT with external attention in its stem and blocks. One
difference: the two layers of a memory of the stem start independently.
"""

from typing import Literal, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Natural, Pair, Rate, as_pair, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import ResidualBlock, check_shape
from keras_vit.layers.embedding import put_first
from keras_vit.layers.sine import sines_1d
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import (
    architecture,
    check_heads,
    drop_path_rates,
    register,
)
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_dtype

__all__ = ["EAMLP", "EAMLP7", "EAMLP10", "EAMLP12", "EAMLP14", "EAMLP19"]

Kind = Literal["sinusoid", "table"]


@keras.saving.register_keras_serializable(package="keras_vit")
class SoftSplit(keras.layers.Layer):
    """Collects the values of the window around each cell (PyTorch's `Unfold`).

    The values are ordered by row, column and channel of the window; those of
    PyTorch by channel first.

    Args:
        kernel_size: Side k of a window.
        stride: Cells between windows.
        padding: Zeros on each side of the map.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H', W', k^2 C]`

    Reference:
        Yuan et al. 2021, "Tokens-to-Token ViT" (2101.11986), section 3.1.
    """

    @checked
    def __init__(
        self,
        kernel_size: Count,
        stride: Count = 2,
        padding: Natural = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def call(self, inputs):
        inputs = check_shape(self, inputs, (None, None, None))
        _, rows, columns, _ = self.compute_output_shape(inputs.shape)
        pad, step, side = (self.padding,) * 2, self.stride, self.kernel_size
        x = ops.pad(inputs, ((0, 0), pad, pad, (0, 0)))
        # Each is a value of the window, of all windows.
        values = [
            x[:, i : i + step * rows : step, j : j + step * columns : step]
            for i in range(side)
            for j in range(side)
        ]
        return ops.concatenate(
            [value[:, :rows, :columns] for value in values], axis=-1
        )

    def compute_output_shape(self, input_shape):
        batch_size, height, width, channels = input_shape
        if None in (height, width):
            raise ValueError(
                f"SoftSplit `{self.name}` needs a known height and width. "
                f"Received: shape {tuple(input_shape)}. Give `input_shape`."
            )
        rows, columns = (
            (n + 2 * self.padding - self.kernel_size) // self.stride + 1
            for n in (height, width)
        )
        return batch_size, rows, columns, self.kernel_size**2 * channels


@keras.saving.register_keras_serializable(package="keras_vit")
class SinusoidPositions(keras.layers.Layer):
    """Puts the class token first and adds a fixed embedding of each position.

    Channel 2i of position t is sin(t / 10000^(2i / D)), channel 2i + 1 the
    cosine; position 0 is that of the class token.

    Args:
        grid_size: (height, width) of the grid of patches.
        kind: "sinusoid" computes the embeddings. "table" stores them, without
            training them, for weights that have others.

    Input shape: `[B, N, D]`, N = height x width of the grid.
    Output shape: `[B, N + 1, D]`

    Reference:
        Vaswani et al. 2017 (1706.03762), section 3.5; checked against
        `get_sinusoid_encoding` of yitu-opensource/T2T-ViT.
    """

    @checked
    def __init__(self, grid_size: Pair, kind: Kind = "sinusoid", **kwargs):
        super().__init__(**kwargs)
        self.grid_size = as_pair(grid_size)
        self.kind = kind

    def build(self, input_shape):
        tokens, width = self._token_shape = tuple(input_shape[1:])
        self.cls_token = self.add_weight(
            (1, 1, width),
            keras.initializers.RandomNormal(stddev=0.02),
            name="cls_token",
        )
        dtype = wide_dtype(self.compute_dtype)
        self._table = sines_1d(tokens + 1, width).astype(dtype)
        if self.kind == "table":
            self.pos_embed = self.add_weight(
                (1, tokens + 1, width),
                lambda shape, dtype: ops.cast(self._table, dtype),
                name="pos_embed",
                trainable=False,
            )

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._token_shape)
        x = put_first(self.cls_token, inputs)  # [B, N + 1, D]
        return x + ops.cast(self._positions(), inputs.dtype)

    def position_tables(self) -> dict:
        """Return the embeddings of the patches, "" -> ([N, D], grid)."""
        return {"": (self._positions()[0, 1:], self.grid_size)}

    def _positions(self):
        """Return the embeddings, `[1, N + 1, D]`."""
        return self.pos_embed if self.kind == "table" else self._table

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + 1, width)


@keras.saving.register_keras_serializable(package="keras_vit")
class EAMLPBlock(ResidualBlock):
    """A block of ViT with external attention.

        u = x + EA(LN(x)),   y = u + MLP(LN(u))

    Args:
        num_heads: See `ExternalAttention`.
        mlp_dim: Width of the MLP's hidden layer.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        `Block` in EAMLP/models/transformer_block.py.
    """

    SHARDED = mlp_block.sharded("mlp")

    @checked
    def __init__(self, num_heads: Count, mlp_dim: Count, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim

    def build(self, input_shape):
        self.norm1 = self.make_norm("norm1", input_shape)
        self.attn = self.make(
            layers.ExternalAttention,
            self.num_heads,
            name="attn",
            shape=input_shape,
        )
        self.norm2 = self.make_norm("norm2", input_shape)
        self.mlp = self.make(
            layers.DeiTMlp, self.mlp_dim, name="mlp", shape=input_shape
        )
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def _forward(self, inputs, training):
        x = self.attn(self.norm1(inputs))
        u = inputs + self.drop_path(x, training=training)
        x = self.mlp(self.norm2(u))
        return u + self.drop_path(x, training=training)


@architecture
class EAMLPConfig:
    """The architecture of an EAMLP.

    Args:
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Divides `hidden_size`; attention has four times as many.
        mlp_dim: Width of the MLPs' hidden layer.
        token_dim: Width of the stem's tokens; 64.
        position_embedding: "sinusoid", by the formula, or a fixed "table",
            for weights that have another one; "sinusoid".
        stem_dropout_rate: Dropout of the stem's attention; 0.1.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
    """

    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    token_dim: Count = 64
    position_embedding: Kind = "sinusoid"
    stem_dropout_rate: Rate = 0.1
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_heads(self)


class EAMLPArguments(ModelArguments, total=False):
    """The fields of `EAMLPConfig`, as arguments."""

    hidden_size: Count | None
    num_layers: Count | None
    num_heads: Count | None
    mlp_dim: Count | None
    token_dim: Count | None
    position_embedding: Kind | None
    stem_dropout_rate: Rate | None
    drop_path_rate: Rate | None


def forward(config: EAMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the class token, `[B, D]`."""
    size = config.token_dim
    x = SoftSplit(7, 4, 2, name="soft_split0")(x)
    for n in (1, 2):
        rows, columns, channels = x.shape[1:]
        x = ops.reshape(x, (-1, rows * columns, channels))
        x = layers.TokenPerformer(
            size, config.stem_dropout_rate, name=f"attention{n}"
        )(x)
        x = ops.reshape(x, (-1, rows, columns, size))
        x = SoftSplit(3, 2, 1, name=f"soft_split{n}")(x)
    rows, columns, channels = x.shape[1:]
    x = keras.layers.Dense(
        config.hidden_size,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        name="project",
    )(ops.reshape(x, (-1, rows * columns, channels)))  # [B, N, D]
    x = SinusoidPositions(
        (rows, columns), config.position_embedding, name="positions"
    )(x)  # [B, N + 1, D]
    for i, rate in enumerate(drop_path_rates(config)):
        x = EAMLPBlock(
            config.num_heads,
            config.mlp_dim,
            drop_path_rate=rate,
            name=f"blocks_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    return x[:, 0]  # [B, D]


_SMALL = dict(hidden_size=256, num_heads=4, mlp_dim=512)
VARIANTS = {
    "EAMLP7": dict(num_layers=7, **_SMALL),
    "EAMLP10": dict(num_layers=10, **_SMALL),
    "EAMLP12": dict(num_layers=12, **_SMALL),
    "EAMLP14": dict(num_layers=14, hidden_size=384, num_heads=6, mlp_dim=1152),
    "EAMLP19": dict(num_layers=19, hidden_size=448, num_heads=7, mlp_dim=1344),
}
FAMILY = register(
    "eamlp",
    "EAMLP",
    EAMLPConfig,
    forward,
    EAMLPBlock,
    VARIANTS,
    layers=r"attention\d|project|positions|blocks_\d+(?:/[^/]+)?|norm",
    small=dict(
        hidden_size=64, num_layers=3, num_heads=4, mlp_dim=128, token_dim=16
    ),
)


def EAMLP(**kwargs: Unpack[EAMLPArguments]) -> ImageModel:
    """Build an EAMLP of any size."""
    return construct(FAMILY, "EAMLP", kwargs)


def EAMLP7(**kwargs: Unpack[EAMLPArguments]) -> ImageModel:
    """EAMLP-7."""
    return construct(FAMILY, "EAMLP7", kwargs)


def EAMLP10(**kwargs: Unpack[EAMLPArguments]) -> ImageModel:
    """EAMLP-10."""
    return construct(FAMILY, "EAMLP10", kwargs)


def EAMLP12(**kwargs: Unpack[EAMLPArguments]) -> ImageModel:
    """EAMLP-12."""
    return construct(FAMILY, "EAMLP12", kwargs)


def EAMLP14(**kwargs: Unpack[EAMLPArguments]) -> ImageModel:
    """EAMLP-14."""
    return construct(FAMILY, "EAMLP14", kwargs)


def EAMLP19(**kwargs: Unpack[EAMLPArguments]) -> ImageModel:
    """EAMLP-19."""
    return construct(FAMILY, "EAMLP19", kwargs)
