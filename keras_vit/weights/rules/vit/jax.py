"""The authors' npz files, and those of big_vision.

One tree under several naming schemes: that of 2020 ("MlpBlock_3"), that of Flax
linen, and that of big_vision, which prefixes names with `params/`, may stack
all blocks along a leading axis, and may have position embeddings without a row
for the class token. `flatten` converts all of them to linen names and `restore`
undoes it; the table only has linen names.
"""

import dataclasses
import functools
import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.vit.architecture import (
    add_class_row,
    attention_rows,
    expand,
    merge_class_row,
    pooling_rows,
)

POSITIONS = "Transformer/posembed_input/pos_embedding"
BIG_VISION_POSITIONS = "pos_embedding"
# Before 2022.
EARLIER_POSITIONS = "Transformer/pos_embedding"

_NAMES_2020 = {
    "LayerNorm_1": "LayerNorm_2",
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "MlpBlock_0": "MlpBlock_3",
}
_BLOCK = re.compile(r"Transformer/encoderblock_(\d+)/")
_STACKED, _STACKED_0 = (
    "Transformer/encoderblock/",
    "Transformer/encoderblock_0/",
)
_UNIT = re.compile(r"block(\d+)/unit(\d+)/")
_ATTENTION = "MultiHeadDotProductAttention_0"
_POOLING = "MAPHead_0"


@dataclasses.dataclass(frozen=True)
class NamingScheme:
    """The naming scheme of a file.

    Attributes:
        year_2020: Whether the names are those of 2020.
        params: Whether names begin with `params/`.
        stacked: Whether all blocks are stacked on a leading axis.
        positions: Name of the position embeddings, if there are any.
        token_apart: Whether these have no row for the class token.
    """

    year_2020: bool = False
    params: bool = False
    stacked: bool = False
    positions: str = POSITIONS
    token_apart: bool = False


NAMING_SCHEMES = {
    "jax": NamingScheme(),
    "jax_2020": NamingScheme(year_2020=True),
    "big_vision": NamingScheme(
        params=True, positions=BIG_VISION_POSITIONS, token_apart=True
    ),
}


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], NamingScheme]:
    """Convert a checkpoint of any naming scheme to linen names and shapes.

    Returns:
        The arrays, and the scheme to pass to `restore`.
    """
    params = any(name.startswith("params/") for name in arrays)
    arrays = table.without_params(arrays)
    stacked = any(name.startswith(_STACKED) for name in arrays)
    if stacked:
        arrays = _unstack(arrays)
    year_2020 = any("/MlpBlock_3/" in name for name in arrays)
    if year_2020:
        linen = {old: new for new, old in _NAMES_2020.items()}
        arrays = {
            name: (
                array.map(lambda a: a.reshape(-1), array.shape[-1:])
                if _is_group_norm(name) and array.shape[:-1] == (1, 1, 1)
                else array
            )
            for name, array in arrays.items()
        }
        arrays = table.rename(arrays, lambda name: _rename(name, linen))
    names = (BIG_VISION_POSITIONS, EARLIER_POSITIONS)
    positions = next((n for n in names if n in arrays), POSITIONS)
    token_apart = positions == BIG_VISION_POSITIONS and "cls" in arrays
    if positions != POSITIONS:
        table.add(arrays, POSITIONS, arrays.pop(positions))
    if token_apart:
        add_class_row(arrays, POSITIONS)
    return arrays, NamingScheme(
        year_2020, params, stacked, positions, token_apart
    )


def restore(
    arrays: dict[str, np.ndarray], scheme: NamingScheme
) -> dict[str, np.ndarray]:
    """Convert linen arrays to a naming scheme; the inverse of `flatten`."""
    arrays = dict(arrays)
    if POSITIONS in arrays:
        if scheme.token_apart and "cls" in arrays:
            merge_class_row(arrays, POSITIONS, "cls")
        arrays[scheme.positions] = arrays.pop(POSITIONS)
    if scheme.year_2020:
        arrays = {
            _rename(name, _NAMES_2020): (
                array.reshape(1, 1, 1, -1) if _is_group_norm(name) else array
            )
            for name, array in arrays.items()
        }
    if scheme.stacked:
        for name in [n for n in arrays if n.startswith(_STACKED_0)]:
            rest = name.removeprefix(_STACKED_0)
            names = [
                f"Transformer/encoderblock_{i}/{rest}"
                for i in range(table.count(arrays, _BLOCK))
            ]
            parts = [arrays[name] for name in names]
            arrays[_STACKED + rest] = np.stack(parts)
        arrays = {n: a for n, a in arrays.items() if not _BLOCK.match(n)}
    if scheme.params:
        arrays = {f"params/{name}": array for name, array in arrays.items()}
    return arrays


def read_architecture(arrays: dict[str, Stored], config: dict) -> dict:
    """Return the metadata that linen names show."""
    query = f"Transformer/encoderblock_0/{_ATTENTION}/query/kernel"
    shape = arrays[query].shape if query in arrays else ()
    if len(shape) != 3:
        raise ValueError(
            f"expected `{query}` of shape [D, heads, D / heads]; found "
            f"{'it of shape ' + str(shape) if shape else 'none'}"
        )
    positions = {}
    if POSITIONS in arrays:
        positions = dict(position_embedding="learned_1d")
    return positions | dict(
        num_layers=table.count(arrays, _BLOCK),
        num_heads=shape[1],
        resnet_depths=(
            table.depths(arrays, _UNIT)
            if "conv_root/kernel" in arrays
            else None
        ),
        pooling=_pooling(arrays),
        representation_size="pre_logits/bias" in arrays,
        classes="head/bias" in arrays,
    )


def _pooling(arrays):
    if f"{_POOLING}/probe" in arrays:
        return "map"
    return "token" if "cls" in arrays else "gap"


def settings(config: dict) -> dict:
    """Return the settings with which all checkpoints of the authors were
    trained.

    Args:
        config: Metadata that `save_checkpoint` wrote into the file: the `grid`,
            and positions that are not in the file.
    """
    return configs.known(
        gelu_approximate=True,
        layer_norm_epsilon=1e-6,
        resnet_numerics="authors",
        pixel_mean=127.5,
        pixel_std=127.5,
        grid=configs.pair(config, "grid"),
        position_embedding=configs.choice(
            config, "position_embedding", ("sincos_2d",)
        ),
    )


def rules(metadata: dict) -> list[table.Rule]:
    """Return the expanded table of a model."""

    ours, theirs = "encoderblock_{i}/", "Transformer/encoderblock_{i}/"
    unit, their_unit = "resnet/block{b}_unit{u}/", "block{b}/unit{u}/"
    numbers = ("1", "2", "3", "_proj")
    layers = {name: name for name in ("embedding", "pre_logits", "head")}
    norms = {
        "encoder_norm": "Transformer/encoder_norm",
        "resnet/gn_root": "gn_root",
    }
    for n in (0, 1):
        name = f"MlpBlock_0/Dense_{n}"
        layers[f"{ours}{name}"] = f"{theirs}{name}"
        norms[f"{ours}LayerNorm_{n}"] = f"{theirs}LayerNorm_{n}"
    norms |= {f"{unit}gn{n}": f"{their_unit}gn{n}" for n in numbers}
    convolutions = {f"{unit}conv{n}": f"{their_unit}conv{n}" for n in numbers}
    convolutions["resnet/conv_root"] = "conv_root"
    rows: list[tuple] = [
        ("class_token/cls", "cls"),
        ("posembed_input/pos_embedding", POSITIONS),
    ]
    rows += attention_rows(
        f"{ours}{_ATTENTION}",
        f"{theirs}{_ATTENTION}",
        metadata.get("num_heads") or 0,
    )
    rows += pooling_rows(
        "attention_pooling", _POOLING, metadata.get("num_heads") or 0
    )
    rows += table.layer_rows(layers, table.FLAX_LAYER)
    rows += table.layer_rows(convolutions, table.FLAX_LAYER, "kernel")
    rows += table.layer_rows(norms, table.FLAX_NORM)
    return expand(rows, metadata)


def _rename(name, names):
    return "/".join(names.get(part, part) for part in name.split("/"))


def _is_group_norm(name):
    return re.search(r"(^|/)gn\w*/(scale|bias)$", name) is not None


def _unstack(arrays):
    flat = {}
    for name, array in arrays.items():
        if not name.startswith(_STACKED):
            table.add(flat, name, array)
            continue
        # Read once, not once for each block.
        whole = Stored(array.shape, functools.cache(array.read))
        for i in range(array.shape[0]):
            block = f"Transformer/encoderblock_{i}/{name[len(_STACKED) :]}"
            one = whole.map(lambda a, i=i: a[i], array.shape[1:])
            table.add(flat, block, one)
    return flat


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that these files cannot store."""
    return ["gap_norm"] if metadata["pooling"] == "gap_norm" else []


def differences(metadata: dict) -> list[str]:
    """List what the authors' code computes differently."""
    found = table.pixel_differences(metadata, 127.5)
    if not metadata.get("gelu_approximate", True):
        found.append("the authors' code has GELU's tanh form, not erf")
    if metadata.get("layer_norm_epsilon", 1e-6) != 1e-6:
        found.append("it adds 1e-6 in LayerNorm")
    if metadata.get("resnet_depths") is not None and (
        metadata["resnet_numerics"] != "authors"
    ):
        found.append("it has other epsilons in the stem")
    return found
