"""Attention: queries, keys and values, and the products of these."""

import functools
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import checked
from keras_vit.ops import xla
from keras_vit.ops.dtypes import at_least_float32
from keras_vit.ops.linear import is_compiled, is_transformed, needs_gradient
from keras_vit.ops.xla import with_derivative

Choice = Literal["auto", "fused", "explicit"]

# Where "auto" is "fused": (backend, device, dtype) -> the smallest size of the
# attention weights in float32, [B, A, T, T], in MiB. Elsewhere, and always on
# TPUs and with TensorFlow and JAX on CPUs, it is "explicit".
#
# Measured on a CPU with two cores: time of the layer of ViT-B, fused divided by
# explicit (python -m tools.benchmark.attention):
#
#                      TensorFlow     JAX            PyTorch
#                      infer  train   infer  train   infer  train
#   float32,    2 MiB  1.07   1.03    1.17   1.15    0.91   0.89
#   float32,   14 MiB  1.11   1.16    1.13   1.16    0.71   0.92
#   float32,   61 MiB  1.14   1.20    1.45   1.44    0.60   0.75
#   bfloat16,   2 MiB  1.07   0.93    1.07   1.11    1.16   1.38
#   bfloat16,  14 MiB  1.06   1.09    1.58   1.13    1.28   1.49
#   bfloat16,  61 MiB  1.14   1.16    1.26   1.33    1.40   1.58
#   bfloat16, 192 MiB                                0.95   1.07
#
# On GPUs, which were not measured, the fused kernels of PyTorch and of cuDNN
# never write the weights; cuDNN has none for float32.
_FUSED_FROM = {
    ("torch", "cpu", "float32"): 0,
    ("torch", "cpu", "bfloat16"): 128,
    ("torch", "cuda", "float32"): 0,
    ("torch", "cuda", "float16"): 0,
    ("torch", "cuda", "bfloat16"): 0,
    ("jax", "gpu", "float16"): 0,
    ("jax", "gpu", "bfloat16"): 0,
}

_chosen: Choice = "auto"


@checked
def set_attention_implementation(name: Choice) -> None:
    """Select the implementation of self-attention.

    It holds for ViT and the ViTs after the paper, and for all models of the
    process that are traced afterwards. Dropout of attention weights, relative
    positions and `attention_weights` always use the explicit products.

    Args:
        name: "fused" is `keras.ops.dot_product_attention`, with PyTorch
            `scaled_dot_product_attention`, which never stores the weights of
            all pairs of tokens; "explicit" is two matrix products with a
            softmax between; "auto", the default, is what
            `keras.config.enable_flash_attention` and its opposite say, and
            without them the faster one for the backend, the device, the dtype
            and the size.

    Raises:
        ValueError: If the name is unknown.

    Example:
        keras_vit.layers.set_attention_implementation("explicit")
    """
    global _chosen
    _chosen = name


def is_fused(inputs, num_heads: int) -> bool:
    """Return whether attention is fused, where it can be.

    Args:
        inputs: Tokens in the dtype of the computation, `[B, T, D]`.
        num_heads: Number of heads A.
    """
    if _chosen != "auto":
        return _chosen == "fused"
    enabled = keras.config.is_flash_attention_enabled()
    if enabled is not None:
        return enabled
    backend = keras.backend.backend()
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    size = _FUSED_FROM.get((backend, _device(backend, inputs), dtype))
    if not size:
        return size is not None
    batch_size, tokens, _ = inputs.shape
    if not (isinstance(batch_size, int) and isinstance(tokens, int)):
        return False  # a symbol of an export
    return 4 * batch_size * num_heads * tokens**2 >= size * 2**20


def _device(backend, x):
    if backend == "torch":
        return x.device.type
    if backend == "jax":
        import jax

        return jax.default_backend()
    return "any"


def by_head(dense: keras.layers.Dense, inputs, num_heads: int) -> list:
    """Return q, k and v of all heads, each `[B, A, T, E]`.

    Args:
        dense: A built layer of 3 D units, whose columns are `[A, 3, E]`.
        inputs: `[B, T, D]`
        num_heads: Number of heads A.
    """
    if _projects_on_tpu(dense):
        return [
            xla.by_queries(ops.transpose(x, (0, 2, 1, 3)))
            for x in by_token(dense, inputs, num_heads)
        ]
    shape = (-1, num_tokens(inputs), *_columns(dense, num_heads))
    qkv = ops.reshape(dense(inputs), shape)  # [B, T, A, 3, E]
    qkv = ops.transpose(qkv, (3, 0, 2, 1, 4))  # [3, B, A, T, E]
    # The gradient of each slice would be an array as large as all three.
    return ops.unstack(qkv, axis=0)


def num_tokens(x):
    """Return the number of tokens of `[B, T, ...]`, also if it is a symbol."""
    return ops.shape(x)[1] if x.shape[1] is None else x.shape[1]


def by_token(dense: keras.layers.Dense, inputs, num_heads: int) -> list:
    """Return q, k and v of all tokens, each `[B, ..., A, E]`.

    On TPUs, it sorts the columns of the kernel by q, k and v instead of the
    result, which is much larger, and of which XLA makes two copies more. The
    biases are added last: XLA computes their gradients where it computes those
    of q, k and v.

    Args:
        dense: See `by_head`.
        inputs: `[B, ..., D]`
        num_heads: Number of heads A.
    """
    columns = _columns(dense, num_heads)
    if not _projects_on_tpu(dense):
        shape = (-1, *inputs.shape[1:-1], *columns)
        return ops.unstack(ops.reshape(dense(inputs), shape), axis=-2)
    dtype = dense.compute_dtype
    kernel = xla.gradient_by_rows(ops.cast(dense.kernel, dtype))
    kernel = ops.reshape(kernel, (-1, *columns))
    kernel = ops.transpose(kernel, (0, 2, 1, 3))  # [D, 3, A, E]
    inputs = ops.cast(inputs, dtype)
    if xla.are_few(inputs.shape[1]):
        # Each by itself: to put three gradients together takes longer.
        parts = [
            ops.einsum("b...d,dae->b...ae", inputs, part)
            for part in ops.unstack(kernel, axis=1)
        ]
    else:
        qkv = ops.einsum("b...d,dqae->b...qae", inputs, kernel)
        parts = ops.unstack(qkv, axis=-3)
    if dense.bias is None:
        return parts
    bias = ops.reshape(ops.cast(dense.bias, dtype), columns)
    biases = ops.unstack(bias, axis=1)
    return [x + b for x, b in zip(parts, biases, strict=True)]


def join_heads(dense: keras.layers.Dense, x):
    """Return the projection of the results of all heads, `[B, ..., D]`.

    Args:
        dense: A built layer of D units.
        x: `[B, ..., A, E]`
    """
    *_, heads, size = x.shape
    if not _projects_on_tpu(dense):
        return dense(ops.reshape(x, (-1, *x.shape[1:-2], heads * size)))
    kernel = ops.reshape(ops.cast(dense.kernel, x.dtype), (heads, size, -1))
    y = ops.einsum("...ae,aed->...d", x, kernel)
    return y if dense.bias is None else y + ops.cast(dense.bias, y.dtype)


def _projects_on_tpu(dense):
    is_plain = dense.quantization_mode is None and not dense.lora_enabled
    return xla.targets_tpu() and is_plain


def _columns(dense, num_heads):
    return (num_heads, 3, dense.units // (3 * num_heads))


def scores(query, key):
    """Return q k^T / sqrt(E), `[B, A, T, T']`.

    Args:
        query: Of all heads, `[B, A, T, E]`.
        key: `[B, A, T', E]`.
    """
    # Scaled before the product, so that float16 scores do not overflow.
    query = query * query.shape[-1] ** -0.5
    return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))


def fused_attention(query, key, value, bias=None):
    """Return softmax(q k^T / sqrt(E) + b) v by one operation, `[B, T, A, E]`.

    Args:
        query: Of all heads, `[B, A, T, E]`.
        key: `[B, A, T', E]`.
        value: `[B, A, T', E]`.
        bias: b, `[B, 1, T, T']`, which gets no gradient, or None.
    """
    if keras.backend.backend() == "torch":
        import torch

        # Keras copies all three to other orders of memory. PyTorch chooses
        # among its kernels itself.
        attend = torch.nn.functional.scaled_dot_product_attention
        if not is_compiled():
            if is_transformed(query, key, value):
                attend = _explicit_attention
            elif needs_gradient(query, key, value):
                attend = _twice_differentiable()
        return ops.transpose(attend(query, key, value, bias), (0, 2, 1, 3))
    return ops.dot_product_attention(
        *(ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)),
        bias=bias,
    )


def causal_attention(query, key, value):
    """Return attention to the tokens before, `[B, T, A, E]`, by one operation.

    None where there is no such operation, or where it has no gradient that has
    a gradient.

    Args:
        query, key, value: Of all heads, `[B, A, T, E]`.
    """
    if keras.backend.backend() == "torch":
        import torch

        if is_transformed(query, key, value) or (
            not is_compiled() and needs_gradient(query, key, value)
        ):
            return None
        attend = torch.nn.functional.scaled_dot_product_attention
        x = attend(query, key, value, is_causal=True)
        return ops.transpose(x, (0, 2, 1, 3))
    return ops.dot_product_attention(
        *(ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)),
        is_causal=True,
    )


def _explicit_attention(query, key, value, bias=None):
    logits = scores(query, key)
    logits = logits if bias is None else logits + bias
    return logits.softmax(-1) @ value


@functools.cache
def _twice_differentiable():
    """Return PyTorch's fused attention, with a gradient that has a gradient.

    PyTorch's has none. Where one is asked for, the gradient is computed from
    the weights of all pairs of tokens.
    """
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            *inputs, bias = inputs
            with torch.enable_grad():
                copies = [x.detach().requires_grad_() for x in inputs]
                attend = torch.nn.functional.scaled_dot_product_attention
                y = attend(*copies, bias)
            ctx.save_for_backward(*inputs, bias, *copies, y)
            return y.detach()

        @staticmethod
        def backward(ctx, g):
            *inputs, query, key, value, y = ctx.saved_tensors
            if torch.is_grad_enabled() or is_transformed(g, y):
                return *_gradients(inputs, g), None
            copies = query, key, value
            return *torch.autograd.grad(y, copies, g, retain_graph=True), None

    return Attention.apply


def _gradients(inputs, g):
    """Return those of the explicit products, by public operations."""
    query, key, value, bias = inputs
    scale = query.shape[-1] ** -0.5
    logits = query @ key.mT * scale
    weights = (logits if bias is None else logits + bias).softmax(-1)
    of_weights = g @ value.mT
    mean = (of_weights * weights).sum(-1, keepdim=True)
    of_logits = weights * (of_weights - mean) * scale
    return of_logits @ key, of_logits.mT @ query, weights.mT @ g


def softmax(x, dtype=None):
    """Return the softmax over the last axis, computed in float32 or float64.

    Args:
        x: Logits, `[..., T]`.
        dtype: Of the result; None for that of the computation.
    """
    if keras.backend.backend() == "torch" and _dtype(x) == dtype:
        return ops.softmax(x, axis=-1)  # computes in float32 what is shorter
    y = _softmax(at_least_float32(x))
    return y if dtype is None else ops.cast(y, dtype)


def _derive_softmax(primals, tangents):
    (x,), (change,) = primals, tangents
    y = _softmax(x)
    return y, y * (change - ops.sum(y * change, axis=-1, keepdims=True))


# JAX derives the division, for which it writes two more arrays of this size.
@with_derivative(_derive_softmax)
def _softmax(x):
    return ops.softmax(x, axis=-1)


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
    if xla.targets_tpu():
        return _weighted_sum(xla.by_queries(logits), values)
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
