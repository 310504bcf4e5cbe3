"""Weights for another resolution or another number of channels."""

import numpy as np


def resample_positions(
    table: np.ndarray,
    source_grid: tuple[int, int],
    target_grid: tuple[int, int],
) -> np.ndarray:
    """Resamples position embeddings from one grid of patches to another.

    Bilinear with corners aligned, each axis on its own: output j of n reads
    input position j (m - 1) / (n - 1). Rows before the grid (the class
    token's) are kept.

    Args:
        table: `[1, T, D]`, the last height x width rows a grid in raster
            order.
        source_grid: (height, width) of the table's grid.
        target_grid: (height, width) wanted.

    Returns:
        `[1, T', D]`; the table itself where the grids are equal.

    Reference:
        Dosovitskiy et al. 2021, section 3.2; checked against
        `interpolate_posembed` in vit_jax/checkpoint.py.
    """
    source_grid, target_grid = tuple(source_grid), tuple(target_grid)
    if source_grid == target_grid:
        return table
    tokens, width = table.shape[1:]
    first = tokens - source_grid[0] * source_grid[1]
    grid = table[0, first:].reshape(*source_grid, width).astype("float64")
    rows, columns = (
        _interpolation(m, n)
        for m, n in zip(source_grid, target_grid, strict=True)
    )
    grid = np.einsum("ih,jw,hwd->ijd", rows, columns, grid, optimize=True)
    grid = grid.reshape(1, -1, width).astype(table.dtype)
    return np.concatenate([table[:, :first], grid], axis=1)


def _interpolation(m, n):
    """The [n, m] matrix of linear interpolation with aligned corners."""
    positions = np.linspace(0, m - 1, n)
    left = np.clip(np.floor(positions).astype(int), 0, max(m - 2, 0))
    matrix = np.zeros((n, m))
    matrix[np.arange(n), left] = 1 - (positions - left)
    if m > 1:
        matrix[np.arange(n), left + 1] += positions - left
    return matrix


def resize_patches(kernel: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes a patch kernel so that resized patches embed as before.

    The kernel w' for which <resize(x), w'> is closest to <x, w> over all
    patches x: the pseudo-inverse of bilinear resizing, transposed, applied to
    w. Growing patches lose nothing.

    Args:
        kernel: `[h, w, C, D]`.
        size: (height, width) wanted, in pixels.

    Returns:
        `[height, width, C, D]`; the kernel itself where the sizes are equal.

    Reference:
        Beyer et al. 2023, "FlexiViT" (2212.08013), section 3.4.
    """
    if kernel.shape[:2] == tuple(size):
        return kernel
    # Resizing acts on each axis alone, and so does its pseudo-inverse.
    rows, columns = (
        np.linalg.pinv(resizing(m, n).T)
        for m, n in zip(kernel.shape[:2], size, strict=True)
    )
    resized = np.einsum(
        "ih,jw,hwcd->ijcd", rows, columns, kernel, optimize=True
    )
    return resized.astype(kernel.dtype)


def resizing(m: int, n: int) -> np.ndarray:
    """Returns the [n, m] matrix of bilinear resizing as `tf.image.resize`.

    Output j reads the input at (j + 1/2) m / n - 1/2, within its borders.

    Args:
        m, n: Lengths of the input and of the output.
    """
    positions = np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1)
    distances = np.abs(np.arange(m)[None, :] - positions[:, None])
    return np.maximum(0.0, 1.0 - distances)


def fold_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapts a kernel's input channels, keeping their sum.

    An image whose channels are all alike gets the same response as before.
    With fewer channels, source channel s is added to target s mod n; with
    more, target c gets its share of source c mod m.

    Args:
        kernel: `[height, width, m, D]`.
        channels: Number n of channels wanted.

    Returns:
        `[height, width, n, D]`; the kernel itself where n = m.
    """
    source = kernel.shape[2]
    if source == channels:
        return kernel
    fold = np.zeros((channels, source))
    for i in range(max(channels, source)):
        fold[i % channels, i % source] = 1
    if channels > source:
        fold /= fold.sum(axis=0)
    folded = np.einsum("nm,hwmd->hwnd", fold, kernel, optimize=True)
    return folded.astype(kernel.dtype)
