"""A softmax in float32 or wider, whose gradient costs less under JAX."""

import keras
from keras import ops

from keras_vit.layers import tpu
from keras_vit.layers.precision import at_least_float32


def softmax(x, dtype=None):
    """Returns the softmax over the last axis, computed in float32 or float64.

    Its gradient, y (g - sum(g y)), needs only the result y. Unless
    jax_softmax_custom_jvp is set, JAX differentiates the division instead and
    stores two more arrays of this size, which doubles the time of attention.

    Args:
        x: Logits, `[..., T]`.
        dtype: Of the result; None for that of the computation.
    """
    backend = keras.backend.backend()
    is_given = _dtype(x) == dtype
    if backend == "torch" and is_given:
        return ops.softmax(x, axis=-1)  # computes in float32 what is shorter
    x = at_least_float32(x)
    y = _softmax(x) if backend == "jax" else ops.softmax(x, axis=-1)
    return y if dtype is None else ops.cast(y, dtype)


def weighted_sum(logits, values):
    """Returns softmax(logits) @ values, whose gradient costs less on TPUs.

    The gradient of the logits is y (g v^T - d), where d, the sum of g v^T times
    the weights y over the tokens, is that of g times the result over E. XLA
    computes it in the product g v^T, and need not read y and that product
    again for the sum, as in FlashAttention (Dao et al. 2022, 2205.14135). On
    CPUs in float32, XLA takes a fifth longer for it.

    Args:
        logits: `[B, A, T, T]`
        values: `[B, A, T, E]`
    """
    if tpu.is_target():
        return _weighted_sum(tpu.by_queries(logits), values)
    return ops.matmul(softmax(logits, _dtype(values)), values)


@ops.custom_gradient
def _weighted_sum(logits, values):
    y = ops.softmax(at_least_float32(logits), axis=-1)
    weights = ops.cast(y, _dtype(values))
    result = ops.matmul(weights, values)

    def gradient(g):
        both = at_least_float32(g) * at_least_float32(result)
        of_weights = ops.matmul(g, ops.swapaxes(values, -1, -2))
        of_logits = y * (
            at_least_float32(of_weights) - ops.sum(both, axis=-1, keepdims=True)
        )
        of_values = ops.matmul(ops.swapaxes(weights, -1, -2), g)
        return ops.cast(of_logits, _dtype(logits)), of_values

    return result, gradient


def _dtype(x):
    return keras.backend.standardize_dtype(x.dtype)


@ops.custom_gradient
def _softmax(x):
    y = ops.softmax(x, axis=-1)

    def gradient(g):
        return y * (g - ops.sum(g * y, axis=-1, keepdims=True))

    return y, gradient
