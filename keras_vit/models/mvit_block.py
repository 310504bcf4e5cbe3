"""The block of MViT."""

import math

import keras

from keras_vit._arguments import Count, Rate, Triple, as_triple, checked
from keras_vit.layers.base import ResidualBlock
from keras_vit.models.mvit_attention import (
    Pooling,
    PoolingAttention,
    dense,
    layer_norm,
    strided_kernel,
)
from keras_vit.models.mvit_pooling import TokenPooling
from keras_vit.ops.linear import gelu


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiscaleBlock(ResidualBlock):
    """A Transformer block that may pool its tokens and change their width.

        u = maxpool(x) + attention(LN(x))
        n = LN(u)
        y = MLP(n) + (u, or n W where the width changes)

    The first skip connection is pooled with the stride of the queries.

    Args:
        grid_size: (T, H, W) of the tokens.
        num_heads: Number of heads; divides the width D.
        mlp_dim: Width of the MLP's hidden layer.
        output_size: Width of the block's output.
        pooling_mode, pooling_size, query_stride, key_value_stride,
            class_token: See `PoolingAttention`.
        dropout_rate: Dropout after attention and after each dense layer of
            the MLP.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, N, D]`
    Output shape: `[B, N', output_size]`

    Reference:
        Fan et al. 2021, section 3.2; checked against `MultiScaleBlock` in
        slowfast/models/attention.py.
    """

    # As `TransformerBlock.SHARDED`, without attention: the first stage has a
    # single head.
    SHARDED = {
        "mlp_fc1/kernel": ((None, "model"), "mlp_dim", 1),
        "mlp_fc1/bias": (("model",), "mlp_dim", 1),
        "mlp_fc2/kernel": (("model", None), "mlp_dim", 1),
    }

    @checked
    def __init__(
        self,
        grid_size: Triple,
        num_heads: Count,
        mlp_dim: Count,
        output_size: Count,
        pooling_mode: Pooling = "conv",
        pooling_size: Triple | None = None,
        query_stride: Triple = (1, 1, 1),
        key_value_stride: Triple = (1, 1, 1),
        class_token: bool = True,
        dropout_rate: Rate = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = as_triple(grid_size)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.output_size = output_size
        self.pooling_mode = pooling_mode
        self.pooling_size = pooling_size
        self.query_stride = as_triple(query_stride)
        self.key_value_stride = key_value_stride
        self.class_token = class_token
        self.dropout_rate = dropout_rate
        self.pool_skip = None
        self.output_grid = self.grid_size
        if math.prod(self.query_stride) > 1:
            self.pool_skip = self.make(
                TokenPooling,
                self.grid_size,
                "max",
                strided_kernel(self.query_stride),
                self.query_stride,
                class_token=class_token,
                name="pool_skip",
            )
            self.output_grid = self.pool_skip.output_grid

    def build(self, input_shape):
        batch_size, _, width = input_shape
        if self.pool_skip is not None:
            self.pool_skip.build(input_shape)
        self.norm1 = layer_norm(self, "norm1", input_shape)
        self.attn = self.make(
            PoolingAttention,
            self.grid_size,
            self.num_heads,
            self.pooling_mode,
            self.pooling_size,
            self.query_stride,
            self.key_value_stride,
            self.class_token,
            name="attn",
            shape=input_shape,
        )
        shape = self.attn.compute_output_shape(input_shape)
        hidden = (*shape[:-1], self.mlp_dim)
        self.norm2 = layer_norm(self, "norm2", shape)
        self.fc1 = dense(self, self.mlp_dim, "mlp_fc1", shape, gelu)
        self.fc2 = dense(self, self.output_size, "mlp_fc2", hidden)
        self.proj = None
        if width != self.output_size:
            self.proj = dense(self, self.output_size, "proj", shape)
        self.dropout = self.make_dropout(self.dropout_rate)
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def _forward(self, x, training):
        y = self.dropout(self.attn(self.norm1(x)), training=training)
        x = x if self.pool_skip is None else self.pool_skip(x)
        u = x + self.drop_path(y, training=training)
        n = self.norm2(u)
        y = self.fc1(n)
        y = self.fc2(self.dropout(y, training=training))
        y = self.dropout(y, training=training)
        u = u if self.proj is None else self.proj(n)
        return u + self.drop_path(y, training=training)

    def attention_weights(self, inputs):
        """Return the block's attention on its `inputs`, `[B, A, N', N'']`."""
        return self.attn.attention_weights(self.norm1(inputs))

    def compute_output_shape(self, input_shape):
        tokens = math.prod(self.output_grid) + int(self.class_token)
        return (input_shape[0], tokens, self.output_size)
