"""The attention of MViT, among pooled queries, keys and values."""

import math
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Count, Triple, as_triple, checked
from keras_vit.layers.base import CompositeLayer, check_shape
from keras_vit.layers.keras_layers import Dense, LayerNorm
from keras_vit.models.mvit_pooling import TokenPooling
from keras_vit.ops.attention import fused_attention, softmax

Pooling = Literal["conv", "max", "avg", "none"]


def dense(layer, units, name, shape, activation=None):
    """Return a dense sublayer with the authors' initialisers."""
    return layer.make(
        Dense,
        units,
        activation=activation,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        bias_initializer=keras.initializers.Constant(0.02),
        name=name,
        shape=shape,
    )


def layer_norm(layer, name, shape):
    """Return a LayerNorm with the authors' epsilon and initialisers."""
    return layer.make(
        LayerNorm,
        epsilon=1e-6,
        beta_initializer=keras.initializers.Constant(0.02),
        name=name,
        shape=shape,
    )


def strided_kernel(strides):
    """Return the kernel of a pooling for which only the stride is given."""
    return tuple(stride + 1 if stride > 1 else 1 for stride in strides)


@keras.saving.register_keras_serializable(package="keras_vit")
class PoolingAttention(CompositeLayer):
    """Multi-head attention among pooled queries, keys and values.

        [q, k, v] = x W_qkv,   q = LN(pool(q)),   k, v likewise
        y = softmax(q k^T / sqrt(E)) v W_proj

    Pooled queries shorten the sequence; pooled keys and values make attention
    cheap. Queries are pooled where their stride is more than 1, keys and
    values where their stride or their kernel is. Only "conv" is followed by a
    LayerNorm, of each head, and of the class token too.

    Args:
        grid_size: (T, H, W) of the tokens.
        num_heads: Number of heads A; divides the width D.
        pooling_mode: "conv", "max", "avg" or "none".
        pooling_size: (T, H, W) of a pooled window; None takes one more than
            the stride where that is more than 1.
        query_stride: (T, H, W) between the windows of queries.
        key_value_stride: The same for keys and values.
        class_token: Whether a class token precedes the others.

    Input shape: `[B, N, D]`
    Output shape: `[B, N', D]`

    Reference:
        Fan et al. 2021, section 3.1, equation 1; checked against
        `MultiScaleAttention` in slowfast/models/attention.py.
    """

    @checked
    def __init__(
        self,
        grid_size: Triple,
        num_heads: Count,
        pooling_mode: Pooling = "conv",
        pooling_size: Triple | None = None,
        query_stride: Triple = (1, 1, 1),
        key_value_stride: Triple = (1, 1, 1),
        class_token: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = as_triple(grid_size)
        self.num_heads = num_heads
        self.pooling_mode = pooling_mode
        self.pooling_size = pooling_size
        self.query_stride = as_triple(query_stride)
        self.key_value_stride = as_triple(key_value_stride)
        self.class_token = class_token

    def build(self, input_shape):
        width = input_shape[-1]
        self._token_shape = tuple(input_shape[1:])
        self.head_size = width // self.num_heads
        self.qkv = dense(self, 3 * width, "qkv", input_shape)
        of_keys = self.key_value_stride
        self.pool_q, self.norm_q = self._pool("q", self.query_stride)
        self.pool_k, self.norm_k = self._pool("k", of_keys)
        self.pool_v, self.norm_v = self._pool("v", of_keys)
        self.proj = dense(self, width, "proj", input_shape)

    def _pool(self, letter, strides):
        """Return the pooling and the norm after it, None where absent."""
        kernel = self.pooling_size or strided_kernel(strides)
        is_identity = math.prod(strides) == 1 and (
            letter == "q" or math.prod(kernel) == 1
        )
        if self.pooling_mode == "none" or is_identity:
            return None, None
        pool = self.make(
            TokenPooling,
            self.grid_size,
            self.pooling_mode,
            kernel,
            strides,
            num_heads=self.num_heads,
            class_token=self.class_token,
            name=f"pool_{letter}",
            shape=(None, *self._token_shape),
        )
        if self.pooling_mode != "conv":
            return pool, None
        of_heads = (None, None, self.num_heads, self.head_size)
        return pool, layer_norm(self, f"norm_{letter}", of_heads)

    def call(self, inputs):
        query, key, value = self._heads(inputs)
        if keras.backend.backend() == "torch":
            # Fused, so that the attention weights, most of the memory, are
            # never written.
            x = fused_attention(
                *(ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
            )
        else:
            weights = ops.cast(self._weights(query, key), value.dtype)
            x = ops.matmul(weights, ops.transpose(value, (0, 2, 1, 3)))
            x = ops.transpose(x, (0, 2, 1, 3))
        x = ops.reshape(x, (-1, x.shape[1], self._token_shape[-1]))
        return self.proj(x)  # [B, N', D]

    def attention_weights(self, inputs):
        """Return softmax(q k^T / sqrt(E)) of `inputs`, `[B, A, N', N'']`."""
        query, key, _ = self._heads(inputs)
        return self._weights(query, key)

    def _weights(self, query, key):
        # Scaled before the product, so that float16 logits do not overflow.
        query = ops.transpose(query * self.head_size**-0.5, (0, 2, 1, 3))
        logits = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
        return softmax(logits)

    def _heads(self, inputs):
        """Return pooled queries, keys and values, `[B, N', A, E]`."""
        inputs = check_shape(self, inputs, self._token_shape)
        query, key, value = ops.split(self.qkv(inputs), 3, axis=-1)
        query = self._pool_heads(query, self.pool_q, self.norm_q)
        key = self._pool_heads(key, self.pool_k, self.norm_k)
        value = self._pool_heads(value, self.pool_v, self.norm_v)
        return query, key, value

    def _pool_heads(self, x, pool, norm):
        """Pools `[B, N, D]` and divides it into heads, `[B, N', A, E]`."""
        x = x if pool is None else pool(x)
        x = ops.reshape(x, (-1, x.shape[1], self.num_heads, self.head_size))
        return x if norm is None else norm(x)

    def compute_output_shape(self, input_shape):
        shape = input_shape
        if self.pool_q is not None:
            shape = self.pool_q.compute_output_shape(shape)
        return shape
