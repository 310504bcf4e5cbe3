"""The pooling of tokens of MViT, over space and time."""

import math
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Count, Triple, as_triple, checked
from keras_vit.layers.base import CompositeLayer, check_shape
from keras_vit.ops import xla
from keras_vit.ops.convolution import conv
from keras_vit.ops.dtypes import at_least_float32


def pooled_size(size, kernel_size, strides, padding) -> tuple[int, ...]:
    """Return how many windows fit into each padded axis."""
    axes = zip(size, kernel_size, strides, padding, strict=True)
    return tuple((n + 2 * pad - k) // stride + 1 for n, k, stride, pad in axes)


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPooling(CompositeLayer):
    """Pools tokens over windows of their (T, H, W); the class token stays.

    Windows are padded by half a kernel on both sides: with zeros, which count
    in an average; a maximum ignores the padding. "conv" weights the tokens of a
    window by a depthwise kernel, the same for each head.

    Args:
        grid_size: (T, H, W) of the tokens.
        mode: "conv", "max" or "avg".
        kernel_size: (T, H, W) of a window.
        strides: (T, H, W) between windows.
        num_heads: Heads that share the kernel; divides D.
        class_token: Whether a class token precedes the others.

    Input shape: `[B, N, D]`
    Output shape: `[B, N', D]`

    Reference:
        Fan et al. 2021, section 3.1 ("pooling operator"); checked against
        `attention_pool` in slowfast/models/attention.py.
    """

    @checked
    def __init__(
        self,
        grid_size: Triple,
        mode: Literal["conv", "max", "avg"] = "conv",
        kernel_size: Triple = (3, 3, 3),
        strides: Triple = (1, 2, 2),
        num_heads: Count = 1,
        class_token: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = as_triple(grid_size)
        self.mode = mode
        self.kernel_size = as_triple(kernel_size)
        self.strides = as_triple(strides)
        self.num_heads = num_heads
        self.class_token = class_token
        self._padding = tuple(k // 2 for k in self.kernel_size)
        self.output_grid = pooled_size(
            self.grid_size, self.kernel_size, self.strides, self._padding
        )

    def build(self, input_shape):
        width = input_shape[-1]
        tokens = math.prod(self.grid_size) + int(self.class_token)
        self._token_shape = (tokens, width)
        if self.mode == "conv":
            self.kernel = self.add_weight(
                name="kernel",
                shape=(*self.kernel_size, width // self.num_heads, 1),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._token_shape)
        first = int(self.class_token)
        width = inputs.shape[-1]
        x = ops.reshape(inputs[:, first:], (-1, *self.grid_size, width))
        x = self._convolve(x) if self.mode == "conv" else self._reduce(x)
        x = ops.reshape(x, (-1, math.prod(self.output_grid), width))
        if first:
            x = ops.concatenate([inputs[:, :first], x], axis=1)
        return x

    def count_products(self) -> tuple[int, int]:
        """Return the multiply-accumulates of "conv" and the values it writes.

        For one example. `keras_vit.cost` needs them because the sum over slices
        contains no matrix products that it could count.
        """
        if self.mode != "conv":
            return 0, 0
        values = math.prod(self.output_grid) * self._token_shape[-1]
        return values * math.prod(self.kernel_size), values

    def _slices(self, x, axis):
        """Yield the inputs at each position of the windows along an axis."""
        stride, count = self.strides[axis - 1], self.output_grid[axis - 1]
        for start in range(self.kernel_size[axis - 1]):
            stop = start + stride * (count - 1) + 1
            index = [slice(None)] * 5
            index[axis] = slice(start, stop, stride)
            yield x[tuple(index)]

    def _convolve(self, x):
        # [T, H, W, D]: the same for each head.
        kernel = ops.tile(self.kernel[..., 0], (1, 1, 1, self.num_heads))
        # XLA's depthwise convolution over three axes takes a hundred times as
        # long on CPUs as a sum over slices, which it fuses. For TPUs it
        # compiles the sum for minutes, and computes the convolution natively.
        if keras.backend.backend() == "torch" or xla.targets_tpu():
            kernel = ops.cast(ops.expand_dims(kernel, 3), x.dtype)
            return conv(self._pad(x), kernel, self.strides, "valid")
        # Convolutions accumulate in float32, or in float64.
        x, kernel = at_least_float32(x), at_least_float32(kernel)
        x = xla.bilinear(self._sum_slices)(x, kernel)
        return ops.cast(x, self.compute_dtype)

    def _sum_slices(self, x, kernel):
        # The windows of space are shared by the frames of a window.
        totals = [0] * self.kernel_size[0]
        for j, rows in enumerate(self._slices(self._pad(x), 2)):
            for k, part in enumerate(self._slices(rows, 3)):
                for i, total in enumerate(totals):
                    totals[i] = total + part * kernel[i, j, k]
        return sum(list(self._slices(x, 1))[i] for i, x in enumerate(totals))

    def _pad(self, x):
        fill = -math.inf if self.mode == "max" else 0
        pads = [(0, 0), *[(n, n) for n in self._padding], (0, 0)]
        return ops.pad(x, pads, constant_values=fill)

    def _reduce(self, x):
        combine = ops.maximum if self.mode == "max" else ops.add
        x = self._pad(x)
        for axis in (1, 2, 3):
            first, *others = self._slices(x, axis)
            for other in others:
                first = combine(first, other)
            x = first
        if self.mode == "avg":
            x = x / math.prod(self.kernel_size)
        return ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        tokens = math.prod(self.output_grid) + int(self.class_token)
        return (input_shape[0], tokens, input_shape[-1])
