"""The feed-forward-only ViT: MLPs over tokens in place of attention.

Melas-Kyriazi 2021, "Do You Even Need Attention? A Stack of Feed-Forward Layers
Does Surprisingly Well on ImageNet" (2105.02723), checked against
models/models.py of lukemelas/do-you-even-need-attention.
"""

from typing import Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Positive, Rate, as_pair, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import ResidualBlock, check_shape
from keras_vit.layers.embedding import put_first
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, drop_path_rates, register
from keras_vit.models.image_model import ImageModel
from keras_vit.weights import resize

__all__ = ["FFOnly", "FFOnlyTi16", "FFOnlyB16", "FFOnlyL32"]


@keras.saving.register_keras_serializable(package="keras_vit")
class ResizedPositions(keras.layers.Layer):
    """Puts the class token first and adds positions from a table of any size.

    The table is resized to the grid on every call: bilinear, with half-pixel
    centres and without antialiasing. The class token has its own position.

    Args:
        grid_size: (height, width) of the grid of patches.
        table_size: (height, width) of the table.

    Input shape: `[B, N, D]`, N = height x width of the grid.
    Output shape: `[B, N + 1, D]`

    Reference:
        Melas-Kyriazi 2021 (2105.02723); checked against models/models.py of
        lukemelas/do-you-even-need-attention.
    """

    @checked
    def __init__(self, grid_size: Pair, table_size: Pair = 14, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = as_pair(grid_size)
        self.table_size = as_pair(table_size)

    def build(self, input_shape):
        tokens, width = self._token_shape = tuple(input_shape[1:])

        def weight(name, *shape):
            normal = keras.initializers.RandomNormal(stddev=0.02)
            return self.add_weight((*shape, width), normal, name=name)

        self.cls_token = weight("cls_token", 1, 1)
        self.pos_embed = weight("pos_embed", *self.table_size)
        self.cls_pos_embed = weight("cls_pos_embed", 1, 1)

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._token_shape)
        x = inputs + ops.cast(self._positions(), inputs.dtype)
        return put_first(self.cls_token + self.cls_pos_embed, x)

    def position_tables(self) -> dict:
        """Return the embeddings of the patches, "" -> ([N, D], grid)."""
        return {"": (self._positions(), self.grid_size)}

    def _positions(self):
        """Return the positions of the patches, `[N, D]`."""
        table = ops.convert_to_tensor(self.pos_embed)
        if self.grid_size != self.table_size:
            # TensorFlow's operation computes in float32.
            rows, columns = (
                ops.cast(resize.bilinear(*sizes), table.dtype)
                for sizes in zip(self.table_size, self.grid_size, strict=True)
            )
            table = ops.einsum("ih,hwd->iwd", rows, table)
            table = ops.einsum("jw,iwd->ijd", columns, table)
        return ops.reshape(table, self._token_shape)

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + 1, width)


@keras.saving.register_keras_serializable(package="keras_vit")
class FFOnlyBlock(ResidualBlock):
    """Mixes channels, then tokens, with the same form of MLP.

        u = x + MLP_1(LN(x))
        y^T = u^T + MLP_2(LN(u^T))

    The second LayerNorm is over the tokens of a channel.

    Args:
        mlp_ratio: Hidden width of both MLPs, as a multiple of their input.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, T, D]`, T with the class token.
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If the number of tokens differs from the one it was built
            for.

    Reference:
        Checked against `LinearBlock` in models/models.py.
    """

    SHARDED = mlp_block.sharded("mlp1")

    @checked
    def __init__(self, mlp_ratio: Positive = 4.0, **kwargs):
        super().__init__(**kwargs)
        self.mlp_ratio = mlp_ratio

    def build(self, input_shape):
        batch_size, tokens, width = input_shape
        self._token_shape = (tokens, width)

        def branch(number, shape):
            norm = self.make_norm(f"norm{number}", shape, 1e-6)
            size, name = int(self.mlp_ratio * shape[-1]), f"mlp{number}"
            return norm, self.make(layers.DeiTMlp, size, name=name, shape=shape)

        self.norm1, self.mlp1 = branch(1, input_shape)
        self.norm2, self.mlp2 = branch(2, (batch_size, width, tokens))
        self.mlp_dim = self.mlp1.mlp_dim
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def token_kernels(self) -> dict:
        """Return name -> (kernel over patches, None for the grid's shape)."""
        return {"mlp2": (self.mlp2.dense_0.kernel[1:], None)}

    def _forward(self, inputs, training):
        inputs = check_shape(self, inputs, self._token_shape)
        x = self.mlp1(self.norm1(inputs))
        u = inputs + self.drop_path(x, training=training)
        x = self.mlp2(self.norm2(ops.swapaxes(u, 1, 2)))  # [B, D, T]
        return u + self.drop_path(ops.swapaxes(x, 1, 2), training=training)


@architecture
class FFOnlyConfig:
    """The architecture of a feed-forward-only ViT.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        mlp_ratio: Hidden width of the MLPs over channels and over tokens, as a
            multiple of their number; 4.
        position_table_size: Side, or (height, width), of the table of
            positions, which is resized to the grid of patches; 14.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    mlp_ratio: Positive = 4.0
    position_table_size: Pair = 14
    drop_path_rate: Rate = 0.0


class FFOnlyArguments(ModelArguments, total=False):
    """The fields of `FFOnlyConfig`, as arguments."""

    patch_size: Pair | None
    hidden_size: Count | None
    num_layers: Count | None
    mlp_ratio: Positive | None
    position_table_size: Pair | None
    drop_path_rate: Rate | None


def forward(config: FFOnlyConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the class token, `[B, D]`."""
    embedding = layers.PatchEmbedding(
        config.patch_size,
        config.hidden_size,
        initializer="uniform",
        name="patch_embed",
    )
    x = embedding(x)  # [B, N, D]
    x = ResizedPositions(
        embedding.grid_size, config.position_table_size, name="positions"
    )(x)  # [B, N + 1, D]
    for i, rate in enumerate(drop_path_rates(config)):
        x = FFOnlyBlock(
            config.mlp_ratio, drop_path_rate=rate, name=f"blocks_{i}"
        )(x)
    x = keras.layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    return x[:, 0]  # [B, D]


VARIANTS = {
    "FFOnlyTi16": dict(patch_size=16, hidden_size=192, num_layers=12),
    "FFOnlyB16": dict(patch_size=16, hidden_size=768, num_layers=12),
    "FFOnlyL32": dict(patch_size=32, hidden_size=1024, num_layers=24),
}
FAMILY = register(
    "ff_only",
    "FFOnly",
    FFOnlyConfig,
    forward,
    FFOnlyBlock,
    VARIANTS,
    layers=r"patch_embed|positions|blocks_\d+(?:/[^/]+)?|norm",
    small=dict(hidden_size=96, num_layers=4),
)


def FFOnly(**kwargs: Unpack[FFOnlyArguments]) -> ImageModel:
    """Build a feed-forward-only ViT of any size."""
    return construct(FAMILY, "FFOnly", kwargs)


def FFOnlyTi16(**kwargs: Unpack[FFOnlyArguments]) -> ImageModel:
    """FF-tiny, of patches of 16."""
    return construct(FAMILY, "FFOnlyTi16", kwargs)


def FFOnlyB16(**kwargs: Unpack[FFOnlyArguments]) -> ImageModel:
    """FF-base, of patches of 16."""
    return construct(FAMILY, "FFOnlyB16", kwargs)


def FFOnlyL32(**kwargs: Unpack[FFOnlyArguments]) -> ImageModel:
    """FF-large, of patches of 32."""
    return construct(FAMILY, "FFOnlyL32", kwargs)
