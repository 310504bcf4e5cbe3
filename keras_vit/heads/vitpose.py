"""ViTPose: heat maps of keypoints, by a plain ViT.

Xu et al. 2022, "ViTPose: Simple Vision Transformer Baselines for Human Pose
Estimation" (2204.12484). Checked against vitpose of transformers. An image
shows one person; the map of the last block is enlarged four times.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.heads import maps, task_model, tokens
from keras_vit.heads.maps import Resize, batch_norm, convolution
from keras_vit.heads.task_model import TaskModel
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.models.maps import feature_maps
from keras_vit.ops.dtypes import wide_policy

# Pixels by which the released models shift their patches.
_SHIFT = 2
# Of the classic decoder.
_WIDTH = 256
# In cells, of the filter before the maximum is refined.
_STDDEV, _RADIUS = 0.8, 5
# Added to the diagonal of the second derivatives.
_LEAST = float(np.finfo("float32").eps)


@keras.saving.register_keras_serializable(package="keras_vit")
class SharedPosition(keras.layers.Layer):
    """Adds one learned vector to every token.

    Input shape: `[B, N, D]`
    Output shape: `[B, N, D]`
    """

    def build(self, input_shape):
        self.position = self.add_weight(
            name="position",
            shape=(1, 1, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, inputs):
        return inputs + ops.cast(self.position, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


@checked
@own_paths()
def vitpose(
    backbone: keras.Model,
    *,
    classes: Count | None = None,
    class_names: Sequence[str] | None = None,
    decoder: Literal["simple", "classic"] = "simple",
    scale_factor: Count = 4,
    block: int = -1,
    shifted_patches: bool = False,
    unused_weights: dict | None = None,
    name: str | None = None,
) -> TaskModel:
    """Build a ViTPose on the layers of a backbone.

    Args:
        backbone: A model of images of this package; its head is left out.
        classes: Number K of keypoints, or `class_names`.
        class_names: Their names.
        decoder: "simple", the map is enlarged and convolved; or "classic", two
            transposed convolutions enlarge it four times.
        scale_factor: By how much the simple decoder enlarges it; 4.
        block: The block, or level of a pyramid, whose map is taken, counted
            from 1, or from -1 back; the last.
        shifted_patches: Whether the first patch begins two pixels before the
            image, and a vector is added to all patches, as in the released
            models; for a ViT without class token. False.
        unused_weights: Names and shapes of what a released file holds and no
            layer reads, kept so that it is written back; None.
        name: Name of the model.

    Returns:
        A model from images to "heatmaps", `[B, h, w, K]`, with 1 where a
        keypoint is.

    Raises:
        ValueError: If the backbone is one of videos, has no such block, if
            there is no number of keypoints, or patches cannot be shifted.

    Example:
        model = keras_vit.heads.vitpose(
            keras_vit.ViTB16(input_shape=(256, 192, 3)), classes=17)
    """
    inner = ImageModel.find(backbone, "backbone")
    maps.check_images(inner, "vitpose")
    classes = task_model.number_of_classes(classes, class_names)
    x = feature_maps(inner, [block]).output
    if shifted_patches:
        x = _shifted(inner, block)
    wide = wide_policy()
    if decoder == "simple":
        x = ops.relu(x)
        x = Resize(maps.scaled(x, scale_factor), name="decoder_resize")(x)
        x = convolution(x, classes, 3, "head", dtype=wide)
    else:
        for i in (1, 2):
            x = maps.transposed_convolution(
                x, _WIDTH, 4, f"decoder_{i}", 2, use_bias=False
            )
            x = ops.relu(batch_norm(x, f"decoder_norm_{i}"))
        x = convolution(x, classes, 1, "head", dtype=wide)
    return task_model.finish(
        inner,
        dict(heatmaps=x),
        "vitpose",
        "pose",
        dict(
            classes=classes,
            decoder=decoder,
            scale_factor=scale_factor,
            block=block,
            shifted_patches=shifted_patches,
            unused_weights=unused_weights,
        ),
        class_names,
        name,
    )


def _shifted(inner, block):
    """Return the map of a block, of patches that begin before the image."""
    blocks = tokens.token_blocks(inner, "vitpose")
    names = [layer.name for layer in inner.layers]
    sides = inner.metadata["patch_size"]
    sides = sides if isinstance(sides, (list, tuple)) else [sides]
    if (
        tokens.num_prefix_tokens(inner)
        or "posembed_input" not in names
        or min(sides) <= 2 * _SHIFT
    ):
        raise ValueError(
            "`shifted_patches` must be False for a ViT with a class token or "
            f"without learned positions, or of patches of {2 * _SHIFT} pixels "
            f"or less. Received: shifted_patches=True for {inner.name!r}"
        )
    embedding = inner.get_layer("embedding")
    order: dict = dict(data_format="channels_last")
    x = keras.layers.ZeroPadding2D(((_SHIFT, 0), (_SHIFT, 0)), **order)(
        embedding.input
    )
    x = keras.layers.Cropping2D(((0, _SHIFT), (0, _SHIFT)), **order)(x)
    x = inner.get_layer("posembed_input")(embedding(x))
    x = SharedPosition(name="shared_position")(x)
    for layer in blocks[: block if block > 0 else len(blocks) + 1 + block]:
        x = layer(x)
    x = task_model.mark(inner, tokens.normed(inner, x))
    return tokens.as_map(x, tokens.grid_of(inner))


@checked
def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
    threshold: float | None = 0.0,
) -> dict:
    """Return the keypoints of one image; see `TaskModel`.

    The maximum of a heat map is refined by a step of Newton's method on the
    logarithm of the smoothed map (DARK). The centres of a heat map's corners
    are the corners of the image (unbiased data processing).

    Args:
        threshold: Keypoints whose score, the maximum, is larger are returned;
            None returns all.

    Reference:
        Zhang et al. 2020 (1910.06278); Huang et al. 2020 (1911.07524).
    """
    heat = outputs["heatmaps"]
    height, width, count = heat.shape
    scores = heat.reshape(-1, count).max(axis=0)
    rows, columns = np.divmod(heat.reshape(-1, count).argmax(axis=0), width)
    smoothed = np.einsum(
        "ih,jw,hwk->ijk",
        smoothing(height),
        smoothing(width),
        heat,
        optimize=True,
    )
    logs = np.log(np.clip(smoothed, 0.001, 50))

    def at(y, x):
        y, x = np.clip(rows + y, 0, height - 1), columns + x
        return logs[y, np.clip(x, 0, width - 1), np.arange(count)]

    points = np.stack([columns, rows], axis=1) - np.stack(newton(at), axis=1)
    points *= np.array(
        [image_size[1] / max(width - 1, 1), image_size[0] / max(height - 1, 1)]
    )
    keep = np.arange(count)
    if threshold is not None:
        keep = np.flatnonzero(scores > threshold)
    return dict(
        keypoints=points[keep].astype("float32"),
        scores=scores[keep],
        labels=keep,
        names=model.names_of(keep),
    )


def smoothing(size: int) -> np.ndarray:
    """Return the [n, n] matrix of a Gaussian filter with mirrored borders."""
    places = np.arange(-_RADIUS, _RADIUS + 1)
    weights = np.exp(-0.5 * (places / _STDDEV) ** 2)
    weights /= weights.sum()
    mirrored = np.pad(np.eye(size), [(_RADIUS,) * 2, (0, 0)], mode="symmetric")
    return sum(
        weight * mirrored[i : i + size] for i, weight in enumerate(weights)
    )


def newton(at: Callable) -> tuple:
    """Return the step (x, y) from the maximum of a map.

    Args:
        at: Function from a distance (y, x), in cells, to the value there.
    """
    centre = at(0, 0)
    slope_x = (at(0, 1) - at(0, -1)) / 2
    slope_y = (at(1, 0) - at(-1, 0)) / 2
    xx = at(0, 1) - 2 * centre + at(0, -1) + _LEAST
    yy = at(1, 0) - 2 * centre + at(-1, 0) + _LEAST
    xy = at(1, 1) - at(0, 1) - at(1, 0) + 2 * centre
    xy = (xy - at(0, -1) - at(-1, 0) + at(-1, -1)) / 2
    determinant = xx * yy - xy * xy
    return (
        (yy * slope_x - xy * slope_y) / determinant,
        (xx * slope_y - xy * slope_x) / determinant,
    )


task_model.register(task_model.Head("vitpose", interpret))
