"""Where the tokens of each attention lie on the grid of patches."""

import dataclasses

import numpy as np

# For each axis of (T, H, W), what a pooled token is the average of: a matrix
# [pooled tokens, tokens] whose rows sum to 1.
Windows = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The queries, or the keys, of a block's attention.

    Attributes:
        grid: (T, H, W) of them.
        places: Of each row and column, in patches from the first.
        windows: Of a block that pools them, else None.
    """

    grid: tuple[int, int, int]
    places: tuple[np.ndarray, np.ndarray, np.ndarray]
    windows: Windows | None

    def spread(self, mass: np.ndarray) -> np.ndarray:
        """Returns what each of the block's inputs has of the tokens' mass.

        Args:
            mass: `[B, N]`, a class token first where there is one.
        """
        if self.windows is None:
            return mass
        count = np.prod(self.grid)
        first, patches = mass[:, :-count], mass[:, -count:]
        patches = np.einsum(
            "bthw,ti,hj,wk->bijk",
            patches.reshape(-1, *self.grid),
            *self.windows,
            optimize=True,
        )
        return np.concatenate([first, patches.reshape(len(mass), -1)], axis=1)

    def points(self) -> np.ndarray:
        """Returns the (row, column) of each token in patches, `[N, 2]`.

        Frames are left out: distances are within the picture.
        """
        rows, columns = np.meshgrid(*self.places[1:], indexing="ij")
        points = np.stack([rows.ravel(), columns.ravel()], axis=-1)
        return np.tile(points, (self.grid[0], 1))


def of_block(block, before: Tokens) -> tuple[Tokens, Tokens]:
    """Returns the queries and the keys of a block's attention.

    Args:
        block: The block.
        before: The tokens that it is given.
    """
    attention = getattr(block, "attn", None)
    return tuple(
        _pooled(getattr(attention, name, None), before)
        for name in ("pool_q", "pool_k")
    )


def of_patches(grid: tuple[int, ...]) -> Tokens:
    """Returns the tokens before the first block.

    Args:
        grid: (H, W), or (T, H, W) of a video.
    """
    grid = (1,) * (3 - len(grid)) + tuple(grid)
    return Tokens(grid, tuple(np.arange(n, dtype=float) for n in grid), None)


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
    """Returns the windows along an axis, padded by half a kernel."""
    start = stride * np.arange(num_outputs)[:, None] - kernel // 2
    place = np.arange(num_inputs)
    inside = (start <= place) & (place < start + kernel)
    return inside / inside.sum(axis=1, keepdims=True)
