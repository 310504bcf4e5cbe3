"""The ResNet stem of the hybrids: GroupNorm and standardised convolutions."""

from typing import Literal

import keras

from keras_vit._arguments import Count, Positive, checked
from keras_vit.layers.base import Block, CompositeLayer
from keras_vit.layers.keras_layers import GroupNorm, MaxPooling2D
from keras_vit.layers.std_conv import StdConv2D, strided

# The epsilons of GroupNorm and of the standardised convolutions, by source. On
# a small random hybrid of timm they change logits by 1e-5 of the largest.
Numerics = Literal["authors", "timm", "bit", "scenic"]
NUMERICS: dict[str, tuple[float, dict]] = {
    "authors": (1e-6, dict(epsilon=1e-5)),
    "timm": (1e-5, dict(epsilon=0.0, variance_epsilon=1e-8)),
    "bit": (1e-5, dict(epsilon=0.0, variance_epsilon=1e-10)),
    "scenic": (1e-4, dict(epsilon=0.0, variance_epsilon=1e-10)),
}


def group_norm(layer, name, shape, **kwargs):
    """Make a GroupNorm of 32 groups with the layer's `numerics`."""
    return layer.make(
        GroupNorm,
        groups=32,
        epsilon=NUMERICS[layer.numerics][0],
        name=name,
        shape=shape,
        **kwargs,
    )


def std_conv(layer, filters, kernel_size, strides, name, shape, padding="same"):
    """Make a standardised convolution with the layer's `numerics`.

    Returns:
        The layer, and the shape of its outputs.
    """
    conv = layer.make(
        StdConv2D,
        filters,
        kernel_size,
        strides,
        padding=padding,
        **NUMERICS[layer.numerics][1],
        name=name,
        shape=shape,
    )
    return conv, conv.compute_output_shape(shape)


class ResidualUnit(Block):
    """A bottleneck of three convolutions and a shortcut.

    Args:
        filters: Width of the bottleneck; the output is four times as wide.
        strides: Stride of the 3x3 convolution.
        numerics: A key of `NUMERICS`.
        **kwargs: Arguments of `Block`, and of layers.
    """

    @checked
    def __init__(
        self,
        filters: Count,
        strides: Count = 1,
        numerics: Numerics = "authors",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        self.numerics = numerics

    def build(self, input_shape):
        self.needs_projection = (
            self.strides != 1 or input_shape[-1] != 4 * self.filters
        )

    def compute_output_shape(self, input_shape):
        size = strided(input_shape[1:3], self.strides)
        return (input_shape[0], *size, 4 * self.filters)


@keras.saving.register_keras_serializable(package="keras_vit")
class BottleneckUnit(ResidualUnit):
    """A post-activation bottleneck: 1x1, 3x3 and 1x1 convolutions.

    Each convolution is followed by GroupNorm; ReLU follows the first two and
    the residual sum. Where the shape changes the shortcut is projected.

    Args:
        filters: Width of the bottleneck; the output is four times as wide.
        strides: Stride of the 3x3 convolution.
        numerics: See `ResNetV2Stem`.
        **kwargs: Arguments of `Block`, and of layers.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, ceil(H / strides), ceil(W / strides), 4 x filters]`

    Reference:
        He et al. 2016; Dosovitskiy et al. 2021, section 3.1; checked against
        `ResidualUnit` in vit_jax/models_resnet.py.
    """

    def build(self, input_shape):
        super().build(input_shape)

        def conv_and_norm(number, shape, filters, kernel_size, strides=1):
            name = f"conv{number}"
            conv, shape = std_conv(
                self, filters, kernel_size, strides, name, shape
            )
            norm = group_norm(
                self,
                f"gn{number}",
                shape,
                # The branch starts at zero, so that the unit starts as its
                # shortcut.
                gamma_initializer="zeros" if number == 3 else "ones",
            )
            return conv, norm, shape

        width = self.filters
        self.conv1, self.gn1, shape = conv_and_norm(1, input_shape, width, 1)
        self.conv2, self.gn2, shape = conv_and_norm(
            2, shape, width, 3, self.strides
        )
        self.conv3, self.gn3, _ = conv_and_norm(3, shape, 4 * width, 1)
        if self.needs_projection:
            self.conv_proj, self.gn_proj, _ = conv_and_norm(
                "_proj", input_shape, 4 * width, 1, self.strides
            )

    def _forward(self, inputs, training):
        shortcut = inputs
        if self.needs_projection:
            shortcut = self.gn_proj(self.conv_proj(inputs))
        x = keras.activations.relu(self.gn1(self.conv1(inputs)))
        x = keras.activations.relu(self.gn2(self.conv2(x)))
        x = self.gn3(self.conv3(x))
        return keras.activations.relu(shortcut + x)


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetV2Stem(CompositeLayer):
    """The convolutional stem of a hybrid: root, then stages of bottlenecks.

    The root is a 7x7 convolution and a 3x3 max-pooling, each of stride 2.
    Stage i has width 64 x `width_factor` x 2^i. From the second stage on, the
    first unit has stride 2. Without stages the root alone is the stem.

    Args:
        depths: Units per stage, e.g. (3, 4, 9) for R50+ViT-B/16.
        width_factor: Multiplies every width; 64 times the factor must be a
            multiple of 32.
        numerics: Source of the epsilons of GroupNorm and weight
            standardisation: "authors" (1e-6; 1e-5 added to the deviation),
            "timm" (1e-5; 1e-8 added to the variance), "bit" (1e-5; 1e-10 added
            to the variance) or "scenic" (1e-4; 1e-10 added to the variance). A
            property of the weights.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H / s, W / s, 256 x width_factor x 2^(stages - 1)]`,
        s = 4 x 2^(stages - 1), rounded up at each halving; s = 4 and 64
        channels without stages.

    Raises:
        ValueError: If a width is no multiple of GroupNorm's 32 groups, or
            `numerics` is unknown.

    Reference:
        Dosovitskiy et al. 2021, section 4.1; checked against `ResNetStage`
        in vit_jax/models_resnet.py and the stem in vit_jax/models_vit.py.
    """

    @checked
    def __init__(
        self,
        depths: tuple[Count, ...] = (3, 4, 6, 3),
        width_factor: Positive = 1,
        numerics: Numerics = "authors",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.depths = tuple(depths)
        self.width_factor = width_factor
        self.numerics = numerics

    def build(self, input_shape):
        width = int(64 * self.width_factor)
        self.conv_root, shape = std_conv(
            self, width, 7, 2, "conv_root", input_shape
        )
        self.gn_root = group_norm(self, "gn_root", shape)
        self.pool = self.make(
            MaxPooling2D,
            3,
            strides=2,
            padding="same",
            data_format="channels_last",
            name="pool",
        )
        shape = self.pool.compute_output_shape(shape)
        self.units = []
        for block, count in enumerate(self.depths):
            for unit in range(count):
                layer = self.make(
                    BottleneckUnit,
                    width * 2**block,
                    strides=2 if block > 0 and unit == 0 else 1,
                    numerics=self.numerics,
                    name=f"block{block + 1}_unit{unit + 1}",
                    shape=shape,
                )
                shape = layer.compute_output_shape(shape)
                self.units.append(layer)

    def call(self, inputs):
        x = keras.activations.relu(self.gn_root(self.conv_root(inputs)))
        x = self.pool(x)
        for unit in self.units:
            x = unit(x)
        return x

    def compute_output_shape(self, input_shape):
        stages = len(self.depths)
        # As halving that often, each time rounded up.
        size = strided(input_shape[1:3], 2 ** (1 + max(1, stages)))
        channels = int(64 * self.width_factor)
        if stages:
            channels *= 4 * 2 ** (stages - 1)
        return (input_shape[0], *size, channels)
