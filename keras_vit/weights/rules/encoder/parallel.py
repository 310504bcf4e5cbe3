"""timm's blocks whose attention and MLP are parallel, in the names of others.

One array holds the projections of both: the hidden units, then queries, keys
and values (`ParallelScalingBlock`).
"""

import re

import numpy as np

from keras_vit.weights.rules import table

_NAMES = {
    "in_norm": "norm1",
    "q_norm": "attn.q_norm",
    "k_norm": "attn.k_norm",
    "attn_out_proj": "attn.proj",
    "mlp_out_proj": "mlp.fc2",
    "mlp_bias": "mlp.fc1.bias",
    "ls": "ls1",
}
_FC1, _QKV, _IN = "mlp.fc1", "attn.qkv", "in_proj"


def _renamed(arrays, names):
    """Rename the parts of blocks."""
    parts = "|".join(map(re.escape, names))
    pattern = re.compile(rf"(blocks\.\d+\.)({parts})(\..*|)")

    def rename(name):
        match = pattern.fullmatch(name)
        return match[1] + names[match[2]] + match[3] if match else name

    return table.rename(arrays, rename)


def flatten(arrays: dict) -> dict:
    """Give the arrays the names of sequential blocks."""
    arrays = _renamed(arrays, _NAMES)
    for name in [n for n in arrays if f".{_IN}." in n]:
        stored = arrays.pop(name)
        block, ending = name.split(_IN)
        hidden = arrays[f"{block}mlp.fc2.weight"].shape[1]
        rest = stored.shape[0] - hidden
        for part, rows in (
            (_FC1, slice(hidden)),
            (_QKV, slice(hidden, None)),
        ):
            size = hidden if part == _FC1 else rest
            array = stored.map(
                lambda a, rows=rows: a[rows], (size, *stored.shape[1:])
            )
            table.add(arrays, f"{block}{part}{ending}", array)
    return arrays


def restore(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Invert `flatten`."""
    arrays = dict(arrays)
    for name in [n for n in arrays if f".{_QKV}." in n]:
        first = name.replace(_QKV, _FC1)
        both = [arrays.pop(first), arrays.pop(name)]
        arrays[name.replace(_QKV, _IN)] = np.concatenate(both)
    return _renamed(arrays, {new: old for old, new in _NAMES.items()})
