"""Distances between the patches of a grid."""

import numpy as np


def distances(grid: tuple[int, int]) -> np.ndarray:
    """Returns the row of a table of distances for each pair, `[N, N]`.

    The table has the rows of [-(H - 1), H - 1] x [-(W - 1), W - 1].

    Args:
        grid: (rows, columns) of the patches, H and W.
    """
    rows, columns = grid
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"))
    places = places.reshape(2, -1)
    across = places[:, :, None] - places[:, None]  # [2, N, N]
    index = (across[0] + rows - 1) * (2 * columns - 1)
    return index + across[1] + columns - 1


def with_class_token(grid: tuple[int, int]) -> np.ndarray:
    """Returns `distances` of a class token and patches, `[N + 1, N + 1]`.

    The last three rows of the table are those of the class token: to patches,
    from patches, to itself.
    """
    rows, columns = grid
    last = (2 * rows - 1) * (2 * columns - 1)
    index = np.pad(distances(grid), ((1, 0), (1, 0)))
    index[0, :], index[:, 0], index[0, 0] = last, last + 1, last + 2
    return index


def log_distances(grid: tuple[int, int]) -> np.ndarray:
    """Returns sign(d) log(1 + |d|) of each row of the table, on both axes."""
    rows, columns = (np.arange(1.0 - n, n) for n in grid)
    table = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    logs = np.sign(table) * np.log1p(np.abs(table))
    return logs.reshape(-1, 2).astype("float32")
