"""Names and layouts of the authors' ViT and hybrid checkpoints.

Two spellings of the same tree were released: that of 2020 and that of Flax
linen. `respell` makes the second of the first; the rules speak only linen.
"""

import dataclasses
import math
import re
from collections.abc import Callable

import numpy as np

from keras_vit.weights import resize

POSITIONS = "Transformer/posembed_input/pos_embedding"


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one kind of variable stands in a checkpoint.

    Attributes:
        path: Regular expression of the variable's path in the model.
        sources: Names in the checkpoint, with `{0}`, `{1}`, ... for the
            groups of `path`.
        join: Source arrays -> the variable's value.
        split: The variable's value -> source arrays; the inverse of `join`.
    """

    path: str
    sources: tuple[str, ...]
    join: Callable = lambda array: array
    split: Callable = lambda array: (array,)


def rules(num_heads: int) -> tuple[Rule, ...]:
    """Returns the table for models with `num_heads` heads."""

    def join_qkv(query, key, value):
        fused = np.stack([query, key, value], axis=-3)  # [..., 3, A, E]
        return fused.reshape(*fused.shape[:-3], -1)

    def split_qkv(fused):
        heads = fused.reshape(*fused.shape[:-1], 3, num_heads, -1)
        return tuple(np.moveaxis(heads, -3, 0))

    def join_out(kernel):
        return kernel.reshape(-1, kernel.shape[-1])  # [A, E, D] -> [D, D]

    def split_out(kernel):
        return (kernel.reshape(num_heads, -1, kernel.shape[-1]),)

    block, linen_block = r"(encoderblock_\d+)", "Transformer/{0}"
    attention = "MultiHeadDotProductAttention_0"
    unit, linen_unit = r"resnet/block(\d+)_unit(\d+)", "block{0}/unit{1}"
    return (
        Rule("class_token/cls", ("cls",)),
        Rule("posembed_input/pos_embedding", (POSITIONS,)),
        Rule(r"(embedding|pre_logits|head)/(kernel|bias)", ("{0}/{1}",)),
        Rule("encoder_norm/gamma", ("Transformer/encoder_norm/scale",)),
        Rule("encoder_norm/beta", ("Transformer/encoder_norm/bias",)),
        Rule(
            f"{block}/(LayerNorm_[01])/gamma", (f"{linen_block}/{{1}}/scale",)
        ),
        Rule(f"{block}/(LayerNorm_[01])/beta", (f"{linen_block}/{{1}}/bias",)),
        Rule(
            f"{block}/MlpBlock_0/(Dense_[01])/(kernel|bias)",
            (f"{linen_block}/MlpBlock_0/{{1}}/{{2}}",),
        ),
        Rule(
            f"{block}/{attention}/qkv/(kernel|bias)",
            tuple(
                f"{linen_block}/{attention}/{part}/{{1}}"
                for part in ("query", "key", "value")
            ),
            join_qkv,
            split_qkv,
        ),
        Rule(
            f"{block}/{attention}/out/kernel",
            (f"{linen_block}/{attention}/out/kernel",),
            join_out,
            split_out,
        ),
        Rule(
            f"{block}/{attention}/out/bias",
            (f"{linen_block}/{attention}/out/bias",),
        ),
        Rule("resnet/conv_root/kernel", ("conv_root/kernel",)),
        Rule("resnet/gn_root/gamma", ("gn_root/scale",)),
        Rule("resnet/gn_root/beta", ("gn_root/bias",)),
        Rule(rf"{unit}/(conv\w+)/kernel", (f"{linen_unit}/{{2}}/kernel",)),
        Rule(rf"{unit}/(gn\w+)/gamma", (f"{linen_unit}/{{2}}/scale",)),
        Rule(rf"{unit}/(gn\w+)/beta", (f"{linen_unit}/{{2}}/bias",)),
    )


def respell(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gives a checkpoint of either spelling the linen names and shapes."""
    spelling_2020 = {
        "LayerNorm_2": "LayerNorm_1",
        "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
        "MlpBlock_3": "MlpBlock_0",
    }
    if not any("/MlpBlock_3/" in name for name in arrays):
        return arrays
    respelt = {}
    for name, array in arrays.items():
        name = "/".join(spelling_2020.get(n, n) for n in name.split("/"))
        if re.search(r"(^|/)gn\w*/(scale|bias)$", name) and (
            array.shape[:-1] == (1, 1, 1)
        ):
            array = array.reshape(-1)
        respelt[name] = array
    return respelt


@dataclasses.dataclass(frozen=True)
class Description:
    """What a checkpoint says of the model it belongs to.

    Attributes:
        classes: Number of classes of its head, or None without a head.
        representation_size: Width of `pre_logits`, or None without it.
        grid_size: (height, width) of its grid of patches.
        channels: Input channels.
    """

    classes: int | None
    representation_size: int | None
    grid_size: tuple[int, int]
    channels: int


def describe(arrays: dict[str, np.ndarray]) -> Description:
    """Reads classes, resolution and channels off a checkpoint.

    Args:
        arrays: Linen names -> arrays.

    Raises:
        ValueError: If no ViT's patch or position embedding is among them, or
            the positions make no square grid.
    """
    patches = (
        "conv_root/kernel"
        if "conv_root/kernel" in arrays
        else ("embedding/kernel")
    )
    missing = [name for name in (patches, POSITIONS) if name not in arrays]
    if missing:
        raise ValueError(
            "The checkpoint is no ViT of the authors: expected it to hold "
            f"{missing}. Received: {sorted(arrays)[:8]} ..."
        )
    return Description(
        classes=_last_axis(arrays, "head/bias"),
        representation_size=_last_axis(arrays, "pre_logits/bias"),
        grid_size=_grid_size(arrays),
        channels=arrays[patches].shape[2],
    )


def _last_axis(arrays, name):
    return arrays[name].shape[-1] if name in arrays else None


def _grid_size(arrays):
    tokens = arrays[POSITIONS].shape[1] - int("cls" in arrays)
    side = math.isqrt(tokens)
    if side * side != tokens:
        raise ValueError(
            f"Expected `{POSITIONS}` to cover a square grid of patches, as "
            f"in every released checkpoint. Received: {tokens} patches"
        )
    return side, side


def fit(
    arrays: dict[str, np.ndarray],
    *,
    grid_size: tuple[int, int],
    channels: int,
    keep_head: bool,
    keep_pre_logits: bool,
) -> dict[str, np.ndarray]:
    """Adapts a checkpoint to another resolution, channel count or head.

    Args:
        arrays: Linen names -> arrays.
        grid_size: (height, width) of the model's grid of patches.
        channels: The model's input channels.
        keep_head: Whether the model has the checkpoint's head.
        keep_pre_logits: Whether the model has its `pre_logits`.

    Returns:
        The arrays as the model wants them; what it has no use for is gone.
    """
    fitted = dict(arrays)
    fitted[POSITIONS] = resize.resample_positions(
        arrays[POSITIONS], _grid_size(arrays), grid_size
    )
    for name in ("conv_root/kernel", "embedding/kernel"):
        if name in arrays:
            fitted[name] = resize.fold_channels(arrays[name], channels)
            break
    if not keep_head:
        dropped = ("head/",) if keep_pre_logits else ("head/", "pre_logits/")
        fitted = {
            name: array
            for name, array in fitted.items()
            if not name.startswith(dropped)
        }
    return fitted
