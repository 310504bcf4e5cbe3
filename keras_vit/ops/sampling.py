"""Values of maps between their pixels."""

import keras
from keras import ops


def sample(maps, points):
    """Return the values of maps at points, bilinear, with zeros around them.

    Args:
        maps: `[B, M, H, W]`.
        points: `[B, M, P, 2]` or `[1, 1, P, 2]`: x and y, from 0 at the left
            and upper edge to 1 at the right and lower one.

    Returns:
        `[B, M, P]`, as `torch.nn.functional.grid_sample` with
        `align_corners=False`.
    """
    if keras.backend.backend() == "torch":
        return _by_torch(maps, points)
    return plain(maps, points)


def plain(maps, points):
    """Return what `sample` does, by Keras alone."""
    height, width = maps.shape[2:]
    batch, num_maps = ops.shape(maps)[:2]
    x, y = (
        points[..., i, None] * size - 0.5
        for i, size in ((0, width), (1, height))
    )
    # Of the four corners around a point, [..., P, 4].
    column = ops.floor(x) + ops.array([0, 1, 0, 1], "float32")
    row = ops.floor(y) + ops.array([0, 0, 1, 1], "float32")
    weights = (1 - ops.abs(x - column)) * (1 - ops.abs(y - row))
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    # One value more, 0, is what corners outside of the map get.
    index = ops.cast(row * width + column, "int32")
    index = ops.where(inside, index, height * width)
    count = points.shape[2]
    if points.shape[0] == 1 and points.shape[1] == 1:
        # Whole rows of a matrix are read.
        flat = ops.reshape(maps, (batch * num_maps, height * width))
        flat = ops.pad(ops.transpose(flat), ((0, 1), (0, 0)))
        values = ops.take(flat, ops.reshape(index, (-1,)), axis=0)
        values = ops.reshape(values, (count, 4, batch * num_maps))
        found = ops.transpose(ops.matmul(weights[0, 0, :, None], values)[:, 0])
        return ops.reshape(found, (batch, num_maps, count))
    flat = ops.reshape(maps, (batch, num_maps, height * width))
    flat = ops.pad(flat, ((0, 0), (0, 0), (0, 1)))
    index = ops.reshape(index, (batch, num_maps, count * 4))
    values = ops.take_along_axis(flat, index, axis=2)
    values = ops.reshape(values, (batch, num_maps, count, 4))
    return ops.sum(values * weights, axis=-1)


def _by_torch(maps, points):
    import torch

    batch, num_maps, *size = maps.shape
    if tuple(points.shape[:2]) == (1, 1):
        points = points.expand(batch, *points.shape[1:])
    else:
        maps = maps.reshape(batch * num_maps, 1, *size)
        points = points.reshape(batch * num_maps, 1, *points.shape[2:])
    found = torch.nn.functional.grid_sample(
        maps, 2 * points - 1, align_corners=False
    )
    return found.reshape(batch, num_maps, -1)
