"""The positions of each attention layer's tokens on the grid of patches."""

import dataclasses
import math

import numpy as np
from keras import ops

# For each axis of (T, H, W), a matrix [pooled tokens, tokens] whose rows sum to
# 1: each pooled token is an average of tokens.
Windows = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The queries, or the keys, of a block's attention.

    Attributes:
        grid: Number of tokens along (T, H, W).
        places: Positions along (T, H, W), in patches from the first.
        windows: The pooling windows; None in a block that does not pool.
    """

    grid: tuple[int, int, int]
    places: tuple[np.ndarray, np.ndarray, np.ndarray]
    windows: Windows | None

    def spread(self, mass):
        """Return the mass of the tokens, spread over the block's inputs.

        Args:
            mass: `[B, N]`, with the class token first if there is one.
        """
        if self.windows is None:
            return mass
        count = math.prod(self.grid)
        first, patches = mass[:, :-count], mass[:, -count:]
        windows = [ops.convert_to_tensor(w, "float32") for w in self.windows]
        patches = ops.einsum(
            "bthw,ti,hj,wk->bijk",
            ops.reshape(patches, (-1, *self.grid)),
            *windows,
        )
        inputs = math.prod(w.shape[1] for w in windows)
        patches = ops.reshape(patches, (-1, inputs))
        return ops.concatenate([first, patches], axis=1)

    def points(self) -> np.ndarray:
        """Return the (row, column) of each token in patches, `[N, 2]`.

        The frame is left out, because distances are measured within a frame.
        """
        rows, columns = np.meshgrid(*self.places[1:], indexing="ij")
        points = np.stack([rows.ravel(), columns.ravel()], axis=-1)
        return np.tile(points, (self.grid[0], 1))


def of_block(block, before: Tokens) -> tuple[Tokens, Tokens]:
    """Return the queries and the keys of a block's attention."""
    attention = getattr(block, "attn", None)
    return tuple(
        _pooled(getattr(attention, name, None), before)
        for name in ("pool_q", "pool_k")
    )


def of_patches(grid: tuple[int, ...]) -> Tokens:
    """Return the tokens before the first block.

    Args:
        grid: (H, W), or (T, H, W) for a video.
    """
    frames, height, width = (1,) * (3 - len(grid)) + tuple(grid)
    places = (
        np.arange(frames, dtype=float),
        np.arange(height, dtype=float),
        np.arange(width, dtype=float),
    )
    return Tokens((frames, height, width), places, None)


def _pooled(pool, tokens):
    if pool is None:
        return dataclasses.replace(tokens, windows=None)
    windows = tuple(
        _windows(*sizes)
        for sizes in zip(
            pool.grid_size,
            pool.output_grid,
            pool.kernel_size,
            pool.strides,
            strict=True,
        )
    )
    places = tuple(
        each @ place for each, place in zip(windows, tokens.places, strict=True)
    )
    return Tokens(tuple(pool.output_grid), places, windows)


def _windows(num_inputs, num_outputs, kernel, stride):
    """Return the windows along an axis, padded by half a kernel."""
    start = stride * np.arange(num_outputs)[:, None] - kernel // 2
    place = np.arange(num_inputs)
    inside = (start <= place) & (place < start + kernel)
    return inside / inside.sum(axis=1, keepdims=True)
