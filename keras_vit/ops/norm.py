"""Normalisation of channels."""

import keras
from keras import ops

from keras_vit.ops.dtypes import wide_dtype
from keras_vit.ops.linear import is_transformed
from keras_vit.ops.xla import by_rows, targets_cpu, with_derivative


def layer_norm(layer: keras.layers.LayerNormalization, inputs, plain):
    """Return the normalisation of the last axis, with fewer passes under JAX.

    There Keras reads the input for the mean, again for the variance, and again
    for the gradient of the variance by the mean, which is zero and left out
    here. On CPUs XLA also keeps four arrays for the gradient; the one derived
    here keeps the normalised values. Elsewhere, with inputs of bfloat16, the
    variance is E[x^2] - E[x]^2 in float32, as in Flax, and XLA computes both
    sums where it computes x. When the mean is 2^8 times the deviation, the
    difference loses 16 of 24 bits; bfloat16, which has 8, has lost the
    deviation before.

    Args:
        layer: The layer, whose weights are used.
        inputs: `[..., D]`
        plain: What Keras computes.
    """
    if keras.backend.backend() != "jax":
        return plain(inputs)
    return by_rows(lambda x: _layer_norm(layer, x), inputs)


def _layer_norm(layer, inputs):
    dtype = wide_dtype(inputs.dtype)
    x = ops.cast(inputs, dtype)
    if targets_cpu():
        gamma, beta = (ops.cast(w, dtype) for w in (layer.gamma, layer.beta))
        x = _normalize_rows(x, gamma, beta, layer.epsilon)
        return ops.cast(x, layer.compute_dtype)
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


def _derive_rows(primals, tangents):
    (x, gamma, beta, epsilon), (change, of_gamma, of_beta, _) = (
        primals,
        tangents,
    )
    y, scale = _standardize(x, epsilon)
    mean = ops.mean(change, axis=-1, keepdims=True)
    share = ops.mean(y * change, axis=-1, keepdims=True)
    # Products of matrices, since XLA writes gamma out for each row where it
    # sums what gamma multiplies.
    row = ops.expand_dims(gamma, 0)
    of_x = scale * change * gamma - ops.matmul(scale * mean, row)
    of_x = of_x - y * ops.matmul(scale * share, row)
    return y * gamma + beta, of_x + y * of_gamma + of_beta


# On CPUs JAX keeps four arrays for the derivative; this one keeps y.
@with_derivative(_derive_rows)
def _normalize_rows(x, gamma, beta, epsilon):
    y, _ = _standardize(x, epsilon)
    return y * gamma + beta


def _standardize(x, epsilon):
    """Return y = (x - mean) scale, and scale, the inverse of the deviation."""
    difference = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(difference), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon)
    return difference * scale, scale


def group_norm(layer: keras.layers.GroupNormalization, inputs, plain):
    """Return the normalisation of groups of channels, stable on PyTorch too.

    There both Keras and PyTorch compute the variance as E[x^2] - E[x]^2. For a
    group of large and nearly equal values, such as a 1x1 feature map has,
    rounding makes it zero, or negative and the output NaN. Here the mean of a
    group is subtracted first, which the output does not depend on, and
    PyTorch's function, several times as fast as Keras' form, does the rest. Of
    bfloat16 the difference loses nothing that was not lost before.

    Args:
        layer: The layer, whose weights are used.
        inputs: `[B, ..., C]`
        plain: What Keras computes.
    """
    if keras.backend.backend() != "torch":
        return plain(inputs)
    import torch

    dtype = keras.backend.standardize_dtype(inputs.dtype)
    if dtype != "bfloat16":
        dtype = wide_dtype(dtype)
        inputs = ops.cast(inputs, dtype)
        inputs = inputs - _means_of_groups(inputs.detach(), layer.groups)
    x = torch.movedim(inputs, -1, 1)
    if torch.is_grad_enabled() or is_transformed(x):
        # Of inputs that are channels-last in memory PyTorch has no batched
        # derivative, and none in forward mode.
        x = x.contiguous()
    x = torch.nn.functional.group_norm(
        x,
        layer.groups,
        ops.cast(layer.gamma, dtype),
        ops.cast(layer.beta, dtype),
        layer.epsilon,
    )
    return ops.cast(torch.movedim(x, 1, -1), layer.compute_dtype)


def _means_of_groups(x, groups):
    """Return the mean of each channel's group, `[B, 1, ..., 1, C]`."""
    channels = x.shape[-1]
    means = ops.mean(x, axis=tuple(range(1, len(x.shape) - 1)), keepdims=True)
    grouped = (*means.shape[:-1], groups, channels // groups)
    means = ops.mean(ops.reshape(means, grouped), axis=-1)
    return ops.repeat(means, channels // groups, axis=-1)


def unit_length(x, axis: int = -1):
    """Return vectors divided by their lengths.

    Args:
        x: `[..., D]`
        axis: The axis of the values of a vector.
    """
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    # Of a vector of zeros the gradient would not be a number.
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))
