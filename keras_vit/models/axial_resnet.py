"""Axial-ResNet: a ResNet whose 3x3 convolutions are attention along axes.

Wang et al. 2020, "Axial-DeepLab: Stand-Alone Axial-Attention for Panoptic
Segmentation" (2003.07853). Two forms exist, which differ in more than their
norms: the authors' form with BatchNorm, checked against lib/models/axialnet.py
of csrhddlam/axial-deeplab, and the form with GroupNorm of the ViT paper's
appendix "Axial attention", checked against
scenic/projects/baselines/axial_resnet.py of google-research/scenic. See
`AxialResNetConfig`.
"""

from typing import Literal, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Positive, checked
from keras_vit.layers.base import Block
from keras_vit.layers.keras_layers import MaxPooling2D
from keras_vit.layers.resnet_v2_stem import (
    NUMERICS,
    ResidualUnit,
    group_norm,
    std_conv,
)
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.axial_attention import (
    AxialAttentionBN,
    AxialAttentionGN,
    batch_norm,
)
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, register
from keras_vit.models.image_model import ImageModel

__all__ = [
    "AxialResNet",
    "AxialResNet26S",
    "AxialResNet50S",
    "AxialResNet50M",
    "AxialResNet50L",
    "AxialResNet50",
]


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialUnitBN(Block):
    """A bottleneck of the authors' form, twice as wide as its attention.

        o = relu(bn1(conv_down(x)))
        o = relu(pool(attention_width(attention_height(o))))
        y = relu(bn2(conv_up(o)) + shortcut)

    The shortcut is x, and where the shape changes bn(conv(x)).

    Args:
        filters: Width of the bottleneck.
        strides: Side of the average-pooling, and stride of the shortcut.
        num_heads: Heads of each attention.
        **kwargs: Arguments of `Block`, and of layers.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H / strides, W / strides, 2 x filters]`

    Raises:
        ValueError: If H or W is not a multiple of `strides`.

    Reference:
        Checked against `AxialBlock` in lib/models/axialnet.py.
    """

    @checked
    def __init__(
        self, filters: Count, strides: Count = 1, num_heads: Count = 8, **kwargs
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        self.num_heads = num_heads

    def build(self, input_shape):
        if any(n is None or n % self.strides for n in input_shape[1:3]):
            raise ValueError(
                f"AxialUnitBN `{self.name}` needs maps whose height and width "
                f"are known multiples of `strides`. Received: input_shape="
                f"{tuple(input_shape)}, strides={self.strides}. Choose an "
                "`input_shape` of multiples of 32 pixels"
            )
        maps = (*input_shape[:-1], self.filters)
        out = self.compute_output_shape(input_shape)

        def conv_and_norm(conv_name, norm_name, shape, out, strides=1, init=1):
            conv = self.make(
                keras.layers.Conv2D,
                out[-1],
                1,
                strides,
                use_bias=False,
                data_format="channels_last",
                kernel_initializer=he_normal(),
                name=conv_name,
                shape=shape,
            )
            gamma = keras.initializers.Constant(init)
            norm = batch_norm(self, out, norm_name, gamma_initializer=gamma)
            return conv, norm

        self.conv_down, self.bn1 = conv_and_norm(
            "conv_down", "bn1", input_shape, maps
        )
        self.height_block = attention(self, AxialAttentionBN, "height", maps)
        self.width_block = attention(self, AxialAttentionBN, "width", maps)
        self.pool = average_pool(self)
        # The branch starts as zero, the unit as its shortcut.
        self.conv_up, self.bn2 = conv_and_norm(
            "conv_up", "bn2", (*out[:-1], self.filters), out, init=0
        )
        self.needs_projection = out != tuple(input_shape)
        if self.needs_projection:
            self.conv_proj, self.bn_proj = conv_and_norm(
                "conv_proj", "bn_proj", input_shape, out, self.strides
            )

    def _forward(self, inputs, training):
        relu, shortcut = keras.activations.relu, inputs
        if self.needs_projection:
            shortcut = self.bn_proj(self.conv_proj(inputs), training=training)
        x = relu(self.bn1(self.conv_down(inputs), training=training))
        x = self.height_block(x, training=training)
        x = self.width_block(x, training=training)
        x = relu(self.pool(x))
        x = self.bn2(self.conv_up(x), training=training)
        return relu(x + shortcut)

    def compute_output_shape(self, input_shape):
        batch_size, height, width, _ = input_shape
        height, width = (n and n // self.strides for n in (height, width))
        return (batch_size, height, width, 2 * self.filters)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialUnitGN(ResidualUnit):
    """A bottleneck of scenic's form, four times as wide as its attention.

        o = relu(gn1(conv1(x)))
        o = relu(pool(attention_width(attention_height(o))))
        y = relu(gn3(conv3(o)) + shortcut)

    with standardised convolutions. The shortcut is x, and where the shape
    changes gn_proj(conv_proj(x)).

    Args:
        filters: Width of the bottleneck.
        strides: Side of the average-pooling, and stride of the shortcut.
        num_heads: Heads of each attention.
        **kwargs: Arguments of `Block`, and of layers.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, ceil(H / strides), ceil(W / strides), 4 x filters]`

    Reference:
        Checked against `AxialResidualUnit` in
        scenic/projects/baselines/axial_resnet.py.
    """

    @checked
    def __init__(
        self, filters: Count, strides: Count = 1, num_heads: Count = 8, **kwargs
    ):
        super().__init__(filters, strides, "scenic", **kwargs)
        self.num_heads = num_heads

    def get_config(self):
        config = super().get_config()
        del config["numerics"]  # are always those of scenic
        return config

    def build(self, input_shape):
        super().build(input_shape)
        maps = (*input_shape[:-1], self.filters)
        out = self.compute_output_shape(input_shape)

        def conv_and_norm(number, shape, out, strides=1, gamma="ones"):
            name = f"conv{number}"
            conv, _ = std_conv(self, out[-1], 1, strides, name, shape)
            name = f"gn{number}"
            return conv, group_norm(self, name, out, gamma_initializer=gamma)

        self.conv1, self.gn1 = conv_and_norm("1", input_shape, maps)
        self.height_block = attention(self, AxialAttentionGN, "height", maps)
        self.width_block = attention(self, AxialAttentionGN, "width", maps)
        self.pool = average_pool(self)
        # The branch starts as zero, the unit as its shortcut.
        self.conv3, self.gn3 = conv_and_norm(
            "3", (*out[:-1], self.filters), out, gamma="zeros"
        )
        if self.needs_projection:
            self.conv_proj, self.gn_proj = conv_and_norm(
                "_proj", input_shape, out, self.strides
            )

    def _forward(self, inputs, training):
        relu, shortcut = keras.activations.relu, inputs
        if self.needs_projection:
            shortcut = self.gn_proj(self.conv_proj(inputs))
        x = relu(self.gn1(self.conv1(inputs)))
        x = self.width_block(self.height_block(x))
        # Like Flax: the average includes the zeros of the padding.
        ends = [(0, -n % self.strides) for n in x.shape[1:3]]
        x = relu(self.pool(ops.pad(x, ((0, 0), *ends, (0, 0)))))
        return relu(self.gn3(self.conv3(x)) + shortcut)


def he_normal():
    """Return the authors' initialisers of convolutions."""
    return keras.initializers.VarianceScaling(
        2.0, "fan_out", "untruncated_normal"
    )


def attention(unit, kind, axis, shape):
    """Return the attention of a unit along an axis, built for a shape."""
    name = f"{axis}_block"
    return unit.make(kind, axis, unit.num_heads, name=name, shape=shape)


def average_pool(layer):
    """Return the pooling of a unit, which does nothing with a stride of 1."""
    return layer.make(
        keras.layers.AveragePooling2D,
        layer.strides,
        data_format="channels_last",
        name="pool",
    )


@architecture
class AxialResNetConfig:
    """The architecture of an Axial-ResNet.

    Args:
        depths: Units per stage, such as (3, 4, 6, 3).
        width_factor: Multiplies every width; 1.
        num_heads: Heads of each attention; 8.
        normalization: "batch_norm", the authors' form: units twice as wide as
            their attention, which is of 128 x `width_factor` channels in the
            first stage, images of multiples of 32 pixels. "group_norm", that
            of the ViT paper: standardised convolutions, units four times as
            wide, attention of 64 x `width_factor` channels, paddings of
            TensorFlow's "SAME". "batch_norm".
    """

    depths: tuple[Count, ...]
    width_factor: Positive = 1
    num_heads: Count = 8
    normalization: Literal["batch_norm", "group_norm"] = "batch_norm"


class AxialResNetArguments(ModelArguments, total=False):
    """The fields of `AxialResNetConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    width_factor: Positive | None
    num_heads: Count | None
    normalization: Literal["batch_norm", "group_norm"] | None


def forward(
    config: AxialResNetConfig, x: keras.KerasTensor
) -> keras.KerasTensor:
    """Return the representation: the mean of the last map, `[B, D]`."""
    width = int(64 * config.width_factor)
    is_batch_norm = config.normalization == "batch_norm"
    if is_batch_norm:
        x = ops.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)))
        x = keras.layers.Conv2D(
            width,
            7,
            2,
            use_bias=False,
            data_format="channels_last",
            kernel_initializer=he_normal(),
            name="conv_root",
        )(x)
        norm = keras.layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, name="bn_root"
        )
    else:
        epsilon, standardization = NUMERICS["scenic"]
        x = layers.StdConv2D(width, 7, 2, **standardization, name="conv_root")(
            x
        )
        norm = layers.GroupNorm(32, epsilon=epsilon, name="gn_root")
    x = keras.layers.ReLU(name="root_relu")(norm(x))
    if is_batch_norm:
        # After a ReLU, padding with zeros equals PyTorch's minus infinity.
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    x = MaxPooling2D(
        3,
        2,
        "valid" if is_batch_norm else "same",
        data_format="channels_last",
        name="pool",
    )(x)  # [B, H / 4, W / 4, width]
    unit_class = AxialUnitBN if is_batch_norm else AxialUnitGN
    filters = int(128 * config.width_factor) if is_batch_norm else width
    for block, count in enumerate(config.depths):
        for unit in range(count):
            x = unit_class(
                filters * 2**block,
                2 if block > 0 and unit == 0 else 1,
                config.num_heads,
                name=f"block{block + 1}_unit{unit + 1}",
            )(x)
    return ops.mean(x, axis=(1, 2))  # [B, D]


_R50 = (3, 4, 6, 3)
# The authors' variants; the last one is in the ViT paper's figure.
VARIANTS = {
    "AxialResNet26S": dict(depths=(1, 2, 4, 1), width_factor=0.5),
    "AxialResNet50S": dict(depths=_R50, width_factor=0.5),
    "AxialResNet50M": dict(depths=_R50, width_factor=0.75),
    "AxialResNet50L": dict(depths=_R50, width_factor=1),
    "AxialResNet50": dict(
        depths=_R50, width_factor=1, normalization="group_norm"
    ),
}
FAMILY = register(
    "axial_resnet",
    "AxialResNet",
    AxialResNetConfig,
    forward,
    (AxialUnitBN, AxialUnitGN),
    VARIANTS,
    layers=r"(?:conv|bn|gn)_root|block\d+_unit\d+(?:/.+)?",
    small=dict(depths=(1, 1), width_factor=0.5),
)


def AxialResNet(**kwargs: Unpack[AxialResNetArguments]) -> ImageModel:
    """Build an Axial-ResNet of any size."""
    return construct(FAMILY, "AxialResNet", kwargs)


def AxialResNet26S(**kwargs: Unpack[AxialResNetArguments]) -> ImageModel:
    """axial26s."""
    return construct(FAMILY, "AxialResNet26S", kwargs)


def AxialResNet50S(**kwargs: Unpack[AxialResNetArguments]) -> ImageModel:
    """axial50s."""
    return construct(FAMILY, "AxialResNet50S", kwargs)


def AxialResNet50M(**kwargs: Unpack[AxialResNetArguments]) -> ImageModel:
    """axial50m."""
    return construct(FAMILY, "AxialResNet50M", kwargs)


def AxialResNet50L(**kwargs: Unpack[AxialResNetArguments]) -> ImageModel:
    """axial50l."""
    return construct(FAMILY, "AxialResNet50L", kwargs)


def AxialResNet50(**kwargs: Unpack[AxialResNetArguments]) -> ImageModel:
    """AxialResNet-50 of the ViT paper, of GroupNorm."""
    return construct(FAMILY, "AxialResNet50", kwargs)
