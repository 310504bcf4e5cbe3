"""External attention: two linear layers in place of keys and values."""

import keras
from keras import ops

from keras_vit._arguments import Count, Rate, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import CompositeLayer, check_shape
from keras_vit.layers.mlp_block import DeiTMlp
from keras_vit.ops.dtypes import at_least_float32

EXPANSION = 4  # of heads and channels in the blocks
UNITS, STEM_UNITS = 64, 128  # of the memories in the blocks and in the stem


def normalize(logits):
    """Return attention to a memory, `[B, N, ..., M]`.

    A softmax over the tokens, then a share of each unit of the memory; in
    float32 or float64.
    """
    x = ops.softmax(at_least_float32(logits), axis=1)
    x = x / (1e-9 + ops.sum(x, axis=-1, keepdims=True))
    return ops.cast(x, logits.dtype)


def dense(layer, units, fan_in, name, **kwargs):
    """Return a dense sublayer of `fan_in` channels."""
    shape = (None, fan_in)
    return mlp_block.dense(layer, units, name, shape=shape, **kwargs)


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPerformer(CompositeLayer):
    """External attention and an MLP of the stem, with fewer channels.

        q = W_q LN(x),   u = q + W_o W_1 norm(W_0 q),   y = u + MLP(LN(u))

    `norm` is a softmax over tokens, then a share of each unit of the memory.

    Args:
        token_dim: Width m of the output.
        dropout_rate: Dropout of the attention and of its projection.

    Input shape: `[B, N, C]`
    Output shape: `[B, N, m]`

    Reference:
        Guo et al. 2021 (2105.02358); checked against `Token_performer` in
        EAMLP/models/token_performer.py of MenghaoGuo/EANet.
    """

    @checked
    def __init__(self, token_dim: Count, dropout_rate: Rate = 0.1, **kwargs):
        super().__init__(**kwargs)
        self.token_dim = token_dim
        self.dropout_rate = dropout_rate

    def build(self, input_shape):
        size, shape = self.token_dim, (*input_shape[:-1], self.token_dim)
        self._token_shape = (None, input_shape[-1])
        self.norm1 = self.make_norm("norm1", input_shape)
        self.q_linear = dense(self, size, input_shape[-1], "q_linear")
        self.linear_0 = dense(
            self, STEM_UNITS, size, "linear_0", use_bias=False
        )
        self.linear_1 = dense(self, size, STEM_UNITS, "linear_1")
        self.proj = dense(self, size, size, "proj")
        self.norm2 = self.make_norm("norm2", shape)
        self.feed_forward = self.make(
            DeiTMlp, size, name="feed_forward", shape=shape
        )
        self.dropout = self.make_dropout(self.dropout_rate)

    def call(self, inputs, training=None):
        inputs = check_shape(self, inputs, self._token_shape)
        q = self.q_linear(self.norm1(inputs))
        x = self.dropout(normalize(self.linear_0(q)), training=training)
        x = self.proj(self.linear_1(x))
        u = q + self.dropout(x, training=training)
        return u + self.feed_forward(self.norm2(u))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.token_dim)


@keras.saving.register_keras_serializable(package="keras_vit")
class ExternalAttention(CompositeLayer):
    """Attention to a memory that all examples, and all heads, share.

        EA(x) = W_o [W_1 norm(W_0 z_1); ...],   [z_1; ...] = W x

    `norm` is a softmax over tokens, then a share of each unit of the memory.

    Args:
        num_heads: Heads of D channels; z has four times as many, of as many
            channels.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        Guo et al. 2021 (2105.02358), section 3; checked against `Attention` in
        EAMLP/models/transformer_block.py of MenghaoGuo/EANet.
    """

    @checked
    def __init__(self, num_heads: Count, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, input_shape):
        tokens, width = input_shape[1:]
        self._token_shape = (tokens, width)
        size, wide = width // self.num_heads, EXPANSION * width
        self.trans_dims = dense(self, wide, width, "trans_dims")
        self.linear_0 = dense(self, UNITS, size, "linear_0")
        self.linear_1 = dense(self, size, UNITS, "linear_1")
        self.proj = dense(self, width, wide, "proj")

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._token_shape)
        tokens, width = self._token_shape
        heads, size = EXPANSION * self.num_heads, width // self.num_heads
        z = ops.reshape(self.trans_dims(inputs), (-1, tokens, heads, size))
        z = self.linear_1(normalize(self.linear_0(z)))
        return self.proj(ops.reshape(z, (-1, tokens, heads * size)))

    def compute_output_shape(self, input_shape):
        return input_shape
