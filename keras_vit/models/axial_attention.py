"""The attention of Axial-ResNet, along one axis of a map, in two forms."""

from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.layers.base import CompositeLayer, check_shape
from keras_vit.layers.keras_layers import Dense, GroupNorm
from keras_vit.layers.resnet_v2_stem import NUMERICS
from keras_vit.ops import xla
from keras_vit.ops.attention import softmax
from keras_vit.ops.dtypes import at_least_float32, constant

Axis = Literal["height", "width"]
_GROUPS = 32  # of scenic's GroupNorm


class AxialAttention(CompositeLayer):
    """The parts of axial attention that both forms share.

    A subclass computes `_logits` and `_output`; both see relative positions as
    a table of 2 N - 1 distances for axes of N tokens, with E / 2 values for
    queries, E / 2 for keys and E for values, the same for all heads.

    Args:
        axis: "height" or "width".
        num_heads: Number of heads A; 2 A divides the width C.
    """

    @checked
    def __init__(self, axis: Axis, num_heads: Count, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis
        self.num_heads = num_heads

    def build(self, input_shape):
        self._map_shape = tuple(input_shape[1:])
        width = input_shape[-1]
        if None in self._map_shape or width % (2 * self.num_heads):
            raise ValueError(
                f"{type(self).__name__} `{self.name}` needs maps of a known "
                "height and width, and a width C that is a multiple of 2 x "
                f"num_heads. Received: input_shape={tuple(input_shape)}, "
                f"num_heads={self.num_heads}"
            )
        self.head_size = width // self.num_heads
        self.length = self._map_shape[self.axis == "width"]
        self.qkv = self.make(
            Dense,
            2 * width,
            use_bias=False,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=self.kernel_stddev(width)
            ),
            name="qkv",
            shape=input_shape,
        )
        self.relative = self.add_weight(
            name="relative",
            shape=(2 * self.head_size, 2 * self.length - 1),
            initializer=keras.initializers.RandomNormal(
                stddev=self.table_stddev(self.head_size)
            ),
        )

    def _heads(self, x):
        """Return q, k and v, `[B, other axis, A, N, E / 2 or E]`."""
        rows, columns, width = self._map_shape
        x = ops.reshape(
            x, (-1, rows, columns, self.num_heads, 2 * self.head_size)
        )
        order = (0, 2, 3, 1, 4) if self.axis == "height" else (0, 1, 3, 2, 4)
        half = self.head_size // 2
        return ops.split(ops.transpose(x, order), (half, 2 * half), axis=-1)

    def _merge(self, x):
        """Return the outputs of the heads as `[B, H, W, C]`."""
        order = (0, 3, 1, 2, 4) if self.axis == "height" else (0, 1, 3, 2, 4)
        return ops.reshape(ops.transpose(x, order), (-1, *self._map_shape))

    def _relative(self, sign, dtype):
        """Return r[c, i, j] of the distance sign (i - j), in three parts."""
        place = np.arange(self.length)
        index = sign * (place[:, None] - place[None]) + self.length - 1
        table = ops.cast(self.relative, dtype)
        table = ops.take(table, constant(index), axis=1)
        half = self.head_size // 2
        return ops.split(table, (half, 2 * half), axis=0)

    def compute_output_shape(self, input_shape):
        return input_shape


def batch_norm(layer, shape, name, **kwargs):
    """Make a BatchNorm with PyTorch's momentum and epsilon."""
    return layer.make(
        keras.layers.BatchNormalization,
        momentum=0.9,
        epsilon=1e-5,
        name=name,
        shape=shape,
        **kwargs,
    )


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttentionBN(AxialAttention):
    """Axial attention of the authors, with BatchNorm.

        [q, k, v] = BN(x U),   l = BN(q k^T) + BN(q r_q) + BN(k r_k)^T
        A = softmax(l),   y = BN(A v) + BN(A r_v)

    where r depends on the distance i - j; there is no scale of 1 / sqrt(E).

    Args:
        axis: "height" or "width".
        num_heads: Number of heads A; 2 A divides the width C.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H, W, C]`

    Reference:
        Wang et al. 2020, equation 4; checked against `AxialAttention` in
        lib/models/axialnet.py.
    """

    kernel_stddev = staticmethod(lambda width: width**-0.5)
    table_stddev = staticmethod(lambda head_size: head_size**-0.5)

    def build(self, input_shape):
        super().build(input_shape)
        double = (*input_shape[:-1], 2 * input_shape[-1])
        self.bn_qkv = batch_norm(self, double, "bn_qkv")
        logits = (None, None, None, None, 3 * self.num_heads)
        self.bn_similarity = batch_norm(self, logits, "bn_similarity")
        self.bn_output = batch_norm(self, double, "bn_output")

    def call(self, inputs, training=None):
        inputs = check_shape(self, inputs, self._map_shape)
        qkv = self.bn_qkv(self.qkv(inputs), training=training)
        q, k, v = self._heads(qkv)
        r_q, r_k, r_v = self._relative(1, v.dtype)
        similarity = [
            ops.matmul(q, ops.swapaxes(k, -1, -2)),
            ops.einsum("bogic,cij->bogij", q, r_q),
            ops.swapaxes(ops.einsum("bogic,cij->bogij", k, r_k), -1, -2),
        ]
        # Channels of the norm: the three kinds, each with all heads.
        similarity = ops.concatenate(similarity, axis=2)
        similarity = ops.transpose(similarity, (0, 1, 3, 4, 2))
        similarity = self.bn_similarity(similarity, training=training)
        _, other, length, _, _ = similarity.shape
        similarity = ops.reshape(
            similarity, (-1, other, length, length, 3, self.num_heads)
        )
        logits = ops.transpose(ops.sum(similarity, axis=4), (0, 1, 4, 2, 3))
        weights = softmax(logits, self.compute_dtype)
        values = self._merge(ops.matmul(weights, v))
        places = self._merge(ops.einsum("bogij,cij->bogic", weights, r_v))
        # Channels of the norm: for each channel its value, then its position.
        both = ops.stack([values, places], axis=-1)  # [B, H, W, C, 2]
        rows, columns, width = self._map_shape
        both = ops.reshape(both, (-1, rows, columns, 2 * width))
        both = self.bn_output(both, training=training)
        return ops.sum(
            ops.reshape(both, (-1, rows, columns, width, 2)), axis=-1
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttentionGN(AxialAttention):
    """Axial attention of scenic, with GroupNorm over each sequence.

        [q, k, v] = GN(x U),   l = q k^T + q r_k + k r_q
        A = softmax(l),   y = GN(A v + A r_v)

    where r depends on the distance j - i; there is no scale of 1 / sqrt(E).

    Args:
        axis: "height" or "width".
        num_heads: Number of heads A; 2 A divides the width C.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H, W, C]`

    Reference:
        Checked against `SelfAttentionWith1DRelativePos` in
        scenic/projects/baselines/axial_resnet.py.
    """

    kernel_stddev = staticmethod(lambda width: 1 / width)
    table_stddev = staticmethod(lambda head_size: 1 / head_size)

    def build(self, input_shape):
        super().build(input_shape)

        def norm(name, width):
            return self.make(
                GroupNorm,
                groups=_GROUPS,
                epsilon=NUMERICS["scenic"][0],
                name=name,
                shape=(None, self.length, width),
            )

        self.gn_qkv = norm("gn_qkv", 2 * input_shape[-1])
        self.gn_out = norm("gn_out", input_shape[-1])

    def call(self, inputs, training=None):
        inputs = check_shape(self, inputs, self._map_shape)
        is_plain = self.qkv.quantization_mode is None
        if (
            xla.targets_tpu()
            and xla.fill_lanes(inputs.shape[0])
            and is_plain
            and not self.qkv.lora_enabled
            and _GROUPS % self.num_heads == 0
        ):
            return self._in_tiles(inputs)
        qkv = self._each_sequence(self.gn_qkv, self.qkv(inputs))
        q, k, v = self._heads(qkv)
        r_q, r_k, r_v = self._relative(-1, v.dtype)
        logits = (
            ops.matmul(q, ops.swapaxes(k, -1, -2))
            + ops.einsum("bogic,cij->bogij", q, r_k)
            + ops.einsum("bogic,cij->bogij", k, r_q)
        )
        weights = softmax(logits, self.compute_dtype)
        x = ops.matmul(weights, v)
        x = x + ops.einsum("bogij,cij->bogic", weights, r_v)
        return self._each_sequence(self.gn_out, self._merge(x))

    def _in_tiles(self, inputs):
        """Return the same with heads and images innermost, as TPUs store it.

        A TPU computes with tiles of 8 x 128 numbers. A head has as few as 4
        channels and an axis at most some dozens of tokens: with either of them
        innermost most of a tile is padding, and each sum of logits is copied,
        because the products of relative positions, which have a matrix for each
        token, want another order than those of queries and keys. Here a tile
        holds 8 heads of 128 images, and products are sums of tiles, which need
        no matrix unit and no copy.
        """
        dtype, half = inputs.dtype, self.head_size // 2
        width = inputs.shape[-1]
        kernel = ops.reshape(
            ops.cast(self.qkv.kernel, dtype), (width, self.num_heads, -1)
        )
        order = "whdab" if self.axis == "height" else "hwdab"
        qkv = ops.einsum(f"bhwc,cad->{order}", inputs, kernel)
        qkv = self._norm_tiles(self.gn_qkv, qkv)  # [O, N, 2 E, A, B]
        q, k, v = ops.split(qkv, (half, 2 * half), axis=2)
        r_q, r_k, r_v = (
            ops.transpose(r, (1, 2, 0))[None, ..., None, None]
            for r in self._relative(-1, dtype)
        )  # [1, N, N, E / 2 or E, 1, 1]
        # Three products: of two, gradients would need the sums k + r_k.
        q, k_of_query = q[:, :, None], k[:, :, None]
        logits = q * k[:, None] + q * r_k + k_of_query * r_q
        logits = ops.cast(ops.sum(at_least_float32(logits), axis=3), dtype)
        weights = ops.softmax(at_least_float32(logits), axis=2)
        weights = ops.cast(weights, dtype)[:, :, :, None]  # [O, N, N, 1, A, B]
        x = weights * v[:, None] + weights * r_v
        x = ops.cast(ops.sum(at_least_float32(x), axis=2), dtype)
        x = self._norm_tiles(self.gn_out, x)  # [O, N, E, A, B]
        order = (4, 1, 0, 3, 2) if self.axis == "height" else (4, 0, 1, 3, 2)
        return ops.reshape(ops.transpose(x, order), (-1, *self._map_shape))

    def _norm_tiles(self, norm, x):
        """Normalize each sequence, `[O, N, D, A, B]`, by groups of a head."""
        others, length, size, heads, _ = x.shape
        parts = (_GROUPS // heads, size * heads // _GROUPS)
        shape = (others, length, *parts, heads, -1)
        wide = ops.reshape(at_least_float32(x), shape)
        mean = ops.mean(wide, axis=(1, 3), keepdims=True)
        if keras.backend.standardize_dtype(x.dtype) == "bfloat16":
            # As in `keras_vit.ops.norm`.
            square = ops.mean(ops.square(wide), axis=(1, 3), keepdims=True)
            variance = ops.maximum(square - ops.square(mean), 0.0)
        else:
            square = ops.square(wide - mean)
            variance = ops.mean(square, axis=(1, 3), keepdims=True)

        def by_part(weight):
            weight = ops.reshape(ops.cast(weight, wide.dtype), (heads, *parts))
            return ops.transpose(weight, (1, 2, 0))[None, None, ..., None]

        scale = ops.rsqrt(variance + norm.epsilon) * by_part(norm.gamma)
        y = (wide - mean) * scale + by_part(norm.beta)
        return ops.cast(ops.reshape(y, (*x.shape[:-1], -1)), x.dtype)

    def _each_sequence(self, norm, x):
        """Normalize each row, or each column, separately."""
        rows, columns, width = x.shape[1:]
        shape = (-1, columns, width)
        if self.axis == "height":
            x, shape = ops.transpose(x, (0, 2, 1, 3)), (-1, rows, width)
        x = norm(ops.reshape(x, shape))
        if self.axis == "width":
            return ops.reshape(x, (-1, rows, columns, width))
        x = ops.reshape(x, (-1, columns, rows, width))
        return ops.transpose(x, (0, 2, 1, 3))
