"""What heads on feature maps share: layers, convolutions, levels."""

from collections.abc import Sequence
from typing import Literal

import keras
import numpy as np

from keras_vit._arguments import Count, as_pair, checked
from keras_vit.layers.keras_layers import Conv2DTranspose, uniform
from keras_vit.models.image_model import ImageModel
from keras_vit.models.maps import feature_maps
from keras_vit.ops import resize
from keras_vit.weights.resize import METHODS


@keras.saving.register_keras_serializable(package="keras_vit")
class Resize(keras.layers.Layer):
    """Resizes maps bilinearly.

    Args:
        size: (H, W) of the result.
        align_corners: Whether the centres of the corners stay where they are.

    Input shape: `[B, h, w, C]`
    Output shape: `[B, H, W, C]`
    """

    @checked
    def __init__(
        self, size: tuple[Count, Count], align_corners: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        self.size = as_pair(size)
        self.align_corners = align_corners

    def call(self, inputs):
        return resize.bilinear(inputs, self.size, self.align_corners)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.size, input_shape[-1])


def convolution(
    x,
    filters: int,
    size: int,
    name: str,
    strides: int = 1,
    padding: Literal["same", "valid"] = "same",
    use_bias: bool = True,
    dtype: str | None = None,
    bias: float | None = None,
):
    """Apply a convolution, with PyTorch's first values.

    Args:
        x: `[B, H, W, C]`
        filters, strides, padding, use_bias, dtype: See `keras.layers.Conv2D`.
        size: Side of the kernel.
        name: Name of the layer.
        bias: First value of the bias; None for that of PyTorch.
    """
    first = uniform(x.shape[-1] * size**2)
    return keras.layers.Conv2D(
        filters,
        size,
        strides,
        padding,
        data_format="channels_last",
        use_bias=use_bias,
        kernel_initializer=first,
        bias_initializer=(
            first if bias is None else keras.initializers.Constant(bias)
        ),
        dtype=dtype,
        name=name,
    )(x)


def transposed_convolution(
    x, filters: int, size: int, name: str, strides: int, use_bias: bool = True
):
    """Apply a transposed convolution; maps become `strides` times as large."""
    first = uniform(filters * size**2)
    return Conv2DTranspose(
        filters,
        size,
        strides,
        "same",
        data_format="channels_last",
        use_bias=use_bias,
        kernel_initializer=first,
        bias_initializer=first,
        name=name,
    )(x)


def batch_norm(x, name: str):
    """Apply a BatchNorm with PyTorch's constants."""
    return keras.layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, name=name
    )(x)


def is_pyramid(inner: ImageModel) -> bool:
    """Whether the maps of a backbone are levels of different sizes."""
    return hasattr(inner.architecture, "depths")


def check_images(inner: ImageModel, head: str) -> None:
    """Refuse a backbone of videos, whose maps have an axis of time."""
    if inner.num_frames is not None:
        raise ValueError(
            f"`backbone` must be a model of images for the head {head!r}. "
            f"Received: {inner.name!r}, of videos of {inner.num_frames} frames"
        )


def four_blocks(
    inner: ImageModel, blocks: Sequence[int] | None
) -> list[int] | None:
    """Return the blocks whose maps a head with four levels takes.

    Args:
        inner: The backbone.
        blocks: Those that the caller chose, counted from 1, or from -1 back, or
            None for four at equal distances, the last of which is the last.

    Returns:
        Their numbers; None for a pyramid, all of whose levels are taken.

    Raises:
        ValueError: If they are not four, in order, or the backbone is a
            pyramid.
    """
    if is_pyramid(inner):
        if blocks is not None:
            raise ValueError(
                f"`blocks` must be None for {inner.name}, a pyramid, all of "
                f"whose levels are taken. Received: blocks={list(blocks)}"
            )
        return None
    count = len(inner.blocks)
    if blocks is None:
        # A model of fewer blocks gives some maps twice.
        blocks = [max(1, count * i // 4) for i in (1, 2, 3, 4)]
    found = [n if n > 0 else count + 1 + n for n in blocks]
    is_ordered = len(found) == 4 and sorted(found) == found
    if not is_ordered or not 1 <= found[0] <= found[-1] <= count:
        raise ValueError(
            f"`blocks` must be the numbers of four of the {count} blocks of "
            f"{inner.name}, counted from 1 and in order. Received: "
            f"blocks={list(blocks)}"
        )
    return found


def scaled(x, factor: int) -> tuple[int, int]:
    """Return (height, width) of maps, times a factor."""
    return x.shape[1] * factor, x.shape[2] * factor


def levels_of(inner: ImageModel, blocks, last_norm: bool, class_tokens: bool):
    """Return the maps of blocks or levels, and the class token of each.

    Args:
        inner: The backbone.
        blocks: Numbers of blocks; None for the levels of a pyramid.
        last_norm: Whether the last norm is applied.
        class_tokens: Whether to return them, `[B, 1, D]`; an empty list.
    """
    numbers = None if blocks is None else sorted(set(blocks))
    found = feature_maps(
        inner, numbers, norm=last_norm, prefix_tokens=class_tokens
    ).output
    if class_tokens:
        every = [found[f"prefix_tokens_{n}"][:, :1] for n in blocks]
        return [found[f"map_{n}"] for n in blocks], every
    found = found if isinstance(found, list) else [found]
    if numbers is not None:
        found = [found[numbers.index(n)] for n in blocks]
    return found, []


def depth_map(depth: np.ndarray, image_size: tuple[int, int]) -> dict:
    """Return a depth map at the size of the image, by cubic interpolation."""
    rows, columns = (
        METHODS["bicubic"](m, n)
        for m, n in zip(depth.shape, image_size, strict=True)
    )
    return dict(depth=(rows @ depth @ columns.T).astype(depth.dtype))
