"""The softmax of attention, and the sum that it weights."""

import keras
from keras import ops

from keras_vit.ops import tpu
from keras_vit.ops.derivatives import with_derivative
from keras_vit.ops.precision import at_least_float32


def softmax(x, dtype=None):
    """Return the softmax over the last axis, computed in float32 or float64.

    Args:
        x: Logits, `[..., T]`.
        dtype: Of the result; None for that of the computation.
    """
    if keras.backend.backend() == "torch" and _dtype(x) == dtype:
        return ops.softmax(x, axis=-1)  # computes in float32 what is shorter
    y = ops.softmax(at_least_float32(x), axis=-1)
    return y if dtype is None else ops.cast(y, dtype)


def weighted_sum(logits, values):
    """Return softmax(logits) @ values, whose gradient costs less on TPUs.

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


def _derive_weighted_sum(primals, tangents):
    (logits, values), (of_logits, of_values) = primals, tangents
    y, weights, result = _sum_and_weights(logits, values)
    change = y * at_least_float32(of_logits)
    mean = ops.sum(change, axis=-1, keepdims=True)
    by_logits = ops.matmul(ops.cast(change, _dtype(values)), values)
    by_mean = ops.cast(at_least_float32(result) * mean, _dtype(values))
    return result, by_logits - by_mean + ops.matmul(weights, of_values)


@with_derivative(_derive_weighted_sum)
def _weighted_sum(logits, values):
    return _sum_and_weights(logits, values)[-1]


def _sum_and_weights(logits, values):
    y = ops.softmax(at_least_float32(logits), axis=-1)
    weights = ops.cast(y, _dtype(values))
    return y, weights, ops.matmul(weights, values)


def _dtype(x):
    return keras.backend.standardize_dtype(x.dtype)
