"""gMLP in timm's names, and in our own files.

Checked against timm/models/mlp_mixer.py. The authors published no weights.
"""

import re

from keras_vit.weights.rules import (
    keras_format,
    patches,
    table,
    timm_mlp,
)
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "gMLP"
_BLOCK = re.compile(r"blocks\.(\d+)\.")
# Hidden size, patch, blocks: architecture of timm.
_ARCHITECTURES = {
    (128, 16, 30): "gmlp_ti16_224",
    (256, 16, 30): "gmlp_s16_224",
    (512, 16, 30): "gmlp_b16_224",
}
_RATIO = 6


def _rows():
    ours, theirs = "blocks_{i}", "blocks.{i}"
    mlp = f"{theirs}.mlp_channels"
    return [
        *product("stem", "stem.proj", "convolution"),
        *norm(f"{ours}/norm", f"{theirs}.norm"),
        *product(f"{ours}/fc1", f"{mlp}.fc1"),
        *norm(f"{ours}/gate_norm", f"{mlp}.gate.norm"),
        *product(f"{ours}/gate", f"{mlp}.gate.proj"),
        *product(f"{ours}/fc2", f"{mlp}.fc2"),
        *norm("norm", "norm"),
        *product("head", "head"),
    ]


grid = patches.grid
fit_sizes = patches.refuse_other_grids
RESIZES = {"stem/kernel": table.fit_pixels}


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
    patch = shape_of("stem/kernel", 4)
    (tokens,) = shape_of("blocks_0/gate/bias", 1)
    has_head = "head.bias" in arrays
    return dict(
        patch_size=patch[:2],
        stride=patch[:2],
        channels=patch[2],
        hidden_size=patch[3],
        num_layers=num_layers,
        mlp_dim=shape_of("blocks_0/fc1/kernel", 2)[1],
        grid=patches.grid_of(tokens, patch[:2], specified),
        classes=shape_of("head/bias", 1)[0] if has_head else None,
        representation_size=None,
    )


FORMATS = {
    "timm": table.Format(
        requires=(r"stem\.proj\.weight", r"blocks\.0\..*\.gate\.proj\.weight"),
        rules=_rules,
        read_arrays=_read_arrays,
        read_config=lambda config: timm_mlp.read(
            config, "gmlp_", dict(pixel_mean=127.5, pixel_std=127.5)
        ),
        naming_schemes={"timm": None},
        config_of=lambda metadata: timm_mlp.config_of(
            metadata, _ARCHITECTURES, _RATIO
        ),
        refused=lambda metadata, format: timm_mlp.refused(
            metadata, _ARCHITECTURES, _RATIO
        ),
        differences=table.pixel_differences,
    ),
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["timm"], requires=("stem/0", r"blocks_0/gate/0")
)
