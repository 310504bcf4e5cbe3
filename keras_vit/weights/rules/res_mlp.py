"""ResMLP in the authors' names, in timm, and in our own files.

Checked against resmlp_models.py of facebookresearch/deit and
timm/models/mlp_mixer.py.
"""

from keras_vit.weights.rules import (
    imagenet,
    keras_format,
    patches,
    table,
    timm_mlp,
    torch_modules,
)
from keras_vit.weights.rules.torch_modules import product

TITLE = "ResMLP"
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


def _rows(stem, tokens, channels, scale, affine):
    rows = product("patch_embed", f"{stem}.proj", "convolution")
    rows += product(f"{_OURS}/attn", f"{_THEIRS}.{tokens}")
    for n in (1, 2):
        mlp = f"{_THEIRS}.{channels}.fc{n}"
        rows += product(f"{_OURS}/mlp/Dense_{n - 1}", mlp)
        rows.append((f"{_OURS}/gamma_{n}", f"{_THEIRS}.{scale}{n}"))
    norms = {f"{_OURS}/norm{n}": f"{_THEIRS}.norm{n}" for n in (1, 2)}
    parts = dict(alpha=(".alpha", affine), beta=(".beta", affine))
    rows += table.layer_rows(norms | {"norm": "norm"}, parts)
    return rows + product("head", "head")


grid = patches.grid
fit_sizes = patches.refuse_other_grids
RESIZES = {"patch_embed/kernel": table.fit_pixels}


def _shown(shape_of, found, specified):
    (tokens,) = shape_of("blocks_0/attn/bias", 1)
    return tokens, dict(mlp_dim=shape_of("blocks_0/mlp/Dense_0/kernel", 2)[1])


FORMATS = {
    "authors": patches.format(
        _rows("patch_embed", "attn", "mlp", "gamma_", table.SAME),
        _shown,
        stem="patch_embed",
        requires=(r"patch_embed\.proj\.weight", r"blocks\.0\.norm1\.alpha"),
        **torch_modules.AUTHORS,
    ),
    "timm": patches.format(
        _rows("stem", "linear_tokens", "mlp_channels", "ls", _CHANNELS),
        _shown,
        stem="patch_embed",
        requires=(r"stem\.proj\.weight", r"blocks\.0\.linear_tokens\.weight"),
        **timm_mlp.fields(
            "resmlp_", imagenet.PIXELS, _ARCHITECTURES, mlp_ratio=4
        ),
    ),
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=("patch_embed/0", r"blocks_0/attn/0")
)
