"""Names of keras-hub's ViTBackbone and ViTImageClassifier.

The names in their `.weights.h5` files, where variables are numbered; checked
against keras-hub 0.32.
"""

import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.encoder.rows import EMBEDDINGS
from keras_vit.weights.rules.vit.architecture import attention_rows, expand

_BLOCK = re.compile(r"vit_encoder/transformer_block_(\d+)/")
_EMBEDDING = "vit_patching_and_embedding"


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], None]:
    """Remove the arrays of the optimizer."""
    return {
        name: array
        for name, array in arrays.items()
        if "/" in name and not name.startswith("adam")
    }, None


def read_architecture(arrays: dict[str, Stored], config: dict) -> dict:
    """Return the metadata that names and config show."""
    query = "vit_encoder/transformer_block_1/mha/query/0"
    token = f"{_EMBEDDING}/0" in arrays
    pooling = configs.choice(config, "pooling", ("token", "gap"))
    pooling = pooling or ("token" if token else "gap")
    if (pooling == "token") != token:
        raise ValueError(
            f"pooling={pooling!r} {'with' if token else 'without'} a class "
            "token is not among ViT's classifiers here; expected 'token' with "
            "it, or 'gap' with use_class_token=False"
        )
    if len(arrays[query].shape) != 3:
        raise ValueError(
            f"expected `{query}` of shape [D, heads, D / heads]; found "
            f"{arrays[query].shape}"
        )
    return dict(
        num_layers=table.count(arrays, _BLOCK),
        num_heads=arrays[query].shape[1],
        pooling="token" if token else "gap",
        representation_size="pre_logits/1" in arrays,
        classes="predictions/1" in arrays,
    )


def settings(config: dict) -> dict:
    """Return the metadata in a preset's config.json and preprocessor."""
    shape = config.get("image_shape")
    if shape is not None and not (
        isinstance(shape, (list, tuple)) and len(shape) == 3
    ):
        raise ValueError(
            f"expected `image_shape` of (height, width, channels); found "
            f"{shape!r}"
        )
    found = configs.known(
        # Keras' "gelu" is the exact form.
        gelu_approximate=False,
        layer_norm_epsilon=configs.epsilon(config, "layer_norm_epsilon"),
        num_heads=configs.integer(config, "num_heads"),
        hidden_size=configs.integer(config, "hidden_dim"),
        num_layers=configs.integer(config, "num_layers"),
        mlp_dim=configs.integer(config, "mlp_dim"),
        patch_size=configs.pair(config, "patch_size"),
        image_size=configs.pair(dict(image_shape=shape[:2]), "image_shape")
        if shape
        else None,
    )
    converter = configs.section(config, "image_converter")
    scale = configs.numbers(converter, "scale")
    offset = configs.numbers(converter, "offset") or (0.0,)
    if scale is not None:
        if 0 in scale:
            raise ValueError(
                "expected `scale` of the image converter not to be 0"
            )
        scale, offset = np.broadcast_to(scale, 3), np.broadcast_to(offset, 3)
        found["pixel_mean"] = tuple((-offset / scale).tolist())
        found["pixel_std"] = tuple((1 / scale).tolist())
    return found


def rules(metadata: dict) -> list[table.Rule]:
    """Return the expanded table of a model."""
    ours = "encoderblock_{i}/"
    theirs = "vit_encoder/transformer_block_{i1}/"
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
    rows: list[tuple] = [
        ("class_token/cls", f"{_EMBEDDING}/0"),
        (
            "posembed_input/pos_embedding",
            f"{_EMBEDDING}/position_embedding/0",
            EMBEDDINGS,
        ),
    ]
    rows += attention_rows(
        f"{ours}MultiHeadDotProductAttention_0",
        f"{theirs}mha",
        metadata.get("num_heads") or 0,
        table.KERAS_LAYER,
        out="attention_output",
    )
    rows += table.layer_rows(layers, table.KERAS_LAYER)
    rows += table.layer_rows(norms, table.KERAS_NORM)
    return expand(rows, metadata)
