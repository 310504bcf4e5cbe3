"""The image towers of CLIP, in timm and transformers.

Checked against timm/models/vision_transformer.py of timm 1.0, and clip of
transformers 5.23.
"""

import functools

from keras_vit.weights.rules import encoder, patches
from keras_vit.weights.rules.encoder import timm, transformers

TITLE = "CLIP"
grid = patches.grid
RESIZES = encoder.RESIZES
_FIXED = dict(pre_norm=True, patch_bias=False)
_NAMES = transformers.TOWER_NAMES | dict(
    class_token="embeddings.class_embedding",
    pre_norm="pre_layrnorm",  # as in transformers
    head="visual_projection",
    head_bias=False,
)
_DEFAULTS = dict(
    hidden_act="quick_gelu",
    layer_norm_eps=1e-5,
    num_attention_heads=12,
    image_size=224,
)


def _timm_config_of(metadata):
    name = "vit_base_patch32_clip_224"
    arguments = {}
    if metadata["activation"] == "quick_gelu":
        name = "vit_base_patch32_clip_quickgelu_224"
    elif metadata["activation"] != "gelu":
        arguments["act_layer"] = metadata["activation"]
    return timm.config_of(
        metadata,
        name,
        fc_norm=metadata["classifier"] == "gap_norm",
        mlp_ratio=metadata["mlp_dim"] / metadata["hidden_size"],
        **arguments,
    )


def _config_of(metadata):
    projected = metadata["classes"] is not None
    return transformers.config_of(
        metadata,
        "clip_vision_model",
        "CLIPVisionModelWithProjection" if projected else "CLIPVisionModel",
        projection_dim=metadata["classes"] or 512,
    )


def _refused(metadata, format):
    found = transformers.refused(metadata, format)
    found += transformers.refuse_rectangles(metadata)
    if metadata["classifier"] != "token":
        found.append(f"classifier={metadata['classifier']!r}")
    return found


FORMATS = {
    "timm": timm.with_heads(
        encoder.formats(
            timm.NAMES,
            fields=("activation",),
            fixed=_FIXED,
            requires=(
                r"(module\.)?patch_embed\.proj\.weight",
                r"(module\.)?norm_pre\.weight",
                r"(module\.)?pos_embed",
                r"(module\.)?(fc_)?norm\.weight",
            ),
            forbids={
                r"attn_pool\..*": "a norm before the blocks with attention "
                "pooling is",
                r".*(ls1\.gamma|gamma_1|reg_token)": "a norm before the blocks "
                "with LayerScale or registers is",
                r".*\.in_proj\..*": "parallel attention and MLP are",
                r".*attn\.(qkv\.weight without bias|q_norm\..*)": "norms of "
                "queries and keys, or projections without biases are",
            },
            read_config=functools.partial(
                timm.settings, known=r"vit_\w+_clip_\w+", epsilon=1e-5
            ),
            flatten=timm.flatten,
            restore=timm.restore,
            naming_schemes={"timm": frozenset()},
            config_of=_timm_config_of,
            refused=timm.refused,
            differences=functools.partial(timm.differences, epsilon=1e-5),
        )
    ),
    "huggingface": encoder.formats(
        _NAMES,
        fields=("activation",),
        fixed=_FIXED,
        resampling=lambda metadata: "bicubic",
        requires=(r"(vision_model\.)?pre_layrnorm\.weight",),
        forbids={
            r"classifier\..*": "a classifier on CLIP's mean of patches before "
            "the last norm is"
        },
        read_config=functools.partial(
            transformers.settings,
            defaults=dict(clip=_DEFAULTS, clip_vision_model=_DEFAULTS),
        ),
        flatten=transformers.tower,
        restore=transformers.restore_tower,
        naming_schemes={"huggingface": transformers.TOWER},
        config_of=_config_of,
        refused=_refused,
    ),
}
FORMATS["keras_vit"] = encoder.keras_files(FORMATS["timm"], r"pre_norm/0")
