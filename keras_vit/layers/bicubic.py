"""Bicubic resizing of feature maps, the same on every backend."""

from keras import ops

from keras_vit.ops.precision import wide_dtype


def resize_bicubic(maps, size: tuple):
    """Resizes maps `[B, H, W, C]` to a (height, width), the same everywhere.

    Half-pixel centres, a = -0.75, no antialiasing, borders repeated: PyTorch's
    `interpolate(mode="bicubic")`. Each axis is a product with a matrix whose
    rows have four entries. Sizes may be unknown until the model is called.
    """
    dtype, shape = maps.dtype, ops.shape(maps)
    wide = wide_dtype(dtype)
    rows, columns = (
        ops.cast(_bicubic(n_in, n_out, wide), dtype)
        for n_in, n_out in zip(shape[1:3], size, strict=True)
    )
    maps = ops.einsum("ih,bhwc->biwc", rows, maps)
    return ops.einsum("jw,biwc->bijc", columns, maps)


def _bicubic(n_in, n_out, dtype):
    """The [n_out, n_in] matrix of cubic convolution (Keys 1981)."""
    scale = ops.cast(n_in, dtype) / ops.cast(n_out, dtype)
    position = (ops.arange(n_out, dtype=dtype) + 0.5) * scale - 0.5
    first = ops.floor(position)
    fraction = position - first
    inputs = ops.arange(n_in, dtype=dtype)
    a, matrix = -0.75, 0.0
    for tap in (-1, 0, 1, 2):
        t = ops.abs(fraction - tap)
        if tap in (0, 1):  # t <= 1
            weight = ((a + 2) * t - (a + 3)) * t * t + 1
        else:
            weight = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        tapped = ops.clip(first + tap, 0, inputs[-1])  # the border, repeated
        is_tapped = ops.cast(tapped[:, None] == inputs, dtype)
        matrix = matrix + weight[:, None] * is_tapped
    return matrix


def is_size(size, other):
    """Whether two sizes are known to be equal."""
    return all(
        isinstance(n, int) and n == m for n, m in zip(size, other, strict=True)
    )
