"""Axial-ViT in scenic's Flax names, and in our own files.

Checked against scenic/projects/fast_vit; no checkpoints were released.
"""

import re

from keras_vit.weights import resize
from keras_vit.weights.rules import configs, keras_format, patches, table
from keras_vit.weights.rules.vit.architecture import attention_rows

TITLE = "Axial-ViT"
_BLOCK = re.compile(r"Transformer/encoder_block_row_(\d+)/")
_ATTENTION = "MultiHeadAttention_0"
_OURS = "MultiHeadDotProductAttention_0"
_POSITIONS = "Transformer/posembed_input"


def _rows(num_heads):
    rows = [
        (f"posembed_input/{name}", f"{_POSITIONS}/{name}")
        for name in ("row_pos_embedding", "col_pos_embedding")
    ]
    same = {"embedding": "embedding", "pre_logits": "pre_logits"}
    same["head"] = "output_projection"
    norms = {"encoder_norm": "Transformer/encoder_norm"}
    for axis in ("row", "col"):
        ours = f"axial_block_{{i}}/{axis}"
        theirs = f"Transformer/encoder_block_{axis}_{{i}}"
        for n in (0, 1):
            name = f"MlpBlock_0/Dense_{n}"
            same[f"{ours}/{name}"] = f"{theirs}/{name}"
            norms[f"{ours}/LayerNorm_{n}"] = f"{theirs}/LayerNorm_{n}"
        rows += attention_rows(
            f"{ours}/{_OURS}", f"{theirs}/{_ATTENTION}", num_heads
        )
    rows += table.layer_rows(same, table.FLAX_LAYER)
    return rows + table.layer_rows(norms, table.FLAX_NORM)


def _rules(metadata):
    return table.expand(
        _rows(metadata["num_heads"]),
        num_layers=metadata["num_layers"],
        absent=table.without_top(metadata),
    )


grid = patches.grid


def _fit_positions(value, fit):
    """Resample the positions of one axis; see `resample_positions`."""
    before, after = (value.shape[0], 1), (fit.shape[0], 1)
    return resize.resample_positions(value[None], before, after)[0]


RESIZES = {
    "embedding/kernel": table.fit_pixels,
    "posembed_input/.*": _fit_positions,
}


def _read_arrays(arrays, config, specified):
    num_layers = table.count(arrays, _BLOCK)
    metadata = dict(num_layers=num_layers, num_heads=1, classes=1)
    every = _rules(metadata | dict(representation_size=1))
    shape_of = table.shapes(arrays, every)
    names = {rule.path: rule.sources[0] for rule in every}
    patch = shape_of("embedding/kernel", 4)
    query = names[f"axial_block_0/row/{_OURS}/qkv/kernel"]
    if len(arrays[query].shape) != 3:
        raise ValueError(
            f"expected `{query}` of 3 axes; found {arrays[query].shape}"
        )
    return table.read_top(arrays, every) | dict(
        patch_size=patch[:2],
        stride=patch[:2],
        channels=patch[2],
        hidden_size=patch[3],
        num_layers=num_layers,
        num_heads=arrays[query].shape[1],
        mlp_dim=shape_of("axial_block_0/row/MlpBlock_0/Dense_0/kernel", 2)[1],
        grid=(
            shape_of("posembed_input/col_pos_embedding", 2)[0],
            shape_of("posembed_input/row_pos_embedding", 2)[0],
        ),
    )


FORMATS = {
    "jax": table.Format(
        requires=(_BLOCK.pattern + ".*", r"output_projection/.*|embedding/.*"),
        forbids={
            r".*/axial_encoder_fblock_.*": "a scenic X-ViT of type "
            "'axial_attention', one MLP for both axes: these are"
        },
        rules=_rules,
        read_arrays=_read_arrays,
        read_config=lambda config: configs.known(
            pooling=configs.choice(config, "classifier", ("gap", "token")),
            pixel_mean=127.5,
            pixel_std=127.5,
        ),
        required=lambda metadata: dict(pooling="'gap' or 'token'"),
        naming_schemes={"jax": None},
        refused=lambda metadata, format: [],
        differences=lambda m: table.pixel_differences(m, 127.5),
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["jax"], requires=(r"axial_block_0/row/.*",)
)
