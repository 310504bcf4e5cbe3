"""Families whose weights are of a fixed number of patches."""

import math


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
    tokens: int, patch: tuple[int, int], specified: dict
) -> tuple[int, int]:
    """Return the (rows, columns) of patches for which weights were trained.

    Args:
        tokens: Number of patches.
        patch: (height, width) of a patch.
        specified: Metadata from a config; `grid` or `image_size` is used.

    Raises:
        ValueError: If there is no such grid, or none is specified and the
            number is not a square.
    """
    found = specified.get("grid")
    if found is None and "image_size" in specified:
        found = grid(dict(specified, patch_size=patch))
    if found is None and math.isqrt(tokens) ** 2 == tokens:
        found = (math.isqrt(tokens),) * 2
    if found is None or math.prod(found) != tokens:
        raise ValueError(
            f"its token matrices are of {tokens} patches, which are no "
            f"{'square' if found is None else f'grid of {tuple(found)}'}; "
            "specify them with `position_grid=(height, width)`"
        )
    return tuple(found)


def refuse_other_grids(
    found: dict, config, image_size: tuple[int, int]
) -> dict:
    """Return no changes of the architecture; a family's `fit_sizes`.

    Raises:
        ValueError: If images of this size have another grid of patches than
            those of the weights.
    """
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
