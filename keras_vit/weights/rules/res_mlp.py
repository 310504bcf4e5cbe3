"""ResMLP in the authors' names, in timm, and in our own files.

Checked against resmlp_models.py of facebookresearch/deit and
timm/models/mlp_mixer.py.
"""

import re

from keras_vit.weights.rules import (
    imagenet,
    keras_format,
    patches,
    table,
    timm_mlp,
)
from keras_vit.weights.rules.torch_modules import product

TITLE = "ResMLP"
_BLOCK = re.compile(r"blocks\.(\d+)\.")
_OURS, _THEIRS = "blocks_{i}", "blocks.{i}"
# timm's scales and shifts are of shape [1, 1, D].
_CHANNELS = table.Transform(
    lambda array: array.reshape(array.shape[-1:]),
    lambda array: (array.reshape(1, 1, -1),),
)
# Hidden size, patch, blocks: architecture of timm.
_ARCHITECTURES = {
    (384, 16, 12): "resmlp_12_224",
    (384, 16, 24): "resmlp_24_224",
    (384, 16, 36): "resmlp_36_224",
    (768, 8, 24): "resmlp_big_24_224",
}
_RATIO = 4


def _rows(stem, tokens, channels, scale, affine):
    rows = product("patch_embed", f"{stem}.proj", "convolution")
    rows += product(f"{_OURS}/attn", f"{_THEIRS}.{tokens}")
    for n in (0, 1):
        rows += product(
            f"{_OURS}/mlp/Dense_{n}", f"{_THEIRS}.{channels}.fc{n + 1}"
        )
    for n in (1, 2):
        rows.append((f"{_OURS}/gamma_{n}", f"{_THEIRS}.{scale}{n}"))
    for path, name in (
        (f"{_OURS}/norm1", f"{_THEIRS}.norm1"),
        (f"{_OURS}/norm2", f"{_THEIRS}.norm2"),
        ("norm", "norm"),
    ):
        for part in ("alpha", "beta"):
            rows.append((f"{path}/{part}", f"{name}.{part}", affine))
    return rows + product("head", "head")


grid = patches.grid
fit_sizes = patches.refuse_other_grids
RESIZES = {"patch_embed/kernel": table.fit_pixels}


def _format(rows, **kwargs):
    def rules(metadata):
        return table.expand(
            rows,
            num_layers=metadata["num_layers"],
            absent=table.without_top(metadata),
        )

    def read_arrays(arrays, config, specified):
        num_layers = table.count(arrays, _BLOCK)
        every = rules(dict(num_layers=num_layers, classes=1))
        shape_of = table.shapes(arrays, every)
        patch = shape_of("patch_embed/kernel", 4)
        (tokens,) = shape_of("blocks_0/attn/bias", 1)
        has_head = "head.bias" in arrays
        return dict(
            patch_size=patch[:2],
            stride=patch[:2],
            channels=patch[2],
            hidden_size=patch[3],
            num_layers=num_layers,
            mlp_dim=shape_of("blocks_0/mlp/Dense_0/kernel", 2)[1],
            grid=patches.grid_of(tokens, patch[:2], specified),
            classes=shape_of("head/bias", 1)[0] if has_head else None,
            representation_size=None,
        )

    return table.Format(
        rules=rules,
        read_arrays=read_arrays,
        **kwargs,
    )


FORMATS = {
    "authors": _format(
        _rows("patch_embed", "attn", "mlp", "gamma_", table.SAME),
        requires=(r"patch_embed\.proj\.weight", r"blocks\.0\.norm1\.alpha"),
        read_config=lambda config: dict(imagenet.PIXELS),
        naming_schemes={"authors": None},
        config_of=lambda metadata: dict(num_classes=metadata["classes"]),
        refused=table.refuse_pre_logits,
        differences=imagenet.differences,
    ),
    "timm": _format(
        _rows("stem", "linear_tokens", "mlp_channels", "ls", _CHANNELS),
        requires=(r"stem\.proj\.weight", r"blocks\.0\.linear_tokens\.weight"),
        read_config=lambda config: timm_mlp.read(
            config, "resmlp_", imagenet.PIXELS
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
    FORMATS["authors"], requires=("patch_embed/0", r"blocks_0/attn/0")
)
