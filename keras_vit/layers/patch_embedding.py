"""Patch embedding: an image becomes a sequence of linear projections."""

import math
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Count, Pair, as_pair, checked
from keras_vit.layers.dense import uniform
from keras_vit.ops.shapes import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(keras.layers.Layer):
    """Cuts an image into patches and projects each to `hidden_size` values.

    Equation 1 without the class token: `[x_p^1 E; ...; x_p^N E] + bias`. It is
    the convolution whose stride equals its kernel, written as one matrix
    product over the flattened patches.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of a token.
        use_bias: Whether the projection has a bias.
        initializer: Of the kernel and the bias: "lecun_normal" and zeros
            (Flax), or for both "uniform" (PyTorch, `dense.uniform`).

    Input shape: `[B, H, W, C]`, H and W multiples of the patch.
    Output shape: `[B, N, D]`, patches in raster order.

    Raises:
        ValueError: If H or W is unknown or not a multiple of the patch, or if a
            later call has images of another shape.

    Reference:
        Dosovitskiy et al. 2021, section 3.1; checked against the layer
        `embedding` in vit_jax/models_vit.py.
    """

    @checked
    def __init__(
        self,
        patch_size: Pair,
        hidden_size: Count,
        use_bias: bool = True,
        initializer: Literal["lecun_normal", "uniform"] = "lecun_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = as_pair(patch_size)
        self.hidden_size = hidden_size
        self.use_bias = use_bias
        self.initializer = initializer

    def build(self, input_shape):
        self._image_shape = tuple(input_shape[1:])
        self.grid_size = _grid_size(input_shape, self.patch_size, self.name)
        kernel, bias = "lecun_normal", "zeros"
        if self.initializer == "uniform":
            fan_in = math.prod((*self.patch_size, input_shape[-1]))
            kernel, bias = uniform(fan_in), uniform(fan_in)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.patch_size, input_shape[-1], self.hidden_size),
            initializer=kernel,
        )
        self.bias = 0.0
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.hidden_size,), initializer=bias
            )

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._image_shape)
        (rows, columns), (height, width) = self.grid_size, self.patch_size
        channels = inputs.shape[-1]
        x = ops.reshape(inputs, (-1, rows, height, columns, width, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, rows * columns, height * width * channels))
        kernel = ops.reshape(self.kernel, (-1, self.hidden_size))
        return ops.matmul(x, kernel) + self.bias  # [B, N, D]

    def compute_output_shape(self, input_shape):
        rows, columns = _grid_size(input_shape, self.patch_size, self.name)
        return (input_shape[0], rows * columns, self.hidden_size)


def _grid_size(input_shape, patch_size, name):
    """Return the number of patches per column and per row of an image."""
    size = tuple(input_shape[1:3])
    if any(n is None or n % p for n, p in zip(size, patch_size, strict=True)):
        raise ValueError(
            f"PatchEmbedding `{name}` needs an image whose height and width "
            f"are known multiples of the patch, {patch_size[0]}x"
            f"{patch_size[1]} pixels. Received: height={size[0]}, "
            f"width={size[1]}. Resize or crop the image, or choose another "
            "`input_shape` or `patch_size`. Images are channels-last, "
            "[B, H, W, C]."
        )
    return size[0] // patch_size[0], size[1] // patch_size[1]
