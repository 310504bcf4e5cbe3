"""Convolutions and max-pooling of channels-last inputs."""

import itertools
import math

import keras
from keras import ops

from keras_vit.ops.common import targets_xla_cpu
from keras_vit.ops.linear import linear


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
    if len(size) == 3 and _fits_blocks(inputs, channels, padding):
        return _conv_by_blocks(inputs, kernel, strides)
    return _channels_last(ops.conv, inputs, kernel, strides, padding)


def _fits_blocks(x, channels, padding):
    return (
        targets_xla_cpu()
        and padding == "valid"
        and x.shape[-1] == channels  # no groups
        # Of less, the products would be rounded before their sum.
        and keras.backend.standardize_dtype(x.dtype) == "float32"
    )


def _conv_by_blocks(x, kernel, strides):
    """Return a convolution as a few products, of blocks as long as the strides.

    XLA takes twice as long on CPUs to train a convolution of few channels over
    three axes.
    """
    axes = list(zip(x.shape[1:4], kernel.shape[:3], strides, strict=True))
    counts = [-(-size // stride) for _, size, stride in axes]
    outputs = [(n - size) // stride + 1 for n, size, stride in axes]
    blocks = [m + n - 1 for m, n in zip(counts, outputs, strict=True)]
    kernel = _blocks(ops.moveaxis(kernel, -1, 0), counts, strides)
    x, total = _blocks(x, blocks, strides), 0
    for i, j, k in itertools.product(*map(range, counts)):
        part = x[:, i : i + outputs[0], j : j + outputs[1], k : k + outputs[2]]
        total = total + linear(part, ops.transpose(kernel[:, i, j, k]))
    return total


def _blocks(x, counts, size):
    """Divide `[B, T, H, W, C]` into blocks, `[B, *counts, prod(size) C]`.

    Zeros fill the last ones, and what is behind them is left out.
    """
    lengths = [m * n for m, n in zip(counts, size, strict=True)]
    x = x[:, : lengths[0], : lengths[1], : lengths[2]]
    missing = [(0, n - m) for n, m in zip(lengths, x.shape[1:4], strict=True)]
    x = ops.pad(x, [(0, 0), *missing, (0, 0)])
    sides = [n for pair in zip(counts, size, strict=True) for n in pair]
    x = ops.reshape(x, (-1, *sides, x.shape[-1]))
    x = ops.transpose(x, (0, 1, 3, 5, 2, 4, 6, 7))
    return ops.reshape(x, (-1, *counts, math.prod(size) * x.shape[-1]))


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
