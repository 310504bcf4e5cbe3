"""Hire-MLP in the authors' PyTorch names, and in our own files.

As in mlp_based/hire_mlp.py of ggjy/Hire-Wave-MLP.pytorch.
"""

import re

from keras_vit.weights.rules import configs, keras_format, table, torch_modules
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "Hire-MLP"
_PUBLISHED = (
    ((2, 2, 4, 2), (64, 128, 320, 512)),
    ((3, 4, 10, 3), (64, 128, 320, 512)),
    ((4, 6, 24, 3), (64, 128, 320, 512)),
    ((4, 6, 24, 3), (96, 192, 384, 768)),
)
_BLOCK = re.compile(r"network\.(\d+)\.(\d+)\.")
# Convolutions of a block, by what follows their name.
_DENSE = {
    "mlp_c": "attn.mlp_c",
    "reweight_fc1": "attn.reweight.fc1",
    "reweight_fc2": "attn.reweight.fc2",
    "proj": "attn.proj",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}


def _rows(metadata):
    rows = []
    for i, depth in enumerate(metadata["depths"]):
        embed = f"network.{2 * i - 1}" if i else "patch_embed"
        rows += product(f"embed{i + 1}", f"{embed}.proj", "convolution")
        rows += norm(f"embed{i + 1}_norm", f"{embed}.norm", batch=True)
        for j in range(depth):
            ours, theirs = f"level{i + 1}_block{j + 1}", f"network.{2 * i}.{j}"
            for n in ("1", "2"):
                rows += norm(f"{ours}/norm{n}", f"{theirs}.norm{n}", batch=True)
            for axis in ("mlp_h", "mlp_w"):
                path, name = f"{ours}/{axis}", f"{theirs}.attn.{axis}"
                rows += product(f"{path}1", f"{name}1", "pointwise", bias=False)
                rows += norm(f"{path}1_norm", f"{name}1_norm", batch=True)
                rows += product(f"{path}2", f"{name}2", "pointwise")
            for path, name in _DENSE.items():
                rows += product(
                    f"{ours}/{path}", f"{theirs}.{name}", "pointwise"
                )
    rows += norm("final_norm", "norm", batch=True)
    return rows + product("head", "head", "linear")


def _read_arrays(arrays):
    depths = table.depths(arrays, _BLOCK)
    blocks = [f"network.{2 * i}.0" for i in range(len(depths))]
    widths = tuple(arrays[f"{b}.norm1.weight"].shape[0] for b in blocks)
    inputs = [arrays[f"{b}.attn.mlp_h1.weight"].shape[1] for b in blocks]
    hidden = arrays[f"{blocks[0]}.mlp.fc1.weight"].shape[0]
    return dict(
        depths=depths,
        hidden_sizes=widths,
        region_sizes=tuple(
            n // width for n, width in zip(inputs, widths, strict=True)
        ),
        mlp_ratio=hidden / widths[0],
        channels=arrays["patch_embed.proj.weight"].shape[1],
    )


def _read_config(config):
    periods, steps = (
        config.get(key) for key in ("step_stride", "step_dilation")
    )
    if not periods or not steps:
        return {}
    return dict(
        roll_periods=tuple(configs.integer(dict(n=n), "n") for n in periods),
        roll_steps=tuple(configs.integer(dict(n=n), "n") for n in steps),
    )


grid = table.no_grid
RESIZES = {"embed1/kernel": table.fit_pixels}
FORMATS = {
    "authors": torch_modules.authors(
        _rows,
        _read_arrays,
        requires=(r"network\.0\.0\.attn\.mlp_h1_norm\.weight",),
        read_config=_read_config,
        unseen=dict(roll_periods=(2, 2, 3, 2), roll_steps=(2, 2, 1, 1)),
        published=_PUBLISHED,
        config_of=lambda metadata: dict(
            layers=list(metadata["depths"]),
            embed_dims=list(metadata["hidden_sizes"]),
            mlp_ratios=[metadata["mlp_ratio"]] * len(metadata["depths"]),
            pixel=list(metadata["region_sizes"]),
            step_stride=list(metadata["roll_periods"]),
            step_dilation=list(metadata["roll_steps"]),
        ),
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=(r"embed1/0", r"level1_block1/mlp_h1/0")
)
