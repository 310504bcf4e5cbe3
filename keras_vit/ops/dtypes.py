"""Dtypes of statistics, scores and constants."""

import keras
from keras import ops


def wide_dtype(dtype) -> str:
    """Return "float64" for float64, and "float32" for any other dtype.

    `keras.backend.result_type` has no float64 on JAX and PyTorch.

    Args:
        dtype: A dtype of Keras or of the backend.
    """
    name = keras.backend.standardize_dtype(dtype)
    return name if name == "float64" else "float32"


def wide_policy() -> str:
    """Return the dtype of pixels and scores under the policy of Keras."""
    return wide_dtype(keras.config.dtype_policy().compute_dtype)


def at_least_float32(x):
    """Return `x` in float32, or unchanged in float64."""
    return ops.cast(x, wide_dtype(x.dtype))


def constant(x, dtype=None):
    """Return an array as a tensor.

    `torch.compile` follows PyTorch's conversion, and not that of Keras.

    Args:
        x: NumPy array.
        dtype: Its type; by default that of the array.
    """
    if keras.backend.backend() == "torch":
        import torch

        x = torch.as_tensor(x)
    return ops.convert_to_tensor(x, dtype)
