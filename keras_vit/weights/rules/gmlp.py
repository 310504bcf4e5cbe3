"""gMLP in timm's names, and in our own files.

Checked against timm/models/mlp_mixer.py. The authors published no weights.
"""

from keras_vit.weights.rules import keras_format, patches, table, timm_mlp
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "gMLP"
# Hidden size, patch, blocks: architecture of timm.
_ARCHITECTURES = {
    (128, 16, 30): "gmlp_ti16_224",
    (256, 16, 30): "gmlp_s16_224",
    (512, 16, 30): "gmlp_b16_224",
}
_OURS, _THEIRS = "blocks_{i}", "blocks.{i}"
_MLP = f"{_THEIRS}.mlp_channels"
_ROWS = [
    *product("stem", "stem.proj", "convolution"),
    *norm(f"{_OURS}/norm", f"{_THEIRS}.norm"),
    *product(f"{_OURS}/fc1", f"{_MLP}.fc1"),
    *norm(f"{_OURS}/gate_norm", f"{_MLP}.gate.norm"),
    *product(f"{_OURS}/gate", f"{_MLP}.gate.proj"),
    *product(f"{_OURS}/fc2", f"{_MLP}.fc2"),
    *norm("norm", "norm"),
    *product("head", "head"),
]
grid = patches.grid
fit_sizes = patches.refuse_other_grids
RESIZES = {"stem/kernel": table.fit_pixels}


def _shown(shape_of, found, specified):
    (tokens,) = shape_of("blocks_0/gate/bias", 1)
    return tokens, dict(mlp_dim=shape_of("blocks_0/fc1/kernel", 2)[1])


FORMATS = {
    "timm": patches.format(
        _ROWS,
        _shown,
        stem="stem",
        requires=(r"stem\.proj\.weight", r"blocks\.0\..*\.gate\.proj\.weight"),
        **timm_mlp.fields(
            "gmlp_",
            dict(pixel_mean=127.5, pixel_std=127.5),
            _ARCHITECTURES,
            mlp_ratio=6,
        ),
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["timm"], requires=("stem/0", r"blocks_0/gate/0")
)
