"""Arrays of NumPy as constants of a program."""

import keras
from keras import ops


def constant(x, dtype=None):
    """Returns an array as a tensor.

    `torch.compile` follows PyTorch's conversion, and not that of Keras.

    Args:
        x: NumPy array.
        dtype: Its type; by default that of the array.
    """
    if keras.backend.backend() == "torch":
        import torch

        x = torch.as_tensor(x)
    return ops.convert_to_tensor(x, dtype)
