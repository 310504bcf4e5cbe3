"""A linear head: the class of each pixel, of one linear map of features.

Oquab et al. 2024, "DINOv2" (2304.07193), section 7.4: batch normalisation and a
1x1 convolution of the patches, resized to the image.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.heads import task_model
from keras_vit.heads.maps import check_images
from keras_vit.heads.resizing import resized
from keras_vit.heads.task_model import TaskModel
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.models.maps import feature_maps
from keras_vit.ops.dtypes import wide_policy


@checked
@own_paths()
def linear(
    backbone: keras.Model,
    *,
    classes: Count | None = None,
    class_names: Sequence[str] | None = None,
    numbers: Sequence[int] | None = None,
    name: str | None = None,
) -> TaskModel:
    """Build a linear segmenter on the feature maps of any model of images.

    To train the head alone, set `backbone.trainable = False`, before or after.

    Args:
        backbone: A model of this package; its head is left out.
        classes: Number of classes K, or `class_names`.
        class_names: Their names.
        numbers: The blocks or levels whose maps are read, as in
            `keras_vit.feature_maps`; None for the last block, or all levels.
            Several are resized to the finest and joined.
        name: Name of the model.

    Returns:
        A model from images to "logits", `[B, H, W, K]`, for each pixel.

    Raises:
        ValueError: If the backbone takes videos, has no such map, or there is
            no number of classes.

    Example:
        model = keras_vit.heads.linear(
            keras_vit.DINOv2S14(input_shape=(224, 224, 3)), classes=150)
    """
    inner = ImageModel.find(backbone, "backbone")
    classes = task_model.number_of_classes(classes, class_names)
    check_images(inner, "linear")
    features = feature_maps(inner, numbers)
    maps = features.outputs
    finest = max((x.shape[1:3] for x in maps), key=lambda size: size[0])
    x = ops.concatenate([_resize(x, finest) for x in maps], axis=-1)
    x = keras.layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, name="head_norm"
    )(x)
    x = keras.layers.Dense(
        classes,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
        name="head",
        dtype=wide_policy(),
    )(x)  # [B, h, w, K]
    return task_model.finish(
        features,
        dict(logits=_resize(x, inner.image_shape[:2])),
        "linear",
        "segmentation",
        dict(classes=classes, numbers=None if numbers is None else [*numbers]),
        class_names,
        name,
    )


def _resize(x, size):
    if tuple(x.shape[1:3]) == tuple(size):
        return x
    return ops.image.resize(
        x, size, interpolation="bilinear", data_format="channels_last"
    )


def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
) -> dict:
    """Return "classes", `[H, W]`, of one image; see `TaskModel`."""
    logits = resized(outputs["logits"], image_size)
    return dict(classes=logits.argmax(axis=-1).astype("int32"))


task_model.register(task_model.Head("linear", interpret))
