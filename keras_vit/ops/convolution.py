"""Convolutions and max-pooling of channels-last inputs."""

import itertools
import math

import keras
from keras import ops

from keras_vit.ops.linear import linear
from keras_vit.ops.xla import targets_cpu


def conv(inputs, kernel, strides, padding):
    """Return `ops.conv` of channels-last inputs.

    Args:
        inputs: `[B, H, W, C]`, or with one or three axes of pixels.
        kernel: `[h, w, C, F]`, or with one or three axes of pixels.
        strides: See `ops.conv`.
        padding: "same" or "valid".
    """
    *size, channels, filters = kernel.shape
    is_product = math.prod(size) == 1 and strides in (1, (1, 1))
    if is_product and keras.backend.backend() == "torch":
        # PyTorch computes products faster than convolutions of one pixel.
        return linear(inputs, ops.reshape(kernel, (channels, filters)))
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    is_plain = inputs.shape[-1] == channels and dtype == "float32"
    if len(size) == 3 and padding == "valid" and is_plain and targets_cpu():
        return _conv_by_blocks(inputs, kernel, strides)
    return _channels_last(ops.conv, inputs, kernel, strides, padding)


def _conv_by_blocks(inputs, kernel, strides):
    """Return a valid convolution over three axes by products of matrices.

    Blocks as large as the strides become pixels, of which a kernel covers few.
    XLA's own convolution takes twice as long on CPUs, with its gradient.
    """
    *size, channels, filters = kernel.shape
    counts = [-(-k // n) for k, n in zip(size, strides, strict=True)]
    axes = zip(inputs.shape[1:4], size, strides, strict=True)
    grid = [(length - k) // n + 1 for length, k, n in axes]
    kernel = ops.reshape(kernel, (1, *size, channels * filters))
    kernel = _blocks(kernel, counts, strides)[0]
    kernel = ops.reshape(kernel, (*counts, -1, filters))
    covered = [g + count - 1 for g, count in zip(grid, counts, strict=True)]
    pixels = _blocks(inputs, covered, strides)
    total = 0
    for first in itertools.product(*map(range, counts)):
        window = [slice(i, i + n) for i, n in zip(first, grid, strict=True)]
        part = pixels[(slice(None), *window)]
        part = ops.reshape(part, (-1, part.shape[-1]))
        total = total + ops.matmul(part, kernel[first])
    return ops.reshape(total, (-1, *grid, filters))


def _blocks(x, counts, size):
    """Return `counts` blocks along three axes, `[B, *counts, values]`.

    Blocks of `size` that `x`, `[B, T, H, W, C]`, does not fill end with zeros.
    """
    (t, h, w), (frames, rows, columns) = size, counts
    x = x[:, : frames * t, : rows * h, : columns * w]
    lengths = zip(counts, size, x.shape[1:4], strict=True)
    pads = [(0, count * n - length) for count, n, length in lengths]
    x = ops.pad(x, [(0, 0), *pads, (0, 0)])
    x = ops.reshape(x, (-1, frames, t, rows, h, columns, w, x.shape[-1]))
    x = ops.transpose(x, (0, 1, 3, 5, 2, 4, 6, 7))
    return ops.reshape(x, (-1, *counts, t * h * w * x.shape[-1]))


def depthwise_conv(inputs, kernel, strides, padding, dilation_rate=1):
    """Return `ops.depthwise_conv` of channels-last inputs.

    Args:
        inputs: `[B, H, W, C]`
        kernel: `[h, w, C, M]`
        strides, padding, dilation_rate: See `ops.depthwise_conv`.
    """
    return _channels_last(
        ops.depthwise_conv,
        inputs,
        kernel,
        strides,
        padding,
        dilation_rate=dilation_rate,
    )


def _channels_last(operation, inputs, *args, **kwargs):
    """Return an operation of channels-last inputs, without copies.

    With PyTorch Keras copies the inputs to channels-first order and back. Its
    convolutions take the order of axes of a view and the order in memory of
    channels-last inputs.
    """
    if keras.backend.backend() != "torch":
        return operation(inputs, *args, data_format="channels_last", **kwargs)
    import torch

    outputs = operation(
        torch.movedim(inputs, -1, 1),  # has a rule of vmap; moveaxis has none
        *args,
        data_format="channels_first",
        **kwargs,
    )
    return torch.movedim(outputs, 1, -1)


def expand(inputs, kernel, bias=None, activation=None):
    """Return a transposed convolution whose outputs do not overlap.

    Each pixel becomes `h x w` by one product, which XLA and PyTorch compute
    faster than their transposed convolutions.

    Args:
        inputs: `[B, H, W, C]`
        kernel: `[h, w, F, C]`; its strides are (h, w).
        bias: `[F]`, or None.
        activation: A function, or None.

    Returns:
        `[B, H h, W w, F]`
    """
    height, width, filters, channels = kernel.shape
    rows, columns = inputs.shape[1:3]
    kernel = ops.transpose(ops.reshape(kernel, (-1, channels)))
    if bias is not None:
        bias = ops.tile(bias, height * width)
    outputs = linear(inputs, kernel, bias, activation)
    shape = (-1, rows, columns, height, width, filters)
    outputs = ops.transpose(ops.reshape(outputs, shape), (0, 1, 3, 2, 4, 5))
    return ops.reshape(outputs, (-1, rows * height, columns * width, filters))


def max_pool(inputs, pool_size, strides, padding):
    """Return `ops.max_pool` of channels-last inputs.

    Args:
        inputs: `[B, H, W, C]`
        pool_size, strides, padding: See `ops.max_pool`.
    """
    return _channels_last(ops.max_pool, inputs, pool_size, strides, padding)
