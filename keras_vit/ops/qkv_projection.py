"""The projection of tokens to queries, keys and values of heads."""

import keras
from keras import ops

from keras_vit.ops import tpu
from keras_vit.ops.attention_products import reshape


def by_head(dense: keras.layers.Dense, inputs, num_heads: int) -> list:
    """Returns q, k and v of all heads, each `[B, A, T, E]`.

    Args:
        dense: A built layer of 3 D units, whose columns are `[A, 3, E]`.
        inputs: `[B, T, D]`
        num_heads: Number of heads A.
    """
    is_plain = dense.quantization_mode is None and not dense.lora_enabled
    if tpu.is_target() and is_plain:
        return [
            tpu.by_queries(ops.transpose(x, (0, 2, 1, 3)))
            for x in _project_on_tpu(dense, inputs, num_heads)
        ]
    shape = (-1, inputs.shape[1], *_columns(dense, num_heads))
    qkv = reshape(dense(inputs), shape)  # [B, T, A, 3, E]
    qkv = ops.transpose(qkv, (3, 0, 2, 1, 4))  # [3, B, A, T, E]
    # The gradient of each slice would be an array as large as all three.
    return ops.unstack(qkv, axis=0)


def _project_on_tpu(dense, inputs, num_heads):
    """Returns q, k and v of all heads, each `[B, T, A, E]`.

    It sorts the columns of the kernel by q, k and v instead of the result,
    which is much larger, and of which XLA makes two copies more. The biases are
    added last: XLA computes their gradients where it computes those of q, k
    and v.
    """
    columns = _columns(dense, num_heads)
    dtype = dense.compute_dtype
    kernel = tpu.gradient_by_rows(ops.cast(dense.kernel, dtype))
    kernel = ops.reshape(kernel, (-1, *columns))
    kernel = ops.transpose(kernel, (0, 2, 1, 3))  # [D, 3, A, E]
    qkv = ops.einsum("btd,dqae->btqae", ops.cast(inputs, dtype), kernel)
    parts = ops.unstack(qkv, axis=2)
    if dense.bias is None:
        return parts
    bias = ops.reshape(ops.cast(dense.bias, dtype), columns)
    biases = ops.unstack(bias, axis=1)
    return [x + b for x, b in zip(parts, biases, strict=True)]


def _columns(dense, num_heads):
    return (num_heads, 3, dense.units // (3 * num_heads))
