"""Normalisation of channels."""

import keras
from keras import ops

from keras_vit.ops.common import wide_dtype, with_derivative


def layer_norm(layer: keras.layers.LayerNormalization, inputs, plain):
    """Return the normalisation of the last axis, with fewer passes under JAX.

    There Keras reads the input for the mean, again for the variance, and again
    for the gradient of the variance by the mean, which is zero and left out
    here. With inputs of bfloat16 the variance is E[x^2] - E[x]^2 in float32, as
    in Flax, and XLA computes both sums where it computes x. When the mean is
    2^8 times the deviation, the difference loses 16 of 24 bits; bfloat16, which
    has 8, has lost the deviation before.

    Args:
        layer: The layer, whose weights are used.
        inputs: `[..., D]`
        plain: What Keras computes.
    """
    if keras.backend.backend() != "jax":
        return plain(inputs)
    dtype = wide_dtype(inputs.dtype)
    x = ops.cast(inputs, dtype)
    mean = ops.mean(x, axis=-1, keepdims=True)
    if keras.backend.standardize_dtype(inputs.dtype) == "bfloat16":
        square = ops.mean(ops.square(x), axis=-1, keepdims=True)
        variance = ops.maximum(square - ops.square(mean), 0.0)
    else:
        variance = _variance(x, mean)
    scale = ops.rsqrt(variance + layer.epsilon) * ops.cast(layer.gamma, dtype)
    x = (x - mean) * scale + ops.cast(layer.beta, dtype)
    return ops.cast(x, layer.compute_dtype)


def _derive_variance(primals, tangents):
    (x, mean), (change, _) = primals, tangents
    # That of the mean has the factor mean(x - mean), which is zero.
    products = (x - mean) * change
    variance = _variance(x, mean)
    return variance, 2 * ops.mean(products, axis=-1, keepdims=True)


@with_derivative(_derive_variance)
def _variance(x, mean):
    return ops.mean(ops.square(x - mean), axis=-1, keepdims=True)


def group_norm(layer: keras.layers.GroupNormalization, inputs, plain):
    """Return the normalisation of groups of channels, stable on PyTorch too.

    There Keras computes the variance as E[x^2] - E[x]^2. For a group of large
    and nearly equal values, such as a 1x1 feature map has, rounding makes it
    negative, and the output NaN. Here each group becomes one row of a layer
    normalisation, in float32 or wider. Inputs of bfloat16 take PyTorch's group
    normalisation, which is several times as fast: it takes E[x^2] - E[x]^2 in
    float32, too, but not below zero, and what the difference loses, bfloat16
    has lost before.

    Args:
        layer: The layer, whose weights are used.
        inputs: `[B, ..., C]`
        plain: What Keras computes.
    """
    if keras.backend.backend() != "torch":
        return plain(inputs)
    if keras.backend.standardize_dtype(inputs.dtype) == "bfloat16":
        import torch

        x = torch.nn.functional.group_norm(
            torch.movedim(inputs, -1, 1),
            layer.groups,
            ops.cast(layer.gamma, "bfloat16"),
            ops.cast(layer.beta, "bfloat16"),
            layer.epsilon,
        )
        return torch.movedim(x, 1, -1)
    shape = ops.shape(inputs)
    by_group = (shape[0], -1, layer.groups, shape[-1] // layer.groups)
    x = ops.reshape(ops.cast(inputs, wide_dtype(inputs.dtype)), by_group)
    x = ops.transpose(x, (0, 2, 1, 3))
    grouped = ops.shape(x)
    x = ops.reshape(x, (*grouped[:2], -1))
    x = ops.layer_normalization(x, epsilon=layer.epsilon)
    x = ops.transpose(ops.reshape(x, grouped), (0, 2, 1, 3))
    x = ops.reshape(x, shape) * layer.gamma + layer.beta
    return ops.cast(x, layer.compute_dtype)


def unit_length(x):
    """Return vectors divided by their lengths.

    Args:
        x: `[..., D]`
    """
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    # Of a vector of zeros the gradient would not be a number.
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))
