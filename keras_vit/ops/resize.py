"""Bilinear resizing of maps, with either convention of corners."""

import keras
import numpy as np
from keras import ops


def bilinear(inputs, size: tuple[int, int], align_corners: bool = False):
    """Return maps at another size, as PyTorch's `interpolate` gives them.

    Keras' own resizing knows no aligned corners. PyTorch's takes a seventh of
    the time of the plain form on a CPU (192 x 192 x 128 to twice the size).

    Args:
        inputs: `[B, h, w, C]`, h and w known.
        size: (H, W) of the result.
        align_corners: Whether the centres of the corners stay where they are;
            otherwise the outer edges do.

    Returns:
        `[B, H, W, C]`
    """
    size = tuple(size)
    if tuple(inputs.shape[1:3]) == size:
        return inputs
    if keras.backend.backend() == "torch":
        import torch

        outputs = torch.nn.functional.interpolate(
            torch.movedim(inputs, -1, 1),
            size,
            mode="bilinear",
            align_corners=align_corners,
        )
        return torch.movedim(outputs, 1, -1)
    for axis, n in enumerate(size, start=1):
        low, high, share = neighbours(inputs.shape[axis], n, align_corners)
        shape = [1] * 4
        shape[axis] = n
        share = ops.cast(share.reshape(shape), inputs.dtype)
        first = ops.take(inputs, low, axis=axis)
        second = ops.take(inputs, high, axis=axis)
        inputs = first + share * (second - first)
    return inputs


def neighbours(m: int, n: int, align_corners: bool):
    """Return the two inputs of each output along an axis, and their shares.

    Args:
        m, n: Number of inputs and of outputs.
        align_corners: See `bilinear`.

    Returns:
        The indices of the input before and after each output, and the share of
        the latter, each `[n]`.
    """
    if align_corners:
        places = np.linspace(0, m - 1, n)
    else:
        places = np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1)
    low = np.minimum(places.astype("int32"), max(m - 2, 0))
    return low, np.minimum(low + 1, m - 1), (places - low).astype("float32")
