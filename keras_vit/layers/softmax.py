"""A softmax in float32, whose gradient costs less under JAX."""

import keras
from keras import ops


def softmax(x, dtype="float32"):
    """Returns the softmax over the last axis, computed in float32.

    Its gradient, y (g - sum(g y)), needs only the result y. Unless
    jax_softmax_custom_jvp is set, JAX differentiates the division instead and
    stores two more arrays of this size, which doubles the time of attention.

    Args:
        x: Logits, `[..., T]`.
        dtype: Of the result.
    """
    backend = keras.backend.backend()
    is_given = keras.backend.standardize_dtype(x.dtype) == dtype
    if backend == "torch" and is_given:
        return ops.softmax(x, axis=-1)  # computes in float32 what is shorter
    x = ops.cast(x, "float32")
    y = _softmax(x) if backend == "jax" else ops.softmax(x, axis=-1)
    return ops.cast(y, dtype)


@ops.custom_gradient
def _softmax(x):
    y = ops.softmax(x, axis=-1)

    def gradient(g):
        return y * (g - ops.sum(g * y, axis=-1, keepdims=True))

    return y, gradient
