"""Axial-ViT: attention along columns, then along rows.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words" (2010.11929), appendix
"Axial attention", checked against scenic/projects/fast_vit/xvit.py of
google-research/scenic, type "axial". One difference: the last LayerNorm is
applied to the tokens; the code above has a mistake there.
"""

from typing import Literal, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Rate, checked
from keras_vit.layers.base import Block, check_shape
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, check_heads, register
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.attention import by_token, join_heads, softmax

__all__ = ["AxialViT", "AxialViTB32", "AxialViTB16"]

Axis = Literal["height", "width"]
# Of pairs of tokens, and of keys and values, where queries are "bhwae".
_SUBSCRIPTS = dict(height=("bwahg", "bgwae"), width=("bhawv", "bhvae"))


@keras.saving.register_keras_serializable(package="keras_vit")
class AddAxialPositionEmbs(keras.layers.Layer):
    """Adds embeddings of a token's column and of its row.

        y[h, w] = x[h, w] + [row[w]; column[h]]

    each of D / 2 values. The tables have the authors' names: `row` is shared by
    all rows and holds an embedding for each column.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`

    Raises:
        ValueError: If D is odd.

    Reference:
        Checked against `Add2DPositionEmbedding` in
        scenic/model_lib/layers/attention_layers.py.
    """

    def build(self, input_shape):
        _, rows, columns, width = input_shape
        self._map_shape = tuple(input_shape[1:])
        if width % 2:
            raise ValueError(
                f"AddAxialPositionEmbs `{self.name}` needs an even token "
                "width, half for columns and half for rows. Received: "
                f"width={width}"
            )

        def table(name, length):
            return self.add_weight(
                name=name,
                shape=(length, width // 2),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

        self.row_embedding = table("row_pos_embedding", columns)
        self.column_embedding = table("col_pos_embedding", rows)

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._map_shape)
        return inputs + ops.cast(self._positions(), inputs.dtype)

    def position_tables(self) -> dict:
        """Return the embeddings of the patches, "" -> ([N, D], grid)."""
        rows, columns, width = self._map_shape
        table = ops.reshape(self._positions(), (-1, width))
        return {"": (table, (rows, columns))}

    def _positions(self):
        rows, columns, width = self._map_shape
        shape = (rows, columns, width // 2)
        row = ops.broadcast_to(self.row_embedding[None], shape)
        column = ops.broadcast_to(self.column_embedding[:, None], shape)
        return ops.concatenate([row, column], axis=-1)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialSelfAttention(layers.MultiHeadSelfAttention):
    """Self-attention of maps within each column, or within each row.

    Each head multiplies queries and keys of one axis where they are. With
    columns and rows as sequences of a batch, a TPU would copy the map, queries,
    keys, values and results: a quarter of the time of Axial-ViT-B/16.

    Args:
        num_heads: Number of heads A; divides the token width D.
        axis: "height" for columns, "width" for rows.
        dropout_rate: Share of attention weights set to zero in training.
        **kwargs: Arguments of layers.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`
    """

    @checked
    def __init__(
        self, num_heads: Count, axis: Axis, dropout_rate: Rate = 0.0, **kwargs
    ):
        super().__init__(num_heads, dropout_rate, **kwargs)
        self.axis = axis

    def build(self, input_shape):
        self._map_shape = tuple(input_shape[1:])
        super().build(input_shape)

    def call(self, inputs, training=None):  # type: ignore[override]
        weights, value = self._weights(inputs)
        weights = self.dropout(weights, training=training)
        pairs, keys = _SUBSCRIPTS[self.axis]
        x = ops.einsum(f"{pairs},{keys}->bhwae", weights, value)
        return join_heads(self.out, x)

    def _weights(self, inputs):
        """Return softmax(q k^T / sqrt(E)) along the axis, and values."""
        inputs = check_shape(self, inputs, self._map_shape)
        query, key, value = by_token(self.qkv, inputs, self.num_heads)
        query = query * self.head_size**-0.5
        pairs, keys = _SUBSCRIPTS[self.axis]
        logits = ops.einsum(f"bhwae,{keys}->{pairs}", query, key)
        return softmax(logits, self.compute_dtype), value

    def attention_weights(self, inputs):
        """Return attention among all tokens, `[B, A, H W, H W]`.

        It is 0 between tokens of different columns, or rows.
        """
        weights, _ = self._weights(inputs)
        rows, columns, _ = self._map_shape
        if self.axis == "height":
            x = ops.einsum("bwahg,wv->bahwgv", weights, ops.eye(columns))
        else:
            x = ops.einsum("bhawv,hg->bahwgv", weights, ops.eye(rows))
        tokens = rows * columns
        return ops.reshape(x, (-1, self.num_heads, tokens, tokens))


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialTransformerBlock(Block):
    """Two Transformer blocks: one along columns, one along rows.

        u[:, w] = Transformer_row(x[:, w]),   y[h, :] = Transformer_col(u[h, :])

    Each has its own attention and MLP. The names are those of the authors:
    "row" attends over all rows, along the height.

    Args:
        num_heads: Number of attention heads; divides the token width D.
        mlp_dim: Width of the MLPs' hidden layer.
        dropout_rate: Dropout after attention and each dense layer.
        attention_dropout_rate: Dropout of the attention weights.
        **kwargs: Arguments of `Block`, and of layers.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`

    Reference:
        Dosovitskiy et al. 2021, appendix "Axial attention"; checked against
        `EncoderAxial` in scenic/projects/fast_vit/xvit.py.
    """

    @checked
    def __init__(
        self,
        num_heads: Count,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        attention_dropout_rate: Rate = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate

    def build(self, input_shape):
        def block(axis, name):
            return self.make(
                layers.TransformerBlock,
                self.num_heads,
                self.mlp_dim,
                dropout_rate=self.dropout_rate,
                attention_options=dict(
                    layer="AxialSelfAttention",
                    axis=axis,
                    dropout_rate=self.attention_dropout_rate,
                ),
                name=name,
                shape=input_shape,
            )

        self.row = block("height", "row")
        self.col = block("width", "col")

    def _forward(self, x, training):
        return self.col(self.row(x, training=training), training=training)

    def attention_weights(self, inputs):
        """Return attention along columns and along rows, `[B, A, N, N]` each.

        Among all tokens: 0 between tokens of different columns, or rows.
        """
        along_columns = self.row.attention_weights(inputs)
        return [along_columns, self.col.attention_weights(self.row(inputs))]

    def compute_output_shape(self, input_shape):
        return input_shape


@architecture
class AxialViTConfig:
    """The architecture of an Axial-ViT.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks, each along columns and along rows.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        pooling: "gap" reads the average of all tokens, "token" the first
            patch; there is no class token. "gap".
        dropout_rate: Dropout after the position embeddings and in the blocks.
        attention_dropout_rate: Dropout of the attention weights.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    pooling: Literal["gap", "token"] = "gap"
    dropout_rate: Rate = 0.0
    attention_dropout_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_heads(self)


class AxialViTArguments(ModelArguments, total=False):
    """The fields of `AxialViTConfig`, as arguments."""

    patch_size: Pair | None
    hidden_size: Count | None
    num_layers: Count | None
    num_heads: Count | None
    mlp_dim: Count | None
    pooling: Literal["gap", "token"] | None
    dropout_rate: Rate | None
    attention_dropout_rate: Rate | None


def forward(config: AxialViTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    embedding = layers.PatchEmbedding(
        config.patch_size, config.hidden_size, name="embedding"
    )
    x = embedding(x)  # [B, N, D]
    x = ops.reshape(x, (-1, *embedding.grid_size, config.hidden_size))
    x = AddAxialPositionEmbs(name="posembed_input")(x)
    if config.dropout_rate:
        x = keras.layers.Dropout(config.dropout_rate, name="posembed_dropout")(
            x
        )
    for i in range(config.num_layers):
        x = AxialTransformerBlock(
            config.num_heads,
            config.mlp_dim,
            config.dropout_rate,
            config.attention_dropout_rate,
            name=f"axial_block_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=1e-6, name="encoder_norm")(x)
    if config.pooling == "token":
        return x[:, 0, 0]
    return ops.mean(x, axis=(1, 2))  # [B, D]


_BASE = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)
# The two models of the paper's figure of axial models.
VARIANTS = {
    "AxialViTB32": dict(patch_size=32, **_BASE),
    "AxialViTB16": dict(patch_size=16, **_BASE),
}
FAMILY = register(
    "axial_vit",
    "AxialViT",
    AxialViTConfig,
    forward,
    AxialTransformerBlock,
    VARIANTS,
    layers=r"axial_block_\d+(?:/.+)?",
    last_norm="encoder_norm",
    small=dict(hidden_size=96, num_layers=2, num_heads=6, mlp_dim=192),
)


def AxialViT(**kwargs: Unpack[AxialViTArguments]) -> ImageModel:
    """Build an Axial-ViT of any size."""
    return construct(FAMILY, "AxialViT", kwargs)


def AxialViTB32(**kwargs: Unpack[AxialViTArguments]) -> ImageModel:
    """Axial-ViT-B/32."""
    return construct(FAMILY, "AxialViTB32", kwargs)


def AxialViTB16(**kwargs: Unpack[AxialViTArguments]) -> ImageModel:
    """Axial-ViT-B/16."""
    return construct(FAMILY, "AxialViTB16", kwargs)
