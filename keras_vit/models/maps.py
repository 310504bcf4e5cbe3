"""Dense features: the maps of patches after chosen blocks of a model."""

import itertools
import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import checked
from keras_vit.models.image_model import ImageModel


@checked
def feature_maps(
    model: keras.Model,
    numbers: Sequence[int] | None = None,
    *,
    norm: bool | None = None,
    prefix_tokens: bool = False,
) -> ImageModel:
    """Return a model of the same layers whose outputs are feature maps.

    It is a functional model like any other: it is trained, saved, exported, and
    is the backbone of a detector or a segmenter.

    Args:
        model: A model of this package, or one that contains one; its head is
            left out.
        numbers: Which maps, counted from 1, or from -1 back from the last: of a
            pyramid those of its levels, the finest first; of any other model
            those of its blocks. None gives all levels, or the last block.
        norm: Whether the model's last norm is applied to each map and to its
            prefix tokens. None applies it where there is one, and not in a
            pyramid, whose norm has the width of the last level: True applies
            it there to the last level alone.
        prefix_tokens: Whether to return the tokens before the patches as well:
            the class token, then a distillation token or registers.

    Returns:
        A model from images to a map `[B, H, W, D]`, of videos `[B, T, H, W,
        D]`, or to a list of several. With `prefix_tokens` to a dictionary of
        "map_3" and "prefix_tokens_3", `[B, P, D]`, for map 3; P may be 0.

    Raises:
        ValueError: If there is no such block or level, no norm to apply, or no
            tokens before the patches in models of maps.

    Example:
        backbone = keras_vit.feature_maps(
            keras_vit.DINOv2S14(input_shape=(224, 224, 3)), [3, 6, 9, 12])
        maps = backbone.predict(images)  # four of [B, 16, 16, 384]
    """
    inner = ImageModel.find(model)
    depths = getattr(inner.architecture, "depths", None)
    blocks = inner.blocks
    ends = list(itertools.accumulate(depths or [1] * len(blocks)))
    # A model of maps may end before the last level.
    ends = [end for end in ends if end <= len(blocks)]
    if numbers is None:
        numbers = range(1, len(ends) + 1) if depths else [-1]
    if not numbers:
        raise ValueError("`numbers` must name at least one map. Received: none")
    is_last = norm and list(numbers) in ([-1], [len(ends)])
    is_pyramid = bool(depths) and not is_last
    last_norm = _last_norm(inner, norm, is_pyramid)
    maps, prefixes = {}, {}
    for number in numbers:
        if not 1 <= abs(number) <= len(ends):
            raise ValueError(
                f"`numbers` must be from 1 to {len(ends)}, or from -1 to "
                f"{-len(ends)}, for {inner.name}, which has {len(ends)} "
                f"{'levels' if depths else 'blocks'}. Received: "
                f"numbers={list(numbers)}"
            )
        n = number if number > 0 else len(ends) + 1 + number
        block = blocks[ends[n - 1] - 1]
        prefixes[n], maps[n] = _split(inner, block, last_norm)
    if len(maps) < len(numbers):
        raise ValueError(
            "`numbers` must name each map once. Received: "
            f"numbers={list(numbers)}"
        )
    # The metadata belongs to the end of the graph.
    mark = layers.Metadata.from_config(inner._metadata.get_config())
    maps[n] = mark(maps[n])
    outputs = list(maps.values()) if len(maps) > 1 else maps[n]
    if prefix_tokens:
        if None in prefixes.values():
            raise ValueError(
                "`prefix_tokens` must be False for a model whose blocks take "
                f"maps. Received: prefix_tokens=True for {inner.name}, a "
                f"{inner.family!r}"
            )
        outputs = {f"map_{n}": x for n, x in maps.items()}
        outputs |= {f"prefix_tokens_{n}": x for n, x in prefixes.items()}
    return ImageModel(inner.input, outputs, name=inner.name)


def _last_norm(inner, norm, is_pyramid):
    """Return the layer that normalises each map, or None."""
    names = [layer.name for layer in inner.layers]
    name = inner._family.last_norm
    has_one = not is_pyramid and name in names
    if norm and not has_one:
        raise ValueError(
            f"`norm` must be False or None for {inner.name}, "
            + (
                "a pyramid, whose norm has the width of the last level. "
                if is_pyramid
                else "which has no norm after its last block. "
            )
            + "Received: norm=True"
        )
    return inner.get_layer(name) if has_one and norm is not False else None


def _split(inner, block, norm):
    """Return the tokens before the patches of a block's output, and the map."""
    x = block.output if norm is None else norm(block.output)
    if len(x.shape) == 4:  # blocks of maps
        return None, x
    grid = getattr(block, "output_grid", None) or inner.metadata["grid"]
    if inner.num_frames is None:
        grid = grid[-2:]
    first = x.shape[1] - math.prod(grid)
    patches = ops.reshape(x[:, first:], (-1, *grid, x.shape[-1]))
    return x[:, :first], patches
