"""The simple feature pyramid of ViTDet, for detectors of other libraries.

Li et al. 2022, "Exploring Plain Vision Transformer Backbones for Object
Detection" (2203.16527), section 3: maps of several strides, all of the last map
of a plain ViT. Checked against `SimpleFeaturePyramid` of detectron2.
"""

from collections.abc import Sequence

import keras

from keras_vit._arguments import Count, checked
from keras_vit.heads.maps import check_images
from keras_vit.layers.keras_layers import Conv2DTranspose, LayerNorm
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.models.maps import feature_maps
from keras_vit.ops.linear import gelu


@keras.saving.register_keras_serializable(package="keras_vit")
class PyramidModel(ImageModel):
    """An `ImageModel` whose outputs are the levels of a pyramid."""

    @property
    def pyramid_outputs(self) -> dict[str, keras.KerasTensor]:
        """The symbolic output of each level, as keras-hub's detectors read."""
        return dict(self.output)


@checked
@own_paths()
def simple_feature_pyramid(
    backbone: keras.Model,
    *,
    levels: Sequence[Count] = (2, 3, 4, 5),
    width: Count = 256,
    name: str | None = None,
) -> PyramidModel:
    """Build a pyramid of maps on the last map of any model of images.

    Args:
        backbone: A model of this package, with patches of 4, 8, 16 or 32
            pixels; its head is left out.
        levels: Levels n of the pyramid; a map has a stride of 2^n pixels.
        width: Channels D of each map.
        name: Name of the model; that of the backbone and "pyramid".

    Returns:
        A model from images to "P2", `[B, H / 4, W / 4, D]`, "P3" and so on. It
        is an `image_encoder` of keras-hub's RetinaNet.

    Raises:
        ValueError: If the backbone takes videos, the stride of its last map is
            no power of 2, or the images are no multiple of the largest stride.

    Example:
        encoder = keras_vit.heads.simple_feature_pyramid(
            keras_vit.ViTTi16(input_shape=(64, 64, 3)))
    """
    inner = ImageModel.find(backbone, "backbone")
    check_images(inner, "simple_feature_pyramid")
    features = feature_maps(inner, [-1])
    last = _level_of(inner, features.output, levels)
    outputs = {}
    for level in sorted(levels):
        x = _scaled(features.output, last - level, f"pyramid_{level}")
        for kernel_size in (1, 3):
            part = f"pyramid_{level}_{kernel_size}x{kernel_size}"
            x = keras.layers.Conv2D(
                width,
                kernel_size,
                padding="same",
                use_bias=False,
                data_format="channels_last",
                name=part,
            )(x)
            x = LayerNorm(epsilon=1e-6, name=f"{part}_norm")(x)
        outputs[f"P{level}"] = x
    return PyramidModel(
        features.input, outputs, name=name or f"{inner.name}_pyramid"
    )


def _level_of(inner, x, levels):
    """Return the level of the last map."""
    height, width, _ = inner.image_shape
    stride = height // x.shape[1]
    is_whole = (height, width) == tuple(stride * n for n in x.shape[1:3])
    if not is_whole or stride & (stride - 1):
        raise ValueError(
            "`backbone` must have patches of 4, 8, 16 or 32 pixels, so that "
            "maps are halved and doubled. Received: a map of "
            f"{tuple(x.shape[1:3])} for images of {(height, width)}. Weights "
            "for patches of 14 are resized to `patch_size=16`"
        )
    largest = 2 ** max(levels, default=0)
    if not levels or height % largest or width % largest:
        raise ValueError(
            "`levels` must be those whose strides 2^n divide the images. "
            f"Received: levels={list(levels)} for images of {(height, width)}"
        )
    return stride.bit_length() - 1


def _scaled(x, doublings, name):
    """Return a map of twice the size, so often; or half of it, if negative."""
    channels = x.shape[-1]
    for i in range(doublings):
        if i:
            x = LayerNorm(epsilon=1e-6, name=f"{name}_norm_{i}")(x)
            x = gelu(x)
        channels //= 2
        x = Conv2DTranspose(
            channels,
            2,
            2,
            data_format="channels_last",
            name=f"{name}_transposed_{i}",
        )(x)
    for i in range(-doublings):
        x = keras.layers.MaxPooling2D(
            2, data_format="channels_last", name=f"{name}_pooling_{i}"
        )(x)
    return x
