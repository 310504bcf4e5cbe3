"""Bilinear resizing of outputs, in NumPy."""

import numpy as np

from keras_vit.weights import resize


def resized(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize maps, bilinear with half-pixel centres and no antialiasing.

    Args:
        maps: `[h, w, ...]`.
        size: (height, width) of the result.

    Returns:
        `[height, width, ...]`, float32.
    """
    maps = np.asarray(maps, "float32")
    for axis, n in enumerate(size):
        if maps.shape[axis] != n:
            matrix = resize.bilinear(maps.shape[axis], n).astype("float32")
            maps = np.moveaxis(np.tensordot(matrix, maps, (1, axis)), 0, axis)
    return maps
