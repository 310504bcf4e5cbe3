"""Pixels of patches: what a masked autoencoder predicts, and its errors."""

from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked

# What is predicted of a patch: its pixels, as the model scales them; MAE's,
# normalised by their mean and variance; VideoMAE's, normalised by those of
# each channel.
Target = Literal["pixels", "patch", "channel"]
# VideoMAE takes the scaling of ImageNet back before it normalises.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchErrors(keras.layers.Layer):
    """Returns the mean squared error of each patch's prediction.

        e_i = mean (p_i - t_i)^2,   t_i = (x_i - mean x_i) / sqrt(var x_i + eps)

    The variance of the P * P * C values of a patch is the unbiased one.

    Args:
        patch_size: (frames, height, width) of a patch; 1 frame of an image.
        target: t: "pixels", x themselves; "patch", as above; "channel", as
            above of each channel alone, with eps added to the standard
            deviation.
        unscale: Whether ImageNet's scaling of three channels is taken back
            from x (VideoMAE).

    Call arguments:
        inputs: Scaled images or videos x, `[B, H, W, C]` or
            `[B, T, H, W, C]`.
        predictions: p, `[B, N, T' * P * P * C]`.

    Output shape: `[B, N]`

    Reference:
        He et al. 2021 (2111.06377), Tong et al. 2022 (2203.12602); checked
        against ViTMAE and VideoMAE of transformers.
    """

    @checked
    def __init__(
        self,
        patch_size: tuple[Count, Count, Count],
        target: Target = "patch",
        unscale: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = tuple(patch_size)
        self.target = target
        self.unscale = unscale

    def call(self, inputs, predictions):
        values = self._normalised(self._values(inputs))
        shape = (-1, predictions.shape[1], predictions.shape[2])
        differences = predictions - ops.reshape(values, shape)
        return ops.mean(ops.square(differences), axis=-1)

    def _values(self, inputs):
        """Return the pixels of patches, `[B, N, pixels, C]`."""
        values = cut(inputs, self.patch_size)
        if self._unscales(values):
            return values * _constant(_STD, values) + _constant(_MEAN, values)
        return values

    def _unscales(self, values):
        return self.unscale and values.shape[-1] == 3

    def original(self, predictions, inputs):
        """Return predictions as pixels in the scale of `inputs`.

        Args:
            predictions: `[B, N, pixels, C]`.
            inputs: The images or videos whose mean and variance they get.
        """
        values = self._values(inputs)
        if self.target != "pixels":
            mean, variance = moments(values, self.target)
            small = 1e-6 if self.target == "patch" else 0.0
            predictions = predictions * ops.sqrt(variance + small) + mean
        if self._unscales(values):
            predictions = predictions - _constant(_MEAN, values)
            predictions = predictions / _constant(_STD, values)
        return predictions

    def _normalised(self, values):
        """Return the targets of `[B, N, pixels, C]`."""
        if self.target == "pixels":
            return values
        mean, variance = moments(values, self.target)
        if self.target == "channel":
            return (values - mean) / (ops.sqrt(variance) + 1e-6)
        return (values - mean) / ops.sqrt(variance + 1e-6)

    def compute_output_shape(self, inputs_shape, predictions_shape):
        return predictions_shape[:-1]


def moments(values, target: Target):
    """Return the mean and the unbiased variance of patches.

    Args:
        values: `[B, N, pixels, C]`.
        target: "patch", over pixels and channels; "channel", over pixels.
    """
    axes = (2,) if target == "channel" else (2, 3)
    count = int(np.prod([values.shape[i] for i in axes]))
    mean = ops.mean(values, axis=axes, keepdims=True)
    squares = ops.sum(ops.square(values - mean), axis=axes, keepdims=True)
    return mean, squares / max(1, count - 1)


def cut(x, patch_size: tuple[int, ...]):
    """Return the patches of images or videos, `[B, N, pixels, C]`.

    Args:
        x: `[B, H, W, C]`, or `[B, T, H, W, C]`; its sizes are multiples.
        patch_size: (frames, height, width) of a patch.
    """
    *sizes, channels = x.shape[1:]
    sizes = (1, *sizes) if len(sizes) == 2 else sizes
    pairs = zip(sizes, patch_size, strict=True)
    (t, p), (h, q), (w, r) = ((n // side, side) for n, side in pairs)
    x = ops.reshape(x, (-1, t, p, h, q, w, r, channels))
    x = ops.transpose(x, (0, 1, 3, 5, 2, 4, 6, 7))
    return ops.reshape(x, (-1, t * h * w, p * q * r, channels))


def join(patches: np.ndarray, shape: tuple[int, ...], patch_size) -> np.ndarray:
    """Invert `cut`.

    Args:
        patches: `[B, N, pixels, C]`, or with the last two axes as one.
        shape: That of an image or a video, without the batch.
        patch_size: See `cut`.
    """
    *sizes, channels = shape
    sizes = (1, *sizes) if len(sizes) == 2 else sizes
    grid = tuple(n // p for n, p in zip(sizes, patch_size, strict=True))
    x = patches.reshape(-1, *grid, *patch_size, channels)
    return x.transpose(0, 1, 4, 2, 5, 3, 6, 7).reshape(-1, *shape)


def _constant(numbers, like):
    return ops.convert_to_tensor(np.array(numbers), like.dtype)
