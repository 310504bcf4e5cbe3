"""Names of keras-hub's ViTBackbone and ViTImageClassifier.

As in their `.weights.h5` files, where variables have numbers; checked against
keras-hub 0.32.
"""

import re

import numpy as np

from keras_vit.weights.files import Stored
from keras_vit.weights.rules import table

_BLOCK = re.compile(r"vit_encoder/transformer_block_(\d+)/")
_EMBEDDING = "vit_patching_and_embedding"


def recognises(names: set[str]) -> bool:
    """Whether names are those of a ViT of keras-hub."""
    return f"{_EMBEDDING}/patch_embedding/0" in names


def flatten(
    arrays: dict[str, Stored], facts: dict
) -> tuple[dict[str, Stored], None]:
    """Leaves out what belongs to the optimizer."""
    return {
        name: array
        for name, array in arrays.items()
        if "/" in name and not name.startswith("adam")
    }, None


def restore(arrays: dict[str, np.ndarray], form: None) -> dict[str, np.ndarray]:
    """The inverse of `flatten`."""
    return arrays


def layout(arrays: dict[str, Stored], config: dict) -> table.Layout:
    """Reads off names and config what the checkpoint has."""
    query = "vit_encoder/transformer_block_1/mha/query/0"
    token = f"{_EMBEDDING}/0" in arrays
    pooling = config.get("pooling", "token" if token else "gap")
    if (pooling == "token") != token:
        raise ValueError(
            f"pooling={pooling!r} {'with' if token else 'without'} a class "
            "token is not among ViT's classifiers here; expected 'token' with "
            "it, or 'gap' with use_class_token=False"
        )
    return table.Layout(
        num_layers=table.count(arrays, _BLOCK),
        num_heads=arrays[query].shape[1],
        classifier="token" if token else "gap",
        representation="pre_logits/1" in arrays,
        head="predictions/1" in arrays,
    )


def settings(config: dict) -> dict:
    """What a preset's config.json and preprocessor tell."""
    found = dict(
        gelu_approximate=False,
        layer_norm_epsilon=config.get("layer_norm_epsilon", 1e-6),
    )
    if config.get("image_shape"):
        found["image_size"] = tuple(config["image_shape"][:2])
    converter = config.get("image_converter") or {}
    scale, offset = converter.get("scale"), converter.get("offset")
    if scale is not None:
        scale = np.broadcast_to(scale, 3).astype(float)
        offset = np.broadcast_to(0.0 if offset is None else offset, 3)
        found["pixel_mean"] = tuple((-offset / scale).tolist())
        found["pixel_std"] = tuple((1 / scale).tolist())
    return found


def rules(layout: table.Layout) -> list[table.Rule]:
    """Returns the table, written out for a layout."""
    heads = layout.num_heads
    qkv = table.Transform(
        table.fuse_heads, lambda fused: table.part_heads(fused, heads)
    )
    out = table.Transform(
        lambda kernel: kernel.reshape(-1, kernel.shape[-1]),
        lambda kernel: (kernel.reshape(heads, -1, kernel.shape[-1]),),
    )
    positions = table.Transform(
        lambda array: array[None], lambda array: (array[0],)
    )
    ours = "encoderblock_{i}/"
    theirs = "vit_encoder/transformer_block_{i1}/"
    attention = f"{ours}MultiHeadDotProductAttention_0"
    layers = {
        "embedding": f"{_EMBEDDING}/patch_embedding",
        "pre_logits": "pre_logits",
        "head": "predictions",
        f"{ours}MlpBlock_0/Dense_0": f"{theirs}mlp/dense_1",
        f"{ours}MlpBlock_0/Dense_1": f"{theirs}mlp/dense_2",
    }
    norms = {
        "encoder_norm": "vit_encoder/ln",
        f"{ours}LayerNorm_0": f"{theirs}ln_1",
        f"{ours}LayerNorm_1": f"{theirs}ln_2",
    }
    rows = [
        ("class_token/cls", f"{_EMBEDDING}/0"),
        (
            "posembed_input/pos_embedding",
            f"{_EMBEDDING}/position_embedding/0",
            positions,
        ),
        (f"{attention}/out/kernel", f"{theirs}mha/attention_output/0", out),
        (f"{attention}/out/bias", f"{theirs}mha/attention_output/1"),
    ]
    for index, part in enumerate(("kernel", "bias")):
        names = tuple(
            f"{theirs}mha/{name}/{index}" for name in ("query", "key", "value")
        )
        rows.append((f"{attention}/qkv/{part}", names, qkv))
        for layer, name in layers.items():
            rows.append((f"{layer}/{part}", f"{name}/{index}"))
    for index, part in enumerate(("gamma", "beta")):
        for layer, name in norms.items():
            rows.append((f"{layer}/{part}", f"{name}/{index}"))
    return table.expand(rows, layout)
