"""The products of queries, keys and values, and their shapes."""

import functools

import keras
from keras import ops

from keras_vit.ops.linear import needs_gradient
from keras_vit.ops.transforms import is_compiled, is_transformed


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
        attend = torch.nn.functional.scaled_dot_product_attention
        if not is_compiled():
            if is_transformed(query, key, value):
                attend = _explicit_attention
            elif needs_gradient(query, key, value):
                attend = _twice_differentiable()
        return ops.transpose(attend(query, key, value), (0, 2, 1, 3))
    return ops.dot_product_attention(
        *(ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    )


def _explicit_attention(query, key, value):
    return scores(query, key).softmax(-1) @ value


@functools.cache
def _twice_differentiable():
    """Returns PyTorch's fused attention, with a gradient that has a gradient.

    PyTorch's has none. Where one is asked for, the gradient is computed from
    the weights of all pairs of tokens.
    """
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            with torch.enable_grad():
                copies = [x.detach().requires_grad_() for x in inputs]
                y = torch.nn.functional.scaled_dot_product_attention(*copies)
            ctx.save_for_backward(*inputs, *copies, y)
            return y.detach()

        @staticmethod
        def backward(ctx, g):
            *tensors, y = ctx.saved_tensors
            if torch.is_grad_enabled() or is_transformed(g, y):
                return _gradients(*tensors[:3], g)
            return torch.autograd.grad(y, tensors[3:], g, retain_graph=True)

    return Attention.apply


def _gradients(query, key, value, g):
    """Returns those of the explicit products, by public operations."""
    scale = query.shape[-1] ** -0.5
    weights = (query @ key.mT * scale).softmax(-1)
    of_weights = g @ value.mT
    mean = (of_weights * weights).sum(-1, keepdim=True)
    of_logits = weights * (of_weights - mean) * scale
    return of_logits @ key, of_logits.mT @ query, weights.mT @ g
