"""Convolutions and max-pooling of channels-last inputs."""

import keras
from keras import ops


def conv(inputs, kernel, strides, padding):
    """Return `ops.conv` of channels-last inputs.

    With PyTorch Keras copies the inputs to channels-first order and back. Its
    convolutions take the order of axes of a view and the order in memory of
    channels-last inputs.

    Args:
        inputs: `[B, H, W, C]`, or with one or three axes of pixels.
        kernel: `[h, w, C, F]`, or with one or three axes of pixels.
        strides: See `ops.conv`.
        padding: "same" or "valid".
    """
    if keras.backend.backend() != "torch":
        return ops.conv(
            inputs, kernel, strides, padding, data_format="channels_last"
        )
    import torch

    outputs = ops.conv(
        torch.movedim(inputs, -1, 1),  # has a rule of vmap; moveaxis has none
        kernel,
        strides,
        padding,
        data_format="channels_first",
    )
    return torch.movedim(outputs, 1, -1)


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
