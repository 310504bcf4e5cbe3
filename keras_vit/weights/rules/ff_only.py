"""The feed-forward-only ViT in the author's names, and in our own files.

Checked against models/models.py of lukemelas/do-you-even-need-attention.
"""

import re

from keras_vit.weights.rules import (
    imagenet,
    keras_format,
    patches,
    table,
)
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "feed-forward-only ViT"
_BLOCK = re.compile(r"blocks\.(\d+)\.")
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


def _rules(metadata):
    return table.expand(
        _rows(),
        num_layers=metadata["num_layers"],
        absent=table.without_top(metadata),
    )


def _read_arrays(arrays, config, specified):
    num_layers = table.count(arrays, _BLOCK)
    shape_of = table.shapes(
        arrays, _rules(dict(num_layers=num_layers, classes=1))
    )
    patch = shape_of("patch_embed/kernel", 4)
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
    tokens = shape_of("blocks_0/norm2/gamma", 1)[0] - 1
    has_head = "head.bias" in arrays
    return dict(
        patch_size=patch[:2],
        stride=patch[:2],
        channels=patch[2],
        hidden_size=patch[3],
        num_layers=num_layers,
        mlp_ratio=ratios.pop(),
        position_table_size=shape_of("positions/pos_embed", 4)[:2],
        grid=patches.grid_of(tokens, patch[:2], specified),
        classes=shape_of("head/bias", 1)[0] if has_head else None,
        representation_size=None,
    )


FORMATS = {
    "authors": table.Format(
        requires=(
            r"pos_encoding\.cls_pos_embed",
            r"blocks\.0\.mlp2\.fc1\.weight",
        ),
        rules=_rules,
        read_arrays=_read_arrays,
        read_config=lambda config: dict(imagenet.PIXELS),
        naming_schemes={"authors": None},
        config_of=lambda metadata: dict(num_classes=metadata["classes"]),
        refused=table.refuse_pre_logits,
        differences=imagenet.differences,
    ),
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=("patch_embed/0", r"blocks_0/mlp2/Dense_0/0")
)
