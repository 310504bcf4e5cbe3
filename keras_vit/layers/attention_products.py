"""The products of queries, keys and values, and their shapes."""

import keras
from keras import ops


def scores(query, key):
    """Returns q k^T / sqrt(E), `[B, A, T, T']`.

    Args:
        query: Of all heads, `[B, A, T, E]`.
        key: `[B, A, T', E]`.
    """
    # Scaled before the product, so that float16 scores do not overflow.
    query = query * query.shape[-1] ** -0.5
    if keras.backend.backend() == "torch":
        # The product would copy the transposed key, in whose order of memory a
        # copy takes ten times as long.
        key = key.contiguous()
    return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))


def reshape(x, shape):
    """Returns `ops.reshape(x, shape)`.

    In each call Keras looks for symbols in the shape. Under PyTorch, which does
    not trace programs, this takes 15 times as long as the operation.
    """
    if keras.backend.backend() == "torch":
        return x.reshape(shape)
    return ops.reshape(x, shape)


def fused_attention(query, key, value):
    """Returns softmax(q k^T / sqrt(E)) v by one operation, `[B, T, A, E]`.

    Args:
        query: Of all heads, `[B, A, T, E]`.
        key: `[B, A, T', E]`.
        value: `[B, A, T', E]`.
    """
    if keras.backend.backend() == "torch":
        import torch

        # Keras copies all three to other orders of memory. PyTorch chooses
        # among its kernels itself.
        x = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return ops.transpose(x, (0, 2, 1, 3))
    return ops.dot_product_attention(
        *(ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    )
