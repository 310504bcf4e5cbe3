"""What the tables of names share: rules, and how they are written down.

A table has a row for each kind of variable: the variable's path, its name or
names in the checkpoint, and, where the two differ in more than name, a
transform that runs both ways.
"""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Transform:
    """How arrays of a checkpoint become a variable, and back.

    Attributes:
        join: Source arrays -> the variable's value.
        split: The variable's value -> source arrays; the inverse of `join`.
    """

    join: Callable = lambda array: array
    split: Callable = lambda array: (array,)


SAME = Transform()
# Dense kernels of PyTorch are [out, in].
TRANSPOSED = Transform(np.transpose, lambda array: (array.T,))
# Convolution kernels of PyTorch are [out, in, height, width].
CONVOLUTION = Transform(
    lambda array: array.transpose(2, 3, 1, 0),
    lambda array: (array.transpose(3, 2, 0, 1),),
)


def fuse_heads(
    query: np.ndarray, key: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Makes the columns of `MultiHeadSelfAttention`'s one projection.

    Args:
        query, key, value: `[..., A, E]`, for each of A heads.

    Returns:
        `[..., 3 D]`, in the order [A, 3, E].
    """
    fused = np.stack([query, key, value], axis=-2)  # [..., A, 3, E]
    return fused.reshape(*fused.shape[:-3], -1)


def part_heads(fused: np.ndarray, num_heads: int) -> tuple[np.ndarray, ...]:
    """The inverse of `fuse_heads`."""
    heads = fused.reshape(*fused.shape[:-1], num_heads, 3, -1)
    return tuple(np.moveaxis(heads, -2, 0))


@dataclasses.dataclass(frozen=True)
class Rule:
    """One variable and where it stands in a checkpoint."""

    path: str
    sources: tuple[str, ...]
    transform: Transform = SAME


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What decides which arrays a ViT has.

    Attributes:
        num_layers: Transformer blocks.
        num_heads: Attention heads, 0 where nothing tells.
        resnet_units: Units per stage of a hybrid's trunk, or None.
        classifier: "token", "token_gap", "gap" or "gap_norm"; None where
            nothing tells which of those without a class token.
        representation: Whether there is a `pre_logits`.
        head: Whether there is a head.
    """

    num_layers: int
    num_heads: int
    resnet_units: tuple[int, ...] | None = None
    classifier: str | None = "token"
    representation: bool = False
    head: bool = True

    @property
    def has_class_token(self) -> bool:
        """Whether a class token precedes the patches."""
        return self.classifier in ("token", "token_gap")


def expand(rows: tuple, layout: Layout) -> list[Rule]:
    """Writes a table out for a layout.

    Args:
        rows: (path, name or names, optional transform), with `{i}` for the
            index of a block, `{i1}` for the same counted from 1, and for
            units of the trunk `{b}` and `{u}` counted from 1, `{b0}` and
            `{u0}` from 0.
        layout: What the model or checkpoint has.

    Returns:
        A rule for each variable of the layout.
    """
    blocks = [dict(i=i, i1=i + 1) for i in range(layout.num_layers)]
    units = [
        dict(b=b + 1, u=u + 1, b0=b, u0=u)
        for b, count in enumerate(layout.resnet_units or ())
        for u in range(count)
    ]
    left_out = tuple(
        prefix
        for prefix, present in (
            ("class_token/", layout.has_class_token),
            ("pre_logits/", layout.representation),
            ("head/", layout.head),
            ("resnet/", layout.resnet_units is not None),
        )
        if not present
    )
    rules = []
    for path, names, *transform in rows:
        if path.startswith(left_out):
            continue
        names = (names,) if isinstance(names, str) else names
        if "{i}" in path:
            places = blocks
        elif "_proj/" in path:
            # The shortcut is projected in the first unit of each stage.
            places = [unit for unit in units if unit["u0"] == 0]
        elif "{b}" in path:
            places = units
        else:
            places = [{}]
        rules.extend(
            Rule(
                path.format(**place),
                tuple(name.format(**place) for name in names),
                *transform,
            )
            for place in places
        )
    return rules


def rename(arrays: dict, function: Callable) -> dict:
    """Renames arrays, none onto another.

    Raises:
        ValueError: If two names become one.
    """
    renamed = {}
    for name, array in arrays.items():
        new = function(name)
        if new in renamed:
            raise ValueError(f"expected each array once; found `{new}` twice")
        renamed[new] = array
    return renamed


def count(names, pattern) -> int:
    """Counts the different first groups that a pattern matches in names."""
    return len({match[1] for match in map(pattern.match, names) if match})
