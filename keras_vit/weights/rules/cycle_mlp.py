"""CycleMLP in the authors' names, and in our own files.

Checked against cycle_mlp.py of ShoufaChen/CycleMLP, whose files contain the
offsets of a deformable convolution, always the same.
"""

import re

import numpy as np

from keras_vit.weights.rules import keras_format, table, torch_modules
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "CycleMLP"
_BLOCK = re.compile(r"network\.(\d+)\.(\d+)\.norm1\.weight")
_OFFSETS = re.compile(r".*\.sfc_([hw])\.offset")


def _rows(metadata):
    rows = []
    for i, depth in enumerate(metadata["depths"]):
        name = f"network.{2 * i - 1}.proj" if i else "patch_embed.proj"
        rows += product(f"stage{i}_embedding", name, "convolution")
        for j in range(depth):
            rows += _block(f"stage{i}_block{j}", f"network.{2 * i}.{j}")
    return rows + norm("norm", "norm") + product("head", "head")


def _block(ours, theirs):
    rows = product(f"{ours}/mlp_c", f"{theirs}.attn.mlp_c", bias=False)
    for name in ("sfc_h", "sfc_w"):
        rows += product(f"{ours}/{name}", f"{theirs}.attn.{name}", "pointwise")
    rows += product(f"{ours}/proj", f"{theirs}.attn.proj")
    for n in (1, 2):
        rows += norm(f"{ours}/norm{n}", f"{theirs}.norm{n}")
        rows += product(
            f"{ours}/reweight_fc{n}", f"{theirs}.attn.reweight.fc{n}"
        )
        rows += product(f"{ours}/mlp/Dense_{n - 1}", f"{theirs}.mlp.fc{n}")
    return rows


grid = table.no_grid


def _offsets(channels, branch):
    """Return the (row, column) of each channel's cell, `[1, 2 C, 1, 1]`."""
    cells = np.zeros((channels, 2), "float32")
    cells[:, "wh".index(branch)] = (np.arange(channels) + 1) % 3 - 1
    return cells.reshape(1, -1, 1, 1)


def _flatten(arrays, specified):
    """Remove the offsets, which must be those of the paper."""
    arrays = dict(arrays)
    for name in list(arrays):
        match = _OFFSETS.fullmatch(name)
        if match:
            found = arrays.pop(name).read()
            if not np.array_equal(found, _offsets(found.size // 2, match[1])):
                raise ValueError(
                    f"expected `{name}` to be 0, 1 and -1 by turns along one "
                    "axis, as in the paper; found other offsets"
                )
    return arrays, None


def _restore(arrays, scheme):
    """Add the offsets, a buffer of the authors' modules."""
    offsets = {
        f"{layer}.offset": _offsets(arrays[f"{layer}.bias"].size, layer[-1])
        for layer in (name.removesuffix(".bias") for name in arrays)
        if layer.endswith((".sfc_h", ".sfc_w"))
    }
    return arrays | offsets


def _read_arrays(arrays):
    depths = table.depths(arrays, _BLOCK)
    sizes = [
        arrays[f"network.{2 * i}.0.mlp.fc1.weight"].shape
        for i in range(len(depths))
    ]
    return dict(
        depths=depths,
        hidden_sizes=tuple(width for _, width in sizes),
        mlp_ratios=tuple(hidden // width for hidden, width in sizes),
        channels=arrays["patch_embed.proj.weight"].shape[1],
    )


RESIZES = {"stage0_embedding/kernel": table.fit_pixels}
FORMATS = {
    "authors": torch_modules.authors(
        _rows,
        _read_arrays,
        requires=(
            r"patch_embed\.proj\.weight",
            r"network\.0\.0\.attn\.sfc_h\.weight",
        ),
        flatten=_flatten,
        restore=_restore,
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"],
    requires=("stage0_embedding/0", r"stage0_block0/sfc_h/0"),
)
