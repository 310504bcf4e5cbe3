"""The base of all ResNet units: GroupNorm and standardised convolutions."""

from typing import Literal

from keras_vit._arguments import Count, checked
from keras_vit.layers.block import Block
from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.std_conv import StdConv2D

# The epsilons of GroupNorm and of the standardised convolutions, by source. On
# a small random hybrid of timm they change logits by 1e-5 of the largest.
Numerics = Literal["authors", "timm", "bit", "scenic"]
NUMERICS: dict[str, tuple[float, dict]] = {
    "authors": (1e-6, dict(epsilon=1e-5)),
    "timm": (1e-5, dict(epsilon=0.0, variance_epsilon=1e-8)),
    "bit": (1e-5, dict(epsilon=0.0, variance_epsilon=1e-10)),
    "scenic": (1e-4, dict(epsilon=0.0, variance_epsilon=1e-10)),
}


def group_norm(layer, name, **kwargs):
    """Make a GroupNorm of 32 groups with the layer's `numerics`."""
    return layer.make(
        GroupNorm,
        groups=32,
        epsilon=NUMERICS[layer.numerics][0],
        name=name,
        **kwargs,
    )


def std_conv(layer, filters, kernel_size, strides, name, padding="same"):
    """Make a standardised convolution with the layer's `numerics`."""
    return layer.make(
        StdConv2D,
        filters,
        kernel_size,
        strides,
        padding=padding,
        **NUMERICS[layer.numerics][1],
        name=name,
    )


class ResidualUnit(Block):
    """A bottleneck of three convolutions and a shortcut.

    Args:
        filters: Width of the bottleneck; the output is four times as wide.
        strides: Stride of the 3x3 convolution.
        numerics: A key of `NUMERICS`.
        remat: Whether the unit recomputes its activations in the backward
            pass: less memory, a third more work.
    """

    @checked
    def __init__(
        self,
        filters: Count,
        strides: Count = 1,
        numerics: Numerics = "authors",
        remat: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        self.numerics = numerics
        self.remat = remat

    def build(self, input_shape):
        self.needs_projection = (
            self.strides != 1 or input_shape[-1] != 4 * self.filters
        )

    def compute_output_shape(self, input_shape):
        batch_size, height, width, _ = input_shape
        height, width = (
            None if n is None else -(-n // self.strides)
            for n in (height, width)
        )
        return (batch_size, height, width, 4 * self.filters)
