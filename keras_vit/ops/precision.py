"""Computations in float32 at least, and in float64 where a model is."""

import keras
from keras import ops


def wide_dtype(dtype) -> str:
    """Returns "float64" for float64, and "float32" for any other dtype.

    `keras.backend.result_type` has no float64 on JAX and PyTorch.

    Args:
        dtype: A dtype of Keras or of the backend.
    """
    name = keras.backend.standardize_dtype(dtype)
    return name if name == "float64" else "float32"


def at_least_float32(x):
    """Returns `x` in float32, or unchanged in float64."""
    return ops.cast(x, wide_dtype(x.dtype))
