"""BiT: ResNets of GroupNorm and weight-standardised convolutions.

Kolesnikov et al. 2020, "Big Transfer (BiT): General Visual Representation
Learning" (1912.11370), the baseline of the ViT paper, checked against
bit_pytorch/models.py of google-research/big_transfer. Two orders exist:
pre-activation, that of the release, and post-activation, that of the ViT
paper's code (vit_jax/models_resnet.py), of big_vision and of scenic. They
differ in more than the order: see `BiTConfig`.
"""

import functools
from typing import Literal, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Positive
from keras_vit.layers.keras_layers import MaxPooling2D
from keras_vit.layers.resnet_v2_stem import (
    NUMERICS,
    Numerics,
    ResidualUnit,
    group_norm,
    std_conv,
)
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, register
from keras_vit.models.image_model import ImageModel

__all__ = [
    "BiT",
    "BiTR50x1",
    "BiTR50x2",
    "BiTR50x3",
    "BiTR101x1",
    "BiTR101x3",
    "BiTR152x1",
    "BiTR152x2",
    "BiTR152x4",
    "BiTR200x3",
]

Order = Literal["pre_activation", "post_activation"]


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(ResidualUnit):
    """A pre-activation bottleneck: GroupNorm and ReLU before each convolution.

        o = relu(gn1(x))
        y = conv3(relu(gn3(conv2(relu(gn2(conv1(o))))))) + shortcut

    The convolutions are 1x1, 3x3 and 1x1. The shortcut is x, and where the
    shape changes conv_proj(o), computed from the normalised input.

    Args:
        filters: Width of the bottleneck; the output is four times as wide.
        strides: Stride of the 3x3 convolution, padded by 1 on each side.
        numerics: See `BiTConfig`.
        **kwargs: Arguments of `Block`, and of layers.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, ceil(H / strides), ceil(W / strides), 4 x filters]`

    Raises:
        ValueError: If a width is no multiple of GroupNorm's 32 groups, or
            `numerics` is unknown.

    Reference:
        Kolesnikov et al. 2020; checked against `PreActBottleneck` in
        bit_pytorch/models.py.
    """

    def build(self, input_shape):
        super().build(input_shape)

        conv = functools.partial(std_conv, self, padding="symmetric")

        def norm_and_conv(number, shape, filters, kernel_size, strides=1):
            norm = group_norm(self, f"gn{number}", shape)
            name = f"conv{number}"
            return norm, *conv(filters, kernel_size, strides, name, shape)

        width = self.filters
        self.gn1, self.conv1, shape = norm_and_conv(1, input_shape, width, 1)
        self.gn2, self.conv2, shape = norm_and_conv(
            2, shape, width, 3, self.strides
        )
        self.gn3, self.conv3, _ = norm_and_conv(3, shape, 4 * width, 1)
        if self.needs_projection:
            self.conv_proj, _ = conv(
                4 * width, 1, self.strides, "conv_proj", input_shape
            )

    def _forward(self, inputs, training):
        relu = keras.activations.relu
        x = relu(self.gn1(inputs))
        shortcut = self.conv_proj(x) if self.needs_projection else inputs
        x = self.conv1(x)
        x = self.conv2(relu(self.gn2(x)))
        x = self.conv3(relu(self.gn3(x)))
        return x + shortcut


@architecture
class BiTConfig:
    """The architecture of a BiT ResNet.

    Args:
        depths: Units per stage, such as (3, 4, 6, 3) for R50.
        width_factor: Multiplies every width; 64 times the factor must be a
            multiple of 32; 1.
        activation_order: "pre_activation" normalises before each convolution,
            projects the normalised input, and pads symmetrically, also for
            the max-pooling, with zeros. "post_activation" normalises after
            each convolution and pads as TensorFlow's "SAME".
            "pre_activation".
        numerics: Source of GroupNorm's epsilon and of the form of weight
            standardisation: "bit" (1e-5; 1e-10 added to the variance),
            "authors" of ViT and big_vision (1e-6; 1e-5 added to the deviation),
            "scenic" (1e-4; 1e-10 added to the variance) or "timm" (1e-5; 1e-8
            added to the variance); "bit".
    """

    depths: tuple[Count, ...]
    width_factor: Positive = 1
    activation_order: Literal["pre_activation", "post_activation"] = (
        "pre_activation"
    )
    numerics: Numerics = "bit"


class BiTArguments(ModelArguments, total=False):
    """The fields of `BiTConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    width_factor: Positive | None
    activation_order: Order | None
    numerics: Numerics | None


def forward(config: BiTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of the last map, `[B, D]`."""
    epsilon, standardization = NUMERICS[config.numerics]
    pre_activation = config.activation_order == "pre_activation"
    padding: Literal["same", "symmetric"] = "same"
    if pre_activation:
        padding = "symmetric"
    unit_class = PreActivationUnit if pre_activation else layers.BottleneckUnit
    width = int(64 * config.width_factor)

    def norm_and_relu(x, name):
        x = layers.GroupNorm(32, epsilon=epsilon, name=name)(x)
        return keras.layers.ReLU(name=f"{name}_relu")(x)

    def max_pool(padding):
        return MaxPooling2D(
            3, 2, padding, data_format="channels_last", name="pool"
        )

    x = layers.StdConv2D(
        width, 7, 2, padding=padding, **standardization, name="conv_root"
    )(x)  # [B, H / 2, W / 2, width]
    if pre_activation:
        # Pads with zeros, which may be the maximum; "same" pads with minus
        # infinity.
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x = max_pool("valid")(x)
    else:
        x = norm_and_relu(x, "gn_root")
        x = max_pool("same")(x)
    for block, count in enumerate(config.depths):
        for unit in range(count):
            x = unit_class(
                width * 2**block,
                strides=2 if block > 0 and unit == 0 else 1,
                numerics=config.numerics,
                name=f"block{block + 1}_unit{unit + 1}",
            )(x)  # [B, H / 2^(block + 2), W / 2^(block + 2), 4 x filters]
    if pre_activation:
        x = norm_and_relu(x, "group_norm")
    return ops.mean(x, axis=(1, 2))  # [B, D]


_R50, _R101 = (3, 4, 6, 3), (3, 4, 23, 3)
_R152, _R200 = (3, 8, 36, 3), (3, 24, 36, 3)
# The released models, and those of Table 6 of the ViT paper.
VARIANTS = {
    "BiTR50x1": dict(depths=_R50, width_factor=1),
    "BiTR50x2": dict(depths=_R50, width_factor=2),
    "BiTR50x3": dict(depths=_R50, width_factor=3),
    "BiTR101x1": dict(depths=_R101, width_factor=1),
    "BiTR101x3": dict(depths=_R101, width_factor=3),
    "BiTR152x1": dict(depths=_R152, width_factor=1),
    "BiTR152x2": dict(depths=_R152, width_factor=2),
    "BiTR152x4": dict(depths=_R152, width_factor=4),
    "BiTR200x3": dict(depths=_R200, width_factor=3),
}
FAMILY = register(
    "bit",
    "BiT",
    BiTConfig,
    forward,
    (PreActivationUnit, layers.BottleneckUnit),
    VARIANTS,
    layers=r"conv_root|gn_root|block\d+_unit\d+(?:/[^/]+)?|group_norm",
    small=dict(depths=(1, 1), width_factor=0.5),
)


def BiT(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """Build a BiT ResNet of any size."""
    return construct(FAMILY, "BiT", kwargs)


def BiTR50x1(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R50x1."""
    return construct(FAMILY, "BiTR50x1", kwargs)


def BiTR50x2(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R50x2."""
    return construct(FAMILY, "BiTR50x2", kwargs)


def BiTR50x3(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R50x3."""
    return construct(FAMILY, "BiTR50x3", kwargs)


def BiTR101x1(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R101x1."""
    return construct(FAMILY, "BiTR101x1", kwargs)


def BiTR101x3(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R101x3."""
    return construct(FAMILY, "BiTR101x3", kwargs)


def BiTR152x1(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R152x1."""
    return construct(FAMILY, "BiTR152x1", kwargs)


def BiTR152x2(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R152x2."""
    return construct(FAMILY, "BiTR152x2", kwargs)


def BiTR152x4(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R152x4."""
    return construct(FAMILY, "BiTR152x4", kwargs)


def BiTR200x3(**kwargs: Unpack[BiTArguments]) -> ImageModel:
    """BiT-R200x3."""
    return construct(FAMILY, "BiTR200x3", kwargs)
