"""The best one-to-one matching of targets and predictions, on any backend."""

import keras
import numpy as np
from keras import ops

# In place of a cost that is not a number: chosen last.
_FORBIDDEN = 1e6


def linear_assignment(cost, valid):
    """Assign a column to each row, so that the sum of the costs is least.

    Rows are added one after the other, each along the shortest path to a free
    column (Jonker and Volgenant 1987, as `scipy.optimize.
    linear_sum_assignment`). All shapes are fixed and the loops are those of
    `keras.ops`, so that it compiles, for a TPU too. PyTorch, which would run
    the loops in Python, calls SciPy where it is installed.

    Args:
        cost: `[B, M, N]`, with M at most N. What is not finite counts as a
            million.
        valid: `[B, M]`, false for the rows to leave out.

    Returns:
        `[B, M]`, int32: the column of each row; -1 for those left out. No
        gradient flows through it.

    Raises:
        ValueError: If there are more rows than columns, or the shapes do not
            fit.

    Example:
        linear_assignment([[[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]]], [[True, True]])
    """
    cost = ops.stop_gradient(ops.cast(cost, "float32"))
    cost = ops.where(ops.isfinite(cost), cost, _FORBIDDEN)
    valid = ops.cast(valid, "bool")
    if len(cost.shape) != 3 or tuple(valid.shape) != tuple(cost.shape[:2]):
        raise ValueError(
            "`cost` must be [B, M, N], and `valid` [B, M]. Received: shapes "
            f"{tuple(cost.shape)} and {tuple(valid.shape)}"
        )
    rows, columns = cost.shape[1:]
    if rows > columns:
        raise ValueError(
            "There must be at least as many predictions as targets, padding "
            f"included. Received: {rows} targets for {columns} predictions; "
            "pad to fewer objects, or give the model more queries"
        )
    if keras.backend.backend() == "torch" and not _is_symbolic(cost):
        try:
            from scipy.optimize import linear_sum_assignment
        except ImportError:
            pass
        else:
            return _by_scipy(linear_sum_assignment, cost, valid)
    return _shortest_paths(cost, valid)


def _is_symbolic(x):
    return isinstance(x, keras.KerasTensor) or str(x.device) == "meta"


def _by_scipy(solve, cost, valid):
    cost, valid = ops.convert_to_numpy(cost), ops.convert_to_numpy(valid)
    found = np.full(valid.shape, -1, "int32")
    for costs, kept, columns in zip(cost, valid, found, strict=True):
        columns[kept] = solve(costs[kept])[1]
    return ops.convert_to_tensor(found)


def _shortest_paths(cost, valid):
    """Return the assignment, with loops over rows, paths and steps of a path.

    The batch goes in step: an example whose path is complete waits. Column N is
    that from which the path of each new row begins. The potential of a matched
    row is its cost less the potential of its column.
    """
    num_rows, num_columns = cost.shape[1:]
    columns = ops.arange(num_columns + 1, dtype="int32")[None]
    zeros = ops.zeros_like(cost[:, 0])  # [B, N]

    def add_row(row, row_of, potential):
        row_of = ops.where(columns == num_columns, row, row_of)
        added = _at(valid, ops.zeros_like(row_of[:, 0]) + row)
        length, distance, previous, done, column, _ = _shortest_path(
            cost, potential, row_of, added
        )
        potential = potential + ops.where(done, distance - length[:, None], 0.0)
        return row + 1, _shifted(row_of, previous, column), potential

    none = ops.cast(ops.pad(zeros, [(0, 0), (0, 1)]), "int32") + num_rows
    _, row_of, _ = ops.while_loop(
        lambda row, *_: row < num_rows,
        add_row,
        (ops.convert_to_tensor(0, "int32"), none, zeros),
    )
    rows = ops.arange(num_rows, dtype="int32")[None, :, None]
    matches = row_of[:, None, :-1] == rows  # [B, M, N]
    found = ops.cast(ops.argmax(ops.cast(matches, "int32"), axis=-1), "int32")
    return ops.where(valid, found, -1)


def _at(x, index):
    """Return an entry of each example, `[B]`, of `[B, N]`."""
    return ops.take_along_axis(x, index[:, None], axis=1)[:, 0]


def _shortest_path(cost, potential, row_of, added):
    """Search from the new row of each example to a free column.

    Args:
        cost: `[B, M, N]`
        potential: Of the columns, `[B, N]`.
        row_of: The row of each column, M of a free one, `[B, N + 1]`.
        added: Whether the row is to be matched, `[B]`.

    Returns:
        The length of the path, `[B]`; the distance of each column, the column
        before it, and whether that is final, `[B, N]`; the last column, `[B]`;
        true, `[B]`.
    """
    num_rows, num_columns = cost.shape[1:]
    columns = ops.arange(num_columns, dtype="int32")[None]

    def search(length, distance, previous, done, column, waiting):
        # Of an example that waits it may be M, the mark of a free column.
        of_row = ops.minimum(_at(row_of, column), num_rows - 1)
        costs = ops.take_along_axis(cost, of_row[:, None, None], axis=1)
        costs = costs[:, 0] - potential  # [B, N]
        matched = ops.minimum(column, num_columns - 1)
        own = ops.where(column == num_columns, 0.0, _at(costs, matched))
        through = (length - own)[:, None] + costs
        better = ops.logical_not(done) & (through < distance)
        better = better & ops.logical_not(waiting)[:, None]
        distance = ops.where(better, through, distance)
        previous = ops.where(better, column[:, None], previous)
        open_distance = ops.where(done, np.inf, distance)
        nearest = ops.cast(ops.argmin(open_distance, axis=1), "int32")
        nearest = ops.where(waiting, column, nearest)
        last = ops.minimum(nearest, num_columns - 1)
        length = ops.where(waiting, length, _at(distance, last))
        waiting = waiting | (_at(row_of, nearest) == num_rows)
        reached = columns == nearest[:, None]
        done = done | (reached & ops.logical_not(waiting)[:, None])
        return length, distance, previous, done, nearest, waiting

    zeros = ops.zeros_like(potential)
    return ops.while_loop(
        lambda *state: ops.logical_not(ops.all(state[-1])),
        search,
        (
            zeros[:, 0],
            zeros + np.inf,
            ops.zeros_like(row_of[:, 1:]),
            zeros > 0,
            ops.zeros_like(row_of[:, 0]) + num_columns,
            ops.logical_not(added),
        ),
    )


def _shifted(row_of, previous, column):
    """Give each column of a path, back from `column`, the row before it."""
    num_columns = previous.shape[1]
    columns = ops.arange(num_columns + 1, dtype="int32")[None]

    def shift(row_of, column):
        matched = ops.minimum(column, num_columns - 1)
        before = _at(previous, matched)
        before = ops.where(column == num_columns, column, before)
        row_of = ops.where(
            columns == column[:, None], _at(row_of, before)[:, None], row_of
        )
        return row_of, before

    row_of, _ = ops.while_loop(
        lambda row_of, column: ops.any(column != num_columns),
        shift,
        (row_of, column),
    )
    return row_of
