"""Actions: what the person in each box does, on a model of videos.

Fan et al. 2021, "Multiscale Vision Transformers" (2104.11227), AVA, as in
`ResNetRoIHead` of slowfast/models/head_helper.py: the last map, averaged over
time, is read by RoIAlign in each box, its maximum over the cells taken, and
mapped to a score for each action. Checked against torchvision's roi_align.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.heads import task_model
from keras_vit.heads.task_model import TaskModel
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.models.maps import feature_maps
from keras_vit.ops.dtypes import wide_policy

# Cells of a box along each side.
RESOLUTION = 7


@keras.saving.register_keras_serializable(package="keras_vit")
class RoIAlign(keras.layers.Layer):
    """Reads a map in boxes, each divided into cells.

    The value of a cell is the mean of bilinear samples, as many along each axis
    as its extent in pixels of the map, rounded up. As these are the same for
    all rows and all columns of a cell, a box is A_y x A_x^T with a matrix for
    each axis, `[cells, pixels]`, and no pixel is gathered. Samples become no
    more once a side of a box is twice that of the map.

    Args:
        resolution: Cells along each side of a box.

    Call arguments:
        maps: `[B, H, W, D]`.
        boxes: `[B, N, 4]`: centre x, centre y, width and height, in shares of
            the image.

    Output shape: `[B, N, R, R, D]`

    Reference:
        He et al. 2017 (1703.06870); torchvision.ops.roi_align with
        sampling_ratio=0 and aligned=True.
    """

    def __init__(self, resolution: int = RESOLUTION, **kwargs):
        # In bfloat16 a box would move by up to 0.2 % of the image.
        super().__init__(autocast=False, **kwargs)
        self.resolution = resolution

    def call(self, maps, boxes):
        boxes = ops.cast(boxes, "float32")
        rows = self._matrix(boxes[..., 1], boxes[..., 3], maps.shape[1])
        columns = self._matrix(boxes[..., 0], boxes[..., 2], maps.shape[2])
        rows, columns = (ops.cast(x, maps.dtype) for x in (rows, columns))
        x = ops.einsum("bnyh,bhwd->bnywd", rows, maps)
        return ops.einsum("bnywd,bnxw->bnyxd", x, columns)

    def compute_output_shape(self, maps_shape, boxes_shape):
        side = self.resolution
        return (*boxes_shape[:2], side, side, maps_shape[-1])

    def _matrix(self, centre, extent, size):
        """Return the weights of pixels in cells, `[B, N, R, size]`."""
        cells = self.resolution
        # A pixel's value is that at its centre.
        start = (centre - extent / 2) * size - 0.5
        cell = extent * size / cells
        most = -(-2 * size // cells)  # of a box twice as large as the image
        # None where a box has no area.
        given = ops.minimum(ops.ceil(cell), float(most))[..., None, None]
        count = ops.maximum(given, 1.0)
        sample = ops.arange(most, dtype="float32")  # [S]
        place = ops.arange(cells, dtype="float32")[:, None]  # [R, 1]
        place = place + (sample + 0.5) / count
        place = start[..., None, None] + place * cell[..., None, None]
        counts = (sample < given) & (place >= -1.0) & (place <= size)
        place = ops.clip(place, 0.0, size - 1.0)[..., None]  # [B, N, R, S, 1]
        pixels = ops.arange(size, dtype="float32")
        weights = ops.maximum(1.0 - ops.abs(place - pixels), 0.0)
        weights = ops.where(counts[..., None], weights, 0.0)
        return ops.sum(weights, axis=-2) / count


@checked
@own_paths()
def actions(
    backbone: keras.Model,
    *,
    classes: Count | None = None,
    class_names: Sequence[str] | None = None,
    name: str | None = None,
) -> TaskModel:
    """Build a model of the actions of persons on a model of videos.

    Args:
        backbone: A model of videos of this package; its head is left out. The
            features of boxes have its `head_dropout_rate`.
        classes: Number K of actions, or `class_names`.
        class_names: Their names.
        name: Name of the model.

    Returns:
        A model of {"videos": `[B, T, H, W, C]`, "boxes": `[B, N, 4]`, centre x,
        centre y, width and height in shares of the frame, 0 for padding} to
        "logits", `[B, N, K]`, of which a person has any number, and the
        "boxes".

    Raises:
        ValueError: If the backbone takes images, or there is no number of
            classes.

    Example:
        backbone = keras_vit.MViTB16x4(depths=(1, 1, 1, 1), include_top=False)
        model = keras_vit.heads.actions(backbone, classes=80)
    """
    inner = ImageModel.find(backbone, "backbone")
    if inner.num_frames is None:
        raise ValueError(
            "`backbone` must be a model of videos. Received: "
            f"{inner.name!r}, of images"
        )
    classes = task_model.number_of_classes(classes, class_names)
    boxes = keras.Input((None, 4), name="boxes", dtype="float32")
    features = feature_maps(inner, [-1], norm=True)
    x = ops.mean(features.output, axis=1)  # [B, h, w, D]
    x = RoIAlign(name="roi_align")(x, boxes)
    x = ops.max(x, axis=(2, 3))  # [B, N, D]
    rate = getattr(inner.architecture, "head_dropout_rate", 0.0)
    if rate:
        x = keras.layers.Dropout(rate, name="head_dropout")(x)
    x = keras.layers.Dense(
        classes,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        name="head",
        dtype=wide_policy(),
    )(x)
    return task_model.finish(
        features,
        dict(logits=x, boxes=boxes),
        "actions",
        "actions",
        dict(classes=classes),
        class_names,
        name,
        more_inputs=dict(boxes=boxes),
    )


@checked
def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
    threshold: float = 0.5,
) -> dict:
    """Return the boxes of one video's actions; see `TaskModel`.

    A box appears once for each of its actions whose score is high enough.
    """
    boxes = np.asarray(outputs["boxes"], "float32")
    logits = np.asarray(outputs["logits"], "float32")
    scores = 1 / (1 + np.exp(-logits))
    has_area = np.all(boxes[:, 2:] > 0, axis=1, keepdims=True)
    rows, labels = np.nonzero((scores >= threshold) & has_area)
    return task_model.boxes_of_image(
        model, boxes[rows], scores[rows, labels], labels, image_size
    )


task_model.register(task_model.Head("actions", interpret))
