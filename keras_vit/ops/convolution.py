"""Convolutions."""

import keras
from keras import ops


def conv(inputs, kernel, strides, padding):
    """Returns `ops.conv` of channels-last inputs.

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
