"""The feed-forward-only ViT in the author's names, and in our own files.

Checked against models/models.py of lukemelas/do-you-even-need-attention.
"""

from keras_vit.weights.rules import keras_format, patches, table, torch_modules
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "feed-forward-only ViT"
# Their table is [1, D, height, width].
_TABLE = table.Transform(
    lambda array: array[0].transpose(1, 2, 0),
    lambda array: (array.transpose(2, 0, 1)[None],),
)


def _rows():
    rows = product("patch_embed", "patch_embed.proj", "convolution")
    # In the order in which the layer creates them.
    rows += [
        ("positions/cls_token", "cls_token"),
        ("positions/pos_embed", "pos_encoding.pos_embed", _TABLE),
        ("positions/cls_pos_embed", "pos_encoding.cls_pos_embed"),
    ]
    ours, theirs = "blocks_{i}", "blocks.{i}"
    for n in (1, 2):
        rows += norm(f"{ours}/norm{n}", f"{theirs}.norm{n}")
        for layer in (0, 1):
            rows += product(
                f"{ours}/mlp{n}/Dense_{layer}", f"{theirs}.mlp{n}.fc{layer + 1}"
            )
    return rows + norm("norm", "norm") + product("head", "head")


grid = patches.grid
fit_sizes = patches.refuse_other_grids
RESIZES = {"patch_embed/kernel": table.fit_pixels}


def _shown(shape_of, found, specified):
    ratios = {
        hidden / width
        for width, hidden in (
            shape_of(f"blocks_0/mlp{n}/Dense_0/kernel", 2) for n in (1, 2)
        )
    }
    if len(ratios) > 1:
        raise ValueError(
            "expected MLPs over tokens and over channels of one ratio of "
            f"widths; found {sorted(ratios)}"
        )
    return shape_of("blocks_0/norm2/gamma", 1)[0] - 1, dict(
        mlp_ratio=ratios.pop(),
        position_table_size=shape_of("positions/pos_embed", 4)[:2],
    )


FORMATS = {
    "authors": patches.format(
        _rows(),
        _shown,
        stem="patch_embed",
        requires=(
            r"pos_encoding\.cls_pos_embed",
            r"blocks\.0\.mlp2\.fc1\.weight",
        ),
        **torch_modules.AUTHORS,
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=("patch_embed/0", r"blocks_0/mlp2/Dense_0/0")
)
