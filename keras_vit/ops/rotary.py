"""Rotary position embeddings of queries and keys.

Su et al. 2021 (2104.09864), over the two axes of a grid. Checked against
timm/layers/pos_embed_sincos.py of timm 1.0.
"""

import math
from typing import Literal, Required, TypedDict

import numpy as np
from keras import ops

from keras_vit._arguments import Count, Positive

Kind = Literal["centered", "index"]
Order = Literal["ij", "xy"]


class Rotary(TypedDict, total=False):
    """Arguments of `angles` beside the width of a head."""

    kind: Required[Kind]
    grid_size: Required[tuple[Count, Count]]
    theta: Positive
    reference: tuple[Count, Count] | None
    offset: float
    order: Order


def angles(
    head_size: int,
    kind: Kind,
    grid_size: tuple[int, int],
    theta: float = 10_000.0,
    reference: tuple[int, int] | None = None,
    offset: float = 0.0,
    order: Order = "ij",
) -> np.ndarray:
    """Return the angle of each patch and each value of a head, `[N, E]`.

    With m = E / 4 frequencies theta^(-i / m) for each axis.

    Args:
        head_size: Width E of a head, a multiple of 4.
        kind: "centered" (DINOv3): places from -1 to 1 on each axis, times 2
            pi; values i and i + E / 2 turn together. "index" (EVA-02): places
            are indices; neighbours turn together.
        grid_size: (rows, columns) of patches.
        theta: Base of the frequencies.
        reference: Grid onto which indices are stretched; None keeps them.
        offset: Added to indices before they are stretched.
        order: "ij" for the angles of rows before those of columns, or "xy".
    """
    places = []
    for n, m in zip(grid_size, reference or grid_size, strict=True):
        place = np.arange(n, dtype="float64")
        if kind == "centered":
            places.append(2 * math.pi * (2 * (place + 0.5) / n - 1))
        else:
            places.append((place + offset) * m / n)
    frequencies = theta ** (-np.arange(head_size // 4) / (head_size // 4))
    rows, columns = np.meshgrid(*places, indexing="ij")
    axes = (rows, columns) if order == "ij" else (columns, rows)
    table = np.concatenate(
        [axis.reshape(-1, 1) * frequencies for axis in axes], axis=1
    )  # [N, E / 2]
    if kind == "centered":
        return np.tile(table, (1, 2))
    return np.repeat(table, 2, axis=1)


def rotate(x, cos, sin, kind: Kind):
    """Turn the pairs of values of each token.

    Args:
        x: `[B, A, T, E]`.
        cos, sin: Of the angles, `[T, E]` or `[A, T, E]`.
        kind: See `angles`; it says which values are a pair.
    """
    if kind == "centered":
        first, second = ops.split(x, 2, axis=-1)
        turned = ops.concatenate([-second, first], axis=-1)
    else:
        pairs = ops.reshape(x, (-1, *x.shape[1:-1], x.shape[-1] // 2, 2))
        turned = ops.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)
        turned = ops.reshape(turned, (-1, *x.shape[1:]))
    return x * cos + turned * sin
