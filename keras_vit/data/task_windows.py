"""Windows of large images, for models of one size."""

import math

import numpy as np

from keras_vit._arguments import Count, checked
from keras_vit.data import decode, pillow
from keras_vit.data.optional_imports import tensorflow, unconverted
from keras_vit.data.task_pipelines import pixels_of
from keras_vit.data.task_sources import TaskSource

# Of the sides of an image: each window takes the memory of an image.
MOST = 64


@checked
@unconverted
def task_windows(source: TaskSource, *, side: Count, channels: Count = 3):
    """Return the windows of every image, in order.

    An image is resized so that its shorter side is that of a window. As few
    windows as cover it overlap along the other one.

    Args:
        source: The evaluation part of `load_task`.
        side: Height and width of a window, in pixels.
        channels: 1 or 3.

    Returns:
        A tf.data.Dataset of {"index": its number, "images": float32 `[n, S, S,
        C]`, "starts": int32 `[n, 2]`, rows and columns, "scaled" and "sizes":
        int32 `[2]`, (height, width) after and before}.

    Reference:
        Kerssies et al. 2025 (2503.19108); `window_imgs_semantic` in
        training/lightning_module.py of tue-mps/eomt.
    """
    tf = tensorflow()

    def load(index):
        example = source.load(int(index))
        image = pixels_of(source, int(index), example, channels)
        image = decode.recolour(tf.convert_to_tensor(image), channels)
        found = image_windows(image, side, decode.resize)
        return *found.values(), np.array(image.shape[:2], "int32")

    def prepare(index):
        kinds = ("float32", "int32", "int32", "int32")
        found = tf.numpy_function(load, [index], kinds)
        names = ("images", "starts", "scaled", "sizes")
        return dict(zip(names, found, strict=True)) | dict(index=index)

    examples = tf.data.Dataset.range(source.num_examples).map(
        prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    return examples.prefetch(tf.data.AUTOTUNE)


def image_windows(image, side: int, resize=pillow.resize) -> dict:
    """Return the "images", "starts" and "scaled" of `task_windows`.

    Args:
        image: `[H, W, C]`.
        side: Of a window.
        resize: Function of the image and of its new size.

    Raises:
        ValueError: If the image is more than `MOST` times as long as wide.
    """
    size = tuple(image.shape[:2])
    if max(size) > MOST * min(size):
        raise ValueError(
            f"`image` must be at most {MOST} times as long as wide, to be cut "
            f"into windows. Received: {size[0]} x {size[1]} pixels"
        )
    height, width = (round(n * side / min(size)) for n in size)
    image = np.asarray(resize(image, (height, width)), "float32")
    starts = window_starts((height, width), side)
    windows = [image[y : y + side, x : x + side] for y, x in starts]
    return dict(
        images=np.stack(windows),
        starts=np.array(starts, "int32"),
        scaled=np.array((height, width), "int32"),
    )


def window_starts(size: tuple[int, int], side: int) -> list[tuple[int, int]]:
    """Return where windows begin, (row, column), in an image as large."""
    longer = max(size)
    count = math.ceil(longer / side)
    last = longer - side
    starts = [i * last // max(count - 1, 1) for i in range(count)]
    if size[0] > size[1]:
        return [(start, 0) for start in starts]
    return [(0, start) for start in starts]
