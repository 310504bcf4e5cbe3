"""Families of equal blocks, with weights for a fixed number of patches."""

import math
import re
from collections.abc import Callable

from keras_vit.weights.rules import table


def pair(patch_size: int | tuple[int, int]) -> tuple[int, int]:
    """Return (height, width) of a patch."""
    return (patch_size,) * 2 if isinstance(patch_size, int) else patch_size


def grid(metadata: dict) -> tuple[int, int]:
    """Return the (rows, columns) of patches."""
    sides = zip(
        metadata["image_size"], pair(metadata["patch_size"]), strict=True
    )
    return tuple(n // side for n, side in sides)


def grid_of(
    tokens: int,
    stride: tuple[int, int],
    specified: dict,
    of: str = "position embeddings",
) -> tuple[int, int]:
    """Return the (rows, columns) of patches for which weights were trained.

    Args:
        tokens: Number of patches.
        stride: Pixels between patches, (height, width).
        specified: Metadata from a config; `grid` or `image_size` is used.
        of: What there are so many of.

    Raises:
        ValueError: If there is no such grid, or none is specified and the
            number is not a square.
    """
    found = specified.get("grid")
    if found is None and "image_size" in specified:
        size = specified["image_size"]
        found = tuple(n // s for n, s in zip(size, stride, strict=True))
    if found is None and math.isqrt(tokens) ** 2 == tokens:
        found = (math.isqrt(tokens),) * 2
    if found is not None and math.prod(found) == tokens:
        return tuple(found)
    if found is None and math.isqrt(tokens - 1) ** 2 == tokens - 1:
        raise ValueError(
            f"its {tokens} {of} are those of a square grid and a class token, "
            "which is missing"
        )
    grid = "square grid" if found is None else f"grid of {tuple(found)}"
    raise ValueError(
        f"its {tokens} {of} cover no {grid}; specify with "
        "`position_grid=(height, width)` what they cover"
    )


def check_heads_and_grid(found: dict, wanted: dict) -> None:
    """Check what shapes do not show: heads, and the grid of positions.

    Args:
        found: Metadata of the checkpoint.
        wanted: That of the model; see `check_grid`.

    Raises:
        ValueError: If they differ.
    """
    check_grid(found, wanted)
    for name in ("num_heads", "pooling_heads"):
        heads = found.get(name)
        if heads is not None and heads != wanted[name]:
            raise ValueError(
                f"`{name}` must be that of the checkpoint, {heads}. Received: "
                f"{name}={wanted[name]}"
            )


def check_grid(found: dict, wanted: dict) -> None:
    """Refuse position embeddings that cover the model's grid in another way.

    Args:
        found: Metadata of the checkpoint. Where nothing specifies its grid, a
            square one was assumed, and `patch_counts` has the numbers of
            patches that its rows cover, by the tokens before them.
        wanted: That of the model, with its `grid`, or None.

    Raises:
        ValueError: If the model's grid has one of these numbers, and is not
            the square one.
    """
    counts, grid = found.get("patch_counts"), wanted["grid"]
    if not counts or grid is None or None in grid:
        return
    square = tuple(found["grid"])
    if tuple(grid) != square and math.prod(grid) in counts:
        raise ValueError(
            "`position_grid` must be given, since the checkpoint does not "
            f"specify whether its positions are a grid of {square} or "
            f"{tuple(grid)}"
        )


def refuse_other_grids(
    found: dict, config, image_size: tuple[int, int]
) -> dict:
    """Return no changes of the architecture; a family's `fit_sizes`."""
    patch = pair(config.patch_size)
    own = found.get("grid") or grid(found)
    if None in image_size or own == grid(
        dict(patch_size=patch, image_size=image_size)
    ):
        return {}
    height, width = (n * side for n, side in zip(own, patch, strict=True))
    raise ValueError(
        f"`input_shape` must have the weights' {height} x {width} pixels, "
        "since their matrices over tokens are of a fixed number of patches. "
        f"Received: height={image_size[0]}, width={image_size[1]}. Resize the "
        "images, or train without `weights`."
    )


def format(
    rows: list,
    shown: Callable,
    *,
    stem: str,
    block: str = r"blocks\.(\d+)\.",
    **kwargs,
) -> table.Format:
    """Return a format of such a family.

    Args:
        rows: Its table.
        shown: Returns the number of patches and the fields that only this
            family has, given the function of `table.shapes`, the common fields
            and the metadata of the config.
        stem: Path of the patch embedding.
        block: Pattern of the names of blocks, with a group of the index.
        **kwargs: See `table.Format`.
    """

    def rules(metadata):
        return table.expand(
            rows,
            num_layers=metadata["num_layers"],
            absent=table.without_top(metadata),
        )

    def read_arrays(arrays, config, specified):
        num_layers = table.count(arrays, re.compile(block))
        every = rules(dict(num_layers=num_layers, classes=1))
        shape_of = table.shapes(arrays, every)
        patch = shape_of(f"{stem}/kernel", 4)
        found = dict(
            patch_size=patch[:2],
            stride=patch[:2],
            channels=patch[2],
            hidden_size=patch[3],
            num_layers=num_layers,
            **table.read_top(arrays, every),
        )
        tokens, own = shown(shape_of, found, specified)
        return (
            found
            | own
            | dict(
                grid=grid_of(
                    tokens, patch[:2], specified, of="rows of token matrices"
                )
            )
        )

    return table.Format(rules=rules, read_arrays=read_arrays, **kwargs)
