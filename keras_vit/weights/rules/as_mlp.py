"""AS-MLP in the authors' PyTorch names, and in our own files.

As in models/as_mlp.py of svip-lab/AS-MLP.
"""

import re

from keras_vit.weights.rules import configs, keras_format, table, torch_modules
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "AS-MLP"
_PUBLISHED = (
    ((2, 2, 6, 2), (96, 192, 384, 768)),
    ((2, 2, 18, 2), (96, 192, 384, 768)),
    ((2, 2, 18, 2), (128, 256, 512, 1024)),
)
_BLOCK = re.compile(r"layers\.(\d+)\.blocks\.(\d+)\.")


def _rows(metadata):
    rows = product("stem", "patch_embed.proj", "convolution")
    rows += norm("stem_norm", "patch_embed.norm")
    for i, depth in enumerate(metadata["depths"]):
        if i:
            merge = f"layers.{i - 1}.downsample"
            rows += norm(f"merge{i + 1}_norm", f"{merge}.norm")
            rows += product(
                f"merge{i + 1}", f"{merge}.reduction", "pointwise", bias=False
            )
        for j in range(depth):
            ours = f"stage{i + 1}_block{j + 1}"
            theirs = f"layers.{i}.blocks.{j}"
            for n in ("1", "2"):
                rows += norm(f"{ours}/norm{n}", f"{theirs}.norm{n}")
                rows += norm(
                    f"{ours}/axial_shift_norm{n}",
                    f"{theirs}.axial_shift.norm{n}",
                )
                rows += product(
                    f"{ours}/fc{n}", f"{theirs}.mlp.fc{n}", "pointwise"
                )
            for n in ("1", "2_1", "2_2", "3"):
                rows += product(
                    f"{ours}/axial_shift_conv{n}",
                    f"{theirs}.axial_shift.conv{n}",
                    "pointwise",
                )
    rows += norm("final_norm", "norm")
    return rows + product("head", "head", "linear")


def _read_arrays(arrays):
    depths = table.depths(arrays, _BLOCK)
    widths = tuple(
        arrays[f"layers.{i}.blocks.0.norm1.weight"].shape[0]
        for i in range(len(depths))
    )
    hidden = arrays["layers.0.blocks.0.mlp.fc1.weight"].shape[0]
    _, channels, *patch = arrays["patch_embed.proj.weight"].shape
    return dict(
        depths=depths,
        hidden_sizes=widths,
        patch_size=patch[0] if patch[0] == patch[1] else tuple(patch),
        mlp_ratio=hidden / widths[0],
        channels=channels,
    )


grid = table.no_grid
RESIZES = {"stem/kernel": table.fit_pixels}
FORMATS = {
    "authors": torch_modules.authors(
        _rows,
        _read_arrays,
        requires=(r"layers\.0\.blocks\.0\.axial_shift\.conv1\.weight",),
        config_of=lambda metadata: dict(
            embed_dim=metadata["hidden_sizes"][0],
            depths=list(metadata["depths"]),
            shift_size=metadata["shift_size"],
        ),
        read_config=lambda config: dict(
            shift_size=configs.integer(config, "shift_size")
        ),
        unseen=dict(shift_size=5),
        published=_PUBLISHED,
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=(r"stage1_block1/axial_shift_conv1/0",)
)
