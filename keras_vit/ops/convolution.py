"""Convolutions and max-pooling of channels-last inputs."""

import functools
import itertools

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
    return _channels_last(ops.conv, inputs, kernel, strides, padding)


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

    Under PyTorch Keras copies them to channels-first order in memory, in which
    PyTorch computes one maximum at a time. The result is in that order, in
    which it normalises groups of channels in a third of the time.

    Args:
        inputs: `[B, H, W, C]`
        pool_size, strides, padding: See `ops.max_pool`.
    """
    if keras.backend.backend() != "torch":
        return ops.max_pool(
            inputs, pool_size, strides, padding, data_format="channels_last"
        )
    import torch

    outputs = ops.max_pool(
        torch.movedim(inputs, -1, 1),
        pool_size,
        strides,
        padding,
        data_format="channels_first",
    )
    return torch.movedim(outputs.contiguous(), 1, -1)


def sum_of_slices(x, kernel, strides, size):
    """Return a depthwise convolution over three axes, as a sum over slices.

    XLA's own takes a hundred times as long on CPUs. It fuses this sum, and
    those of the gradient below; what the gradients of slices are, sums of
    arrays padded with zeros between their values, it computes value by value.

    Args:
        x: `[B, T, H, W, D]`, padded.
        kernel: `[t, h, w, D]`.
        strides, size: (T, H, W) between windows, and of the outputs.

    Returns:
        `[B, *size, D]`
    """
    taps = list(itertools.product(*map(range, kernel.shape[:3])))

    def forward(x, kernel):
        slices = (x[_windows(tap, strides, size)] * kernel[tap] for tap in taps)
        return functools.reduce(ops.add, slices)

    if not targets_xla_cpu():
        return forward(x, kernel)

    @ops.custom_gradient
    def convolve(x, kernel):
        def gradient(*args, upstream=None):
            (upstream,) = args if upstream is None else (upstream,)
            return (
                _of_inputs(upstream, kernel, strides, x.shape[1:4]),
                _of_kernel(x, upstream, kernel.shape, strides),
            )

        return forward(_computed(x), kernel), gradient

    return convolve(x, kernel)


def _computed(x):
    """Return a tensor that XLA computes once, not for each slice of it."""
    import jax

    return jax.lax.optimization_barrier(x)


def _of_kernel(x, upstream, shape, strides):
    """Return the gradient of the kernel, row by row of the outputs.

    A row and what it reads stay in the cache. Sums over the whole video read
    it anew for each weight, and XLA's take each value by itself.
    """
    import jax

    x = _computed(x)
    _, frames, rows, columns, width = upstream.shape
    window = (len(x), *shape[:2], x.shape[3], width)
    taps = range(shape[2])
    last = strides[2] * (columns - 1) + 1

    def add(total, i):
        frame, row = i // rows, i % rows
        start = (0, frame * strides[0], row * strides[1], 0, 0)
        read = jax.lax.dynamic_slice(x, start, window)
        of_row = upstream[:, frame, row][:, None, None]
        parts = [
            ops.sum(read[:, :, :, k : k + last : strides[2]] * of_row, (0, 3))
            for k in taps
        ]
        return total + ops.stack(parts, axis=2), None

    numbers = ops.arange(frames * rows)
    return jax.lax.scan(add, ops.zeros(shape, x.dtype), numbers)[0]


def _windows(first, strides, size):
    """Return the index of a value of each window, `[B, T, H, W, D]`."""
    return (
        slice(None),
        *(
            slice(start, start + stride * (count - 1) + 1, stride)
            for start, stride, count in zip(first, strides, size, strict=True)
        ),
    )


def _of_inputs(gradient, kernel, strides, size):
    """Return the gradient of the padded inputs of `sum_of_slices`.

    Inputs at one place between the windows' first values, a phase, are read by
    the same few weights: each phase is a sum over slices again.
    """
    lengths = kernel.shape[:3]
    # Of each axis windows that read an input, values of a phase, and phases
    # that are read.
    read = [-(-k // s) for k, s in zip(lengths, strides, strict=True)]
    values = [-(-n // s) for n, s in zip(size, strides, strict=True)]
    phases = [min(k, s) for k, s in zip(lengths, strides, strict=True)]
    pads = [
        (q - 1, u - m)
        for q, u, m in zip(read, values, gradient.shape[1:4], strict=True)
    ]
    padded = _computed(ops.pad(gradient, [(0, 0), *pads, (0, 0)]))

    def of_phase(phase):
        total = 0
        for back in itertools.product(*map(range, read)):
            tap = tuple(
                r + s * q for r, s, q in zip(phase, strides, back, strict=True)
            )
            if all(t < k for t, k in zip(tap, lengths, strict=True)):
                first = [q - 1 - b for q, b in zip(read, back, strict=True)]
                window = padded[_windows(first, (1, 1, 1), values)]
                total = total + window * kernel[tap]
        return total

    def joined(chosen):
        """Return the phases of the axes that are not chosen yet."""
        axis = len(chosen)
        if axis == 3:
            return of_phase(chosen)
        parts = [joined((*chosen, r)) for r in range(phases[axis])]
        if strides[axis] == 1:
            return parts[0]
        x = ops.stack(parts, axis=axis + 2)
        missing = [(0, 0)] * len(x.shape)
        missing[axis + 2] = (0, strides[axis] - phases[axis])
        shape = list(parts[0].shape)
        shape[axis + 1] *= strides[axis]
        shape[0] = -1
        return ops.reshape(ops.pad(x, missing), shape)

    x = joined(())
    return x[:, : size[0], : size[1], : size[2]]
