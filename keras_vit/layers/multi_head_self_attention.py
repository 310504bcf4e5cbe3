"""Multi-head self-attention (appendix A)."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Epsilon, Positive, Rate, checked
from keras_vit.layers.base import CompositeLayer, check_bias, check_shape
from keras_vit.layers.keras_layers import NORMS, Dense, Norm
from keras_vit.ops import rotary
from keras_vit.ops.attention import (
    by_head,
    fused_attention,
    is_fused,
    num_tokens,
    scores,
    softmax,
    weighted_sum,
)
from keras_vit.ops.dtypes import constant, wide_dtype
from keras_vit.ops.rotary import Rotary

Bias = Literal["qkv", "qv", "none"]


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(CompositeLayer):
    """Scaled dot-product self-attention over `num_heads` heads.

        [q, k, v] = z U_qkv,   A = softmax(q k^T / sqrt(E)),   SA(z) = A v
        MSA(z) = [SA_1(z); ...; SA_A(z)] U_msa

    One fused projection makes q, k and v. Its 3 D columns are those of the
    first head, then those of the second, and so on, and within a head those
    of q, of k and of v: [A, 3, E]. When the columns are divided among devices,
    every device has complete heads (tensor parallelism). The softmax is
    computed in float32 under every dtype policy, or in float64. The products
    are fused or explicit: see `set_attention_implementation`.

    Families whose attention differs override one step of it: `_project`,
    `_turn`, `_scores` (with `adds_to_scores`) or `_attend`.

    Args:
        num_heads: Number of heads A; divides the token width D.
        dropout_rate: Share of attention weights set to zero in training.
        qkv_bias: "qkv", "qv" (keys have no bias) or "none".
        rotary: Rotary positions of the patches, which are the last tokens: the
            arguments of `rotary.angles`; None without. Tokens before them do
            not turn.
        query_key_norm: Norms over each query and each key: "layer", "rms" or
            "none".
        norm_epsilon: Their epsilon.
        kernel_stddev: Standard deviation of the first kernels, which are
            normal; None for Glorot's.
        output_stddev: That of the kernel of the output; None for
            `kernel_stddev`.

    Call arguments:
        inputs: `[B, T, D]`
        bias: Added to the logits, `[B, 1, T, T]` or `[T, T]`. It gets no
            gradient.

    Output shape: `[B, T, D]`

    Raises:
        ValueError: If D is no multiple of `num_heads`, E none of 4 with rotary
            positions, or a bias has other axes or is no floating point.

    Reference:
        Dosovitskiy et al. 2021, equations 5 to 8; checked against
        `MultiHeadDotProductAttention` of Flax, and `EvaAttention` and
        `AttentionRope` in timm/models/eva.py.
    """

    # Whether `_scores` adds a bias, which the fused products cannot.
    adds_to_scores = False

    @checked
    def __init__(
        self,
        num_heads: Count,
        dropout_rate: Rate = 0.0,
        qkv_bias: Bias = "qkv",
        rotary: Rotary | None = None,
        query_key_norm: Norm | Literal["none"] = "none",
        norm_epsilon: Epsilon = 1e-6,
        kernel_stddev: Positive | None = None,
        output_stddev: Positive | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.qkv_bias = qkv_bias
        self.rotary: Any = None if rotary is None else dict(rotary)
        self.query_key_norm = query_key_norm
        self.norm_epsilon = norm_epsilon
        self.kernel_stddev = kernel_stddev
        self.output_stddev = output_stddev

    def build(self, input_shape):
        width = input_shape[-1]
        multiple = self.num_heads * (1 if self.rotary is None else 4)
        if width % multiple:
            raise ValueError(
                f"{type(self).__name__} `{self.name}` splits the token width "
                "(`hidden_size`) into `num_heads` equal parts, so the width "
                "must be a multiple of it, and each part one of 4 with rotary "
                f"positions. Received: hidden_size={width}, "
                f"num_heads={self.num_heads}"
            )
        self._token_shape = (None, width)
        self.head_size = width // self.num_heads
        self.qkv = self.make(
            Dense,
            self._num_columns() * self.head_size,
            use_bias=self.qkv_bias == "qkv",
            kernel_initializer=self._first_kernel(),
            name="qkv",
            shape=input_shape,
        )
        if self.qkv_bias == "qv":
            self.q_bias, self.v_bias = (
                self.add_weight(name=name, shape=(width,), initializer="zeros")
                for name in ("q_bias", "v_bias")
            )
        if self.rotary is not None:
            self._build_rotary()
        self._build_norms(input_shape)
        stddev = self.output_stddev or self.kernel_stddev
        self.out = self.make(
            Dense,
            width,
            kernel_initializer="glorot_uniform"
            if stddev is None
            else keras.initializers.RandomNormal(stddev=stddev),
            name="out",
            shape=input_shape,
        )
        self.dropout = self.make_dropout(self.dropout_rate)

    def _num_columns(self):
        """Return the columns of the projection, in units of a head's width."""
        return 3 * self.num_heads

    def _first_kernel(self):
        if self.kernel_stddev is not None:
            return keras.initializers.RandomNormal(stddev=self.kernel_stddev)
        # Glorot's bound for each D x D third, not for the fused kernel, whose
        # mean of fans is twice as large: (D + 3 D) / 2 = 2 D.
        return keras.initializers.VarianceScaling(
            scale=2.0, mode="fan_avg", distribution="uniform"
        )

    def _build_rotary(self):
        angles = rotary.angles(self.head_size, **self.rotary)  # [N, E]
        dtype = wide_dtype(self.compute_dtype)
        self._turns = [f(angles).astype(dtype) for f in (np.cos, np.sin)]

    def _build_norms(self, shape):
        self.query_norm: Any = None
        self.key_norm: Any = None
        if self.query_key_norm != "none":
            self.query_norm, self.key_norm = (
                self.make(
                    NORMS[self.query_key_norm],
                    epsilon=self.norm_epsilon,
                    name=name,
                    shape=(None, None, None, self.head_size),
                )
                for name in ("query_norm", "key_norm")
            )

    def call(self, inputs, training=None, bias=None):
        if bias is not None:
            check_bias(self, bias)
        return self.out(self._attend(inputs, training, bias))

    def _attend(self, inputs, training, bias=None):
        """Return the results of all heads, joined, `[B, T, D]`."""
        query, key, value = self._heads(inputs)
        drops_weights = training and self.dropout_rate
        if (
            is_fused(inputs, self.num_heads)
            and not drops_weights
            and not self.adds_to_scores
        ):
            x = fused_attention(query, key, value, bias)
        else:
            logits = self._scores(query, key)
            if bias is not None:
                logits = logits + ops.cast(bias, logits.dtype)
            if drops_weights:
                weights = softmax(logits, self.compute_dtype)
                weights = self.dropout(weights, training=training)
                x = ops.matmul(weights, value)
            else:
                x = weighted_sum(logits, value)
            x = ops.transpose(x, (0, 2, 1, 3))  # [B, T, A, E]
        width = self.num_heads * self.head_size
        return ops.reshape(x, (-1, num_tokens(x), width))

    def attention_weights(self, inputs):
        """Return softmax(q k^T / sqrt(E)) of `inputs`, `[B, A, T, T]`."""
        query, key, _ = self._heads(inputs)
        return softmax(self._scores(query, key))

    def _heads(self, inputs):
        """Return queries, keys and values, each `[B, A, T, E]`."""
        inputs = check_shape(self, inputs, self._token_shape)
        query, key, value = self._project(inputs)
        if self.qkv_bias == "qv":
            query = query + self._by_head(self.q_bias, query.dtype)
            value = value + self._by_head(self.v_bias, value.dtype)
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return *self._turn(query, key), value

    def _project(self, inputs):
        """Return the projections of tokens, three of `[B, A, T, E]`."""
        # With heads before tokens, the products are plain batched matrix
        # products, which XLA runs faster than the einsum form.
        return by_head(self.qkv, inputs, self.num_heads)

    def _by_head(self, bias, dtype):
        shape = (self.num_heads, 1, self.head_size)
        return ops.cast(ops.reshape(bias, shape), dtype)

    def _turn(self, query, key):
        """Return queries and keys with rotary positions."""
        if self.rotary is None:
            return query, key
        patches, _ = self._turns[0].shape
        before = query.shape[2] - patches  # which do not turn
        if before < 0:
            raise ValueError(
                f"{type(self).__name__} `{self.name}` was built for {patches} "
                f"patches. Received: {query.shape[2]} tokens"
            )
        cos, sin = (
            np.pad(x, ((before, 0), (0, 0)), constant_values=one)
            for x, one in zip(self._turns, (1, 0), strict=True)
        )
        cos, sin = (ops.cast(constant(x), query.dtype) for x in (cos, sin))
        kind = self.rotary["kind"]
        return tuple(rotary.rotate(x, cos, sin, kind) for x in (query, key))

    def _scores(self, query, key):
        """Return the logits of the attention weights, `[B, A, T, T]`."""
        return scores(query, key)

    def compute_output_shape(self, input_shape):
        return input_shape

    @classmethod
    def from_config(cls, config):
        """Return a layer; also of a config that version 0.2 wrote."""
        if config.get("relative_positions") is False:
            config = dict(config)
            del config["relative_positions"]
        return super().from_config(config)
