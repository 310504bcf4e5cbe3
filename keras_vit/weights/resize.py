"""Weights for another resolution or another number of channels."""

import functools
import math
from collections.abc import Callable

import numpy as np


def resample_positions(
    table: np.ndarray,
    source_grid: tuple[int, int],
    target_grid: tuple[int, int],
    method: str = "aligned_bilinear",
) -> np.ndarray:
    """Resample position embeddings from one grid of patches to another.

    Rows before the grid (those of the class token and registers) are
    unchanged.

    Args:
        table: `[1, T, D]`; the last height x width rows are a grid in raster
            order.
        source_grid: (height, width) of the table's grid.
        target_grid: (height, width) of the result.
        method: One of `METHODS`; the ViT authors'.

    Returns:
        `[1, T', D]`; the table itself if the grids are equal.

    Reference:
        Dosovitskiy et al. 2021, section 3.2; checked against
        `interpolate_posembed` in vit_jax/checkpoint.py, and against PyTorch's
        `interpolate`, which timm and transformers call.
    """
    source_grid, target_grid = tuple(source_grid), tuple(target_grid)
    if source_grid == target_grid:
        return table
    tokens, width = table.shape[1:]
    first = tokens - source_grid[0] * source_grid[1]
    grid = table[0, first:].reshape(*source_grid, width).astype("float64")
    grid = _resample_axes(grid, target_grid, method)
    grid = grid.reshape(1, -1, width).astype(table.dtype)
    return np.concatenate([table[:, :first], grid], axis=1)


def _resample_axes(maps, size, method):
    """Resample the first two axes of `[h, w, ...]`, each by a matrix."""
    rows, columns = (
        METHODS[method](m, n) for m, n in zip(maps.shape[:2], size, strict=True)
    )
    return np.einsum("ih,jw,hw...->ij...", rows, columns, maps, optimize=True)


def _aligned(m, n):
    """Return the [n, m] matrix of linear interpolation with aligned corners.

    Output j reads the input at j (m - 1) / (n - 1).
    """
    positions = np.linspace(0, m - 1, n)
    left = np.clip(np.floor(positions).astype(int), 0, max(m - 2, 0))
    matrix = np.zeros((n, m))
    matrix[np.arange(n), left] = 1 - (positions - left)
    if m > 1:
        matrix[np.arange(n), left + 1] += positions - left
    return matrix


def _cubic(m, n, antialias):
    """Return the [n, m] matrix of cubic convolution (Keys 1981).

    Output j reads the input at (j + 1/2) m / n - 1/2. With antialiasing a =
    -0.5, and kernels are stretched for a smaller grid; without it a = -0.75,
    and borders are repeated.
    """
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
    method: str,
) -> np.ndarray:
    """Resample a table of relative positions to another grid of patches.

    Args:
        table: `[(2 H - 1) (2 W - 1), A]`; further rows, those of the class
            token, are unchanged.
        source_grid, target_grid: (H, W) of the table and the result.
        method: One of `METHODS`.
    """
    if tuple(source_grid) == tuple(target_grid):
        return table
    height, width = (2 * n - 1 for n in source_grid)
    distances, rest = np.split(table, [height * width])
    distances = distances.reshape(height, width, -1).astype("float64")
    size = tuple(2 * n - 1 for n in target_grid)
    distances = _resample_axes(distances, size, method)
    distances = distances.reshape(-1, table.shape[1]).astype(table.dtype)
    return np.concatenate([distances, rest])


def _geometric(m, n):
    """Return the [n, m] matrix of BEiT's linear interpolation.

    The m inputs lie at distances 0, 1, 1 + q, 1 + q + q^2, ... from the middle,
    with q such that the last is that of the outermost output; m and n are odd.
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


def resize_patches(
    kernel: np.ndarray, size: tuple[int, int], method: str = ""
) -> np.ndarray:
    """Resize a patch kernel so that resized patches keep their embeddings.

    The kernel w' for which <resize(x), w'> is closest to <x, w> over all
    patches x: the pseudo-inverse of resizing, transposed, applied to w. For
    larger patches the embeddings are exact.

    Args:
        kernel: `[h, w, C, D]`.
        size: (height, width) of the result, in pixels.
        method: How the checkpoint's positions are resampled. timm resizes
            patches with antialiasing where it does positions; everything else
            is bilinear, as in the paper.

    Returns:
        `[height, width, C, D]`; the kernel itself if the sizes are equal.

    Reference:
        Beyer et al. 2023, "FlexiViT" (2212.08013), section 3.4; checked
        against `resample_patch_embed` of timm.
    """
    if kernel.shape[:2] == tuple(size):
        return kernel
    antialias = method in ("antialiased_bicubic", "geometric")
    resizing = METHODS["antialiased_bicubic" if antialias else "bilinear"]
    # Resizing is separable by axis, and so is its pseudo-inverse.
    rows, columns = (
        np.linalg.pinv(resizing(m, n).T)
        for m, n in zip(kernel.shape[:2], size, strict=True)
    )
    resized = np.einsum(
        "ih,jw,hwcd->ijcd", rows, columns, kernel, optimize=True
    )
    return resized.astype(kernel.dtype)


def bilinear(m: int, n: int) -> np.ndarray:
    """Return the [n, m] matrix of bilinear resizing as `tf.image.resize`.

    Output j reads the input at (j + 1/2) m / n - 1/2, clipped to its borders.
    """
    positions = np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1)
    distances = np.abs(np.arange(m)[None, :] - positions[:, None])
    return np.maximum(0.0, 1.0 - distances)


def antialiased_bilinear(m: int, n: int) -> np.ndarray:
    """Return the [n, m] matrix of bilinear resizing with antialiasing.

    As `bilinear`, with the weights stretched for a smaller size (Pillow's).
    """
    positions = (np.arange(n) + 0.5) * m / n - 0.5
    distances = np.abs(np.arange(m)[None, :] - positions[:, None])
    weights = np.maximum(0.0, 1.0 - distances / max(1.0, m / n))
    return weights / weights.sum(axis=1, keepdims=True)


def resize_pixels(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image bilinearly, with antialiasing.

    Args:
        image: `[H, W, C]`
        size: (height, width) of the result.
    """
    return _resample_axes(image, size, "antialiased_bilinear")


# Each returns the [n, m] matrix that resamples an axis from length m to n.
METHODS: dict[str, Callable] = dict(
    aligned_bilinear=_aligned,
    bilinear=bilinear,
    antialiased_bilinear=antialiased_bilinear,
    bicubic=functools.partial(_cubic, antialias=False),
    antialiased_bicubic=functools.partial(_cubic, antialias=True),
    geometric=_geometric,
)


def fold_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapt a kernel's input channels, keeping their sum.

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
