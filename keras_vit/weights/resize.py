"""Weights for another resolution or another number of channels."""

import math

import numpy as np


def resample_positions(
    table: np.ndarray,
    source_grid: tuple[int, int],
    target_grid: tuple[int, int],
) -> np.ndarray:
    """Resamples position embeddings from one grid of patches to another.

    Bilinear with aligned corners, each axis separately: output j of n reads
    input position j (m - 1) / (n - 1). Rows before the grid (the class token)
    are unchanged.

    Args:
        table: `[1, T, D]`; the last height x width rows are a grid in raster
            order.
        source_grid: (height, width) of the table's grid.
        target_grid: (height, width) of the result.

    Returns:
        `[1, T', D]`; the table itself if the grids are equal.

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
    """Returns the [n, m] matrix of linear interpolation with aligned
    corners."""
    positions = np.linspace(0, m - 1, n)
    left = np.clip(np.floor(positions).astype(int), 0, max(m - 2, 0))
    matrix = np.zeros((n, m))
    matrix[np.arange(n), left] = 1 - (positions - left)
    if m > 1:
        matrix[np.arange(n), left + 1] += positions - left
    return matrix


def resample_bicubic(
    table: np.ndarray,
    source_grid: tuple[int, int],
    target_grid: tuple[int, int],
    antialias: bool,
) -> np.ndarray:
    """Resamples position embeddings as `interpolate` of PyTorch does.

    Bicubic, with half-pixel centres: output j of n reads input position
    (j + 1/2) m / n - 1/2.

    Args:
        table: `[1, T, D]`; the last height x width rows are a grid in raster
            order. Rows before them are unchanged.
        source_grid: (height, width) of the table's grid.
        target_grid: (height, width) of the result.
        antialias: With it a = -0.5, and kernels are stretched for a smaller
            grid (timm; DINOv2 with registers in transformers). Without it
            a = -0.75, and borders are repeated (DINOv2, CLIP and SigLIP in
            transformers).

    Returns:
        `[1, T', D]`; the table itself if the grids are equal.
    """
    source_grid, target_grid = tuple(source_grid), tuple(target_grid)
    if source_grid == target_grid:
        return table
    tokens, width = table.shape[1:]
    first = tokens - source_grid[0] * source_grid[1]
    grid = table[0, first:].reshape(*source_grid, width).astype("float64")
    rows, columns = (
        _cubic(m, n, antialias)
        for m, n in zip(source_grid, target_grid, strict=True)
    )
    grid = np.einsum("ih,jw,hwd->ijd", rows, columns, grid, optimize=True)
    grid = grid.reshape(1, -1, width).astype(table.dtype)
    return np.concatenate([table[:, :first], grid], axis=1)


def _cubic(m, n, antialias):
    """Returns the [n, m] matrix of cubic convolution (Keys 1981)."""
    a = -0.5 if antialias else -0.75
    stretch = max(1.0, m / n) if antialias else 1.0
    positions = (np.arange(n) + 0.5) * m / n - 0.5
    reach = math.ceil(2 * stretch) + 1
    taps = np.floor(positions)[:, None] + np.arange(-reach, reach + 1)
    t = np.abs(taps - positions[:, None]) / stretch
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    weights = np.where(t <= 1, near, np.where(t < 2, far, 0.0))
    if antialias:
        weights = np.where((taps >= 0) & (taps < m), weights, 0.0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((n, m))
    inputs = np.clip(taps, 0, m - 1).astype(int)
    np.add.at(matrix, (np.arange(n)[:, None], inputs), weights)
    return matrix


def resample_distances(
    table: np.ndarray,
    source_grid: tuple[int, int],
    target_grid: tuple[int, int],
    matrix,
) -> np.ndarray:
    """Resamples a table of relative positions to another grid of patches.

    Args:
        table: `[(2 H - 1) (2 W - 1) + 3, A]`; the last three rows, those of
            the class token, are unchanged.
        source_grid: (H, W) of the table.
        target_grid: (height, width) of the result.
        matrix: Returns the [n, m] matrix of an axis, given m and n:
            `geometric` (timm) or `resizing` (transformers).
    """
    if tuple(source_grid) == tuple(target_grid):
        return table
    height, width = (2 * n - 1 for n in source_grid)
    distances = table[:-3].reshape(height, width, -1).astype("float64")
    rows, columns = (
        matrix(2 * m - 1, 2 * n - 1)
        for m, n in zip(source_grid, target_grid, strict=True)
    )
    distances = np.einsum("ih,jw,hwa->ija", rows, columns, distances)
    distances = distances.reshape(-1, table.shape[1]).astype(table.dtype)
    return np.concatenate([distances, table[-3:]])


def geometric(m: int, n: int) -> np.ndarray:
    """Returns the [n, m] matrix of BEiT's linear interpolation.

    The m inputs lie at distances 0, 1, 1 + q, 1 + q + q^2, ... from the middle,
    with q such that the last is that of the outermost output.

    Args:
        m, n: Lengths of the input and of the output, odd.
    """
    low, high, ratio = 1.01, 1.5, 1.01
    while high - low > 1e-6:
        ratio = (low + high) / 2
        if (1 - ratio ** (m // 2)) / (1 - ratio) > n // 2:
            high = ratio
        else:
            low = ratio
    steps = ratio ** np.arange(m // 2)
    places = np.cumsum(steps)
    places = np.concatenate([-places[::-1], [0.0], places])
    outputs = np.arange(n) - n // 2
    return np.stack(
        [np.interp(outputs, places, column) for column in np.eye(m)], axis=1
    )


def resize_patches(kernel: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes a patch kernel so that resized patches keep their embeddings.

    The kernel w' for which <resize(x), w'> is closest to <x, w> over all
    patches x: the pseudo-inverse of bilinear resizing, transposed, applied to
    w. For larger patches the embeddings are exact.

    Args:
        kernel: `[h, w, C, D]`.
        size: (height, width) of the result, in pixels.

    Returns:
        `[height, width, C, D]`; the kernel itself if the sizes are equal.

    Reference:
        Beyer et al. 2023, "FlexiViT" (2212.08013), section 3.4.
    """
    if kernel.shape[:2] == tuple(size):
        return kernel
    # Resizing is separable by axis, and so is its pseudo-inverse.
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

    Output j reads the input at (j + 1/2) m / n - 1/2, clipped to its borders.

    Args:
        m, n: Lengths of the input and of the output.
    """
    positions = np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1)
    distances = np.abs(np.arange(m)[None, :] - positions[:, None])
    return np.maximum(0.0, 1.0 - distances)


def fold_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapts a kernel's input channels, keeping their sum.

    The response to an image whose channels are equal does not change. With
    fewer channels, source channel s is added to target s mod n; with more,
    target c gets a share of source c mod m.

    Args:
        kernel: `[height, width, m, D]`.
        channels: Number n of channels of the result.

    Returns:
        `[height, width, n, D]`; the kernel itself if n = m.
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
