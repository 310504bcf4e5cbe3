"""Self-attention in the forms of ViTs after the paper."""

from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Epsilon, Natural, Positive, checked
from keras_vit.layers import (
    arguments,
    attention_implementation,
    relative_positions,
    rotary,
)
from keras_vit.layers.attention_products import fused_attention, reshape, scores
from keras_vit.layers.composite import CompositeLayer
from keras_vit.layers.constants import constant
from keras_vit.layers.dense import Dense
from keras_vit.layers.precision import at_least_float32, wide_dtype
from keras_vit.layers.rotary import Rotary
from keras_vit.layers.softmax import softmax

Bias = Literal["qkv", "qv", "none"]
Norm = Literal["layer", "rms"]
NORMS = dict(
    layer=keras.layers.LayerNormalization, rms=keras.layers.RMSNormalization
)


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderAttention(CompositeLayer):
    """Multi-head self-attention whose scores may depend on places.

    As `MultiHeadSelfAttention`: one projection of columns [A, 3, E], scores of
    q k^T / sqrt(E), softmax in float32 or float64. Positions, if any, are
    either rotary (queries and keys of patches are turned by their place,
    `layers.rotary`), or a bias of each head on the scores, by the distance
    between two patches, which is learned (BEiT) or computed by an MLP (Liu et
    al. 2022, 2111.09883). With G groups of heads that share keys and values,
    the columns are [G, A / G + 2, E] (Ainslie et al. 2023, 2305.13245).

    Args:
        num_heads: Number of heads A; divides the token width D.
        qkv_bias: "qkv", "qv" (keys have no bias) or "none".
        grid_size: (rows, columns) of the patches, which are the last tokens;
            needed for positions.
        rotary: Arguments of `rotary.angles`, kind included; None without. The
            frequencies of the kind "mixed" are learned for each head.
        relative_positions: Whether scores have a bias by distance. A learned
            one is for one class token and patches.
        relative_dim: Hidden units of the MLP that computes this bias, which is
            0 for other tokens than patches; 0 for a learned table.
        norm_epsilon: Epsilon of a LayerNorm over the joined heads; None
            without one.
        query_key_norm: Norms over each query and each key: "layer", "rms" or
            "none".
        query_key_epsilon: Their epsilon.
        num_kv_heads: Number of groups G; divides `num_heads`. 0 for as many.
        output_scale: Factor of the first kernel of the output. Kernels are
            normal with standard deviation 0.02.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If D is no multiple of `num_heads`, E none of 4 with
            rotary positions, or `num_heads` none of `num_kv_heads`.

    Reference:
        Checked against `EvaAttention` and `AttentionRope` in
        timm/models/eva.py, `Attention` in timm/models/beit.py and
        `RelPosMlp` in timm/layers/pos_embed_rel.py.
    """

    @checked
    def __init__(
        self,
        num_heads: Count,
        qkv_bias: Bias = "qkv",
        grid_size: tuple[Count, Count] | None = None,
        rotary: Rotary | None = None,
        relative_positions: bool = False,
        relative_dim: Natural = 0,
        norm_epsilon: Epsilon | None = None,
        query_key_norm: Norm | Literal["none"] = "none",
        query_key_epsilon: Epsilon = 1e-6,
        num_kv_heads: Natural = 0,
        output_scale: Positive = 1.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        arguments.check_groups(num_kv_heads, num_heads, qkv_bias)
        self.num_heads = num_heads
        self.qkv_bias = qkv_bias
        self.grid_size = None if grid_size is None else tuple(grid_size)
        self.rotary = None if rotary is None else dict(rotary)
        self.relative_positions = relative_positions
        self.relative_dim = relative_dim
        self.norm_epsilon = norm_epsilon
        self.query_key_norm = query_key_norm
        self.query_key_epsilon = query_key_epsilon
        self.num_kv_heads = num_kv_heads
        self.output_scale = output_scale

    def build(self, input_shape):
        tokens, width = self._token_shape = tuple(input_shape[1:])
        multiple = self.num_heads * (1 if self.rotary is None else 4)
        if width % multiple:
            raise ValueError(
                f"EncoderAttention `{self.name}` splits the token width "
                "(`hidden_size`) into `num_heads` equal parts, whose width is "
                "a multiple of 4 with rotary positions. Received: "
                f"hidden_size={width}, num_heads={self.num_heads}"
            )
        self.head_size = width // self.num_heads
        groups = self.num_kv_heads or self.num_heads
        self.qkv = self.make(
            Dense,
            (self.num_heads + 2 * groups) * self.head_size,
            use_bias=self.qkv_bias == "qkv",
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="qkv",
        )
        self.qkv.build(input_shape)
        if self.qkv_bias == "qv":
            self.q_bias, self.v_bias = (
                self.add_weight(name=name, shape=(width,), initializer="zeros")
                for name in ("q_bias", "v_bias")
            )
        self._build_positions(tokens)
        self._build_norms(input_shape)
        self.out = self.make(
            Dense,
            width,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=0.02 * self.output_scale
            ),
            name="out",
        )
        self.out.build(input_shape)

    def _build_norms(self, input_shape):
        def norm(kind, epsilon, shape, name):
            layer = self.make(NORMS[kind], epsilon=epsilon, name=name)
            layer.build(shape)
            return layer

        self.norm = self.query_norm = self.key_norm = None
        if self.norm_epsilon is not None:
            self.norm = norm("layer", self.norm_epsilon, input_shape, "norm")
        if self.query_key_norm != "none":
            shape = (None, None, None, self.head_size)
            self.query_norm, self.key_norm = (
                norm(self.query_key_norm, self.query_key_epsilon, shape, name)
                for name in ("query_norm", "key_norm")
            )

    def _build_positions(self, tokens):
        prefix = tokens
        if self.grid_size is not None:
            prefix = tokens - self.grid_size[0] * self.grid_size[1]
        if self.relative_positions and self.relative_dim:
            self._distances = relative_positions.distances(self.grid_size)
            self._logs = relative_positions.log_distances(self.grid_size)
            self.relative_0, self.relative_1 = (
                self.make(
                    Dense,
                    units,
                    activation=function,
                    kernel_initializer=keras.initializers.RandomNormal(
                        stddev=0.02
                    ),
                    name=name,
                )
                for units, function, name in (
                    (self.relative_dim, "relu", "relative_0"),
                    (self.num_heads, None, "relative_1"),
                )
            )
            self.relative_0.build((None, 2))
            self.relative_1.build((None, self.relative_dim))
        elif self.relative_positions:
            if prefix != 1:
                raise ValueError(
                    "`relative_positions` are those of a class token and "
                    f"patches. Received: {tokens} tokens, of a grid of "
                    f"{self.grid_size}"
                )
            rows, columns = self.grid_size
            self._distances = relative_positions.with_class_token(
                self.grid_size
            )
            self.relative_bias = self.add_weight(
                name="relative_bias",
                shape=(
                    (2 * rows - 1) * (2 * columns - 1) + 3,
                    self.num_heads,
                ),
                initializer="zeros",
            )
        if self.rotary is None:
            return
        if self.rotary["kind"] == "mixed":
            self.frequencies = self.add_weight(
                name="frequencies",
                shape=(2, self.num_heads, self.head_size // 2),
                initializer=rotary.mixed_frequencies,
            )
            table = rotary.indices(self.grid_size)  # [2, N]
            self._places = np.pad(table, ((0, 0), (prefix, 0)))
            return
        angles = rotary.angles(
            self.grid_size, self.head_size, **dict(self.rotary)
        )
        angles = np.pad(angles, ((prefix, 0), (0, 0)))  # tokens do not turn
        dtype = wide_dtype(self.compute_dtype)
        self._turns = [f(angles).astype(dtype) for f in (np.cos, np.sin)]

    def call(self, inputs):
        if not self.relative_positions and attention_implementation.is_fused(
            inputs, self.num_heads
        ):
            x = fused_attention(*self._heads(inputs))
        else:
            weights, value = self._attend(inputs, self.compute_dtype)
            x = ops.matmul(weights, value)  # [B, A, T, E]
            x = ops.transpose(x, (0, 2, 1, 3))
        x = reshape(x, (-1, *self._token_shape))  # [B, T, D]
        if self.norm is not None:
            x = self.norm(x)
        return self.out(x)

    def attention_weights(self, inputs):
        """Returns the weights of `inputs` after the softmax, `[B, A, T, T]`."""
        return self._attend(inputs, None)[0]

    def _heads(self, inputs):
        """Returns queries, keys and values, each `[B, A, T, E]`."""
        inputs = arguments.check_shape(self, inputs, self._token_shape)
        tokens = self._token_shape[0]
        qkv = self.qkv(inputs)
        groups = self.num_kv_heads or self.num_heads
        shared = self.num_heads // groups  # heads of a group, R
        qkv = reshape(qkv, (-1, tokens, groups, shared + 2, self.head_size))
        qkv = ops.transpose(qkv, (3, 0, 2, 1, 4))  # [R + 2, B, G, T, E]
        # The gradient of each slice would be an array as large as all three.
        *query, key, value = ops.unstack(qkv, axis=0)
        query = query[0] if shared == 1 else self._join(query)
        if self.qkv_bias == "qv":
            shape = (self.num_heads, 1, self.head_size)
            bias = [
                ops.cast(ops.reshape(b, shape), qkv.dtype)
                for b in (self.q_bias, self.v_bias)
            ]
            query, value = query + bias[0], value + bias[1]
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = self._turn(query, key)
        if shared > 1:
            key, value = (self._join([x] * shared) for x in (key, value))
        return query, key, value

    def _join(self, heads):
        """Joins the heads of groups, R arrays `[B, G, T, E]`."""
        tokens = self._token_shape[0]
        x = ops.stack(heads, axis=2)  # [B, G, R, T, E]
        return reshape(x, (-1, self.num_heads, tokens, self.head_size))

    def _attend(self, inputs, dtype):
        """Returns attention weights and the values of each head.

        Args:
            inputs: `[B, T, D]`
            dtype: Of the weights; see `softmax`.
        """
        query, key, value = self._heads(inputs)
        logits = scores(query, key)
        if self.relative_positions:
            logits = at_least_float32(logits)
            logits = logits + self._bias(logits.dtype)
        return softmax(logits, dtype), value

    def _bias(self, dtype):
        """Returns the bias of the scores by distance, `[A, T, T]`."""
        if self.relative_dim:
            logs = constant(self._logs, self.compute_dtype)
            table = self.relative_1(self.relative_0(logs))
        else:
            table = self.relative_bias
        places = constant(self._distances.reshape(-1))
        bias = ops.take(ops.cast(table, dtype), places, axis=0)
        bias = ops.reshape(bias, (*self._distances.shape, self.num_heads))
        prefix = (self._token_shape[0] - len(self._distances), 0)
        return ops.pad(ops.transpose(bias, (2, 0, 1)), ((0, 0), prefix, prefix))

    def _turn(self, query, key):
        """Returns queries and keys with rotary positions."""
        if self.rotary is None:
            return query, key
        kind = self.rotary["kind"]
        if kind == "mixed":
            frequencies = at_least_float32(self.frequencies)
            places = constant(self._places, frequencies.dtype)
            angles = ops.einsum("pt,pae->ate", places, frequencies)
            angles = ops.repeat(angles, 2, axis=-1)  # [A, T, E]
            turns = ops.cos(angles), ops.sin(angles)
        else:
            turns = map(constant, self._turns)
        turns = [ops.cast(turn, query.dtype) for turn in turns]
        return tuple(rotary.rotate(x, *turns, kind) for x in (query, key))

    def compute_output_shape(self, input_shape):
        return input_shape
