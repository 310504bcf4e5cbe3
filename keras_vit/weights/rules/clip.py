"""The image towers of CLIP, in timm and transformers.

Checked against timm/models/vision_transformer.py of timm 1.0, and clip of
transformers 5.23.
"""

from keras_vit.weights.rules import configs, patches, table
from keras_vit.weights.rules.encoder import formats, timm, transformers

TITLE = "CLIP"
# The rules of the text tower that files may have beside that of images.
TEXT_TOWER = "clip_text"
grid = patches.grid
RESIZES = formats.RESIZES
_MODEL: dict = dict(
    fields=("activation",), fixed=dict(pre_norm=True, patch_bias=False)
)
_NAMES = transformers.TOWER_NAMES | dict(
    class_token="embeddings.class_embedding",
    pre_norm="pre_layrnorm",  # as in transformers
    head="visual_projection",
    head_bias=False,
)
_DEFAULTS = transformers.defaults(1e-5, "quick_gelu", image_size=224)
# MetaCLIP 2 has CLIP's form.
_KINDS = ("clip", "clip_vision_model", "metaclip_2", "metaclip_2_vision_model")


def _timm_config_of(metadata):
    quick = metadata["activation"] == "quick_gelu"
    return timm.config_of(
        metadata,
        f"vit_base_patch32_clip_{'quickgelu_' if quick else ''}224",
        activation="quick_gelu" if quick else "gelu",
        fc_norm=metadata["pooling"] == "gap_norm",
    )


def _config_of(metadata):
    projected = metadata["classes"] is not None
    return transformers.config_of(
        metadata,
        "clip_vision_model",
        "CLIPVisionModelWithProjection" if projected else "CLIPVisionModel",
        projection_dim=metadata["classes"] or 512,
    )


def joined_config(image: dict, text: dict) -> dict:
    """Return the config of both towers, given those of each."""
    return configs.known(
        architectures=["CLIPModel"],
        model_type="clip",
        projection_dim=text["projection_dim"],
        preprocessor=image.pop("preprocessor", None),
        text_config=text,
        vision_config=image,
    )


def _refused(metadata, format):
    pooling = metadata["pooling"]
    return transformers.refused(metadata, format) + table.listed(
        {f"pooling={pooling!r}": pooling != "token"}
    )


FORMATS = {
    "timm": formats.timm_format(
        _timm_config_of,
        known=r"vit_\w+_clip_\w+",
        epsilon=1e-5,
        requires=(r"norm_pre\.weight", r"pos_embed", r"(fc_)?norm\.weight"),
        forbids={
            r"attn_pool\..*": "a norm before the blocks with attention "
            "pooling is",
            r".*(ls1\.gamma|gamma_1|reg_token)": "a norm before the blocks "
            "with LayerScale or registers is",
            r".*\.in_proj\..*": "parallel attention and MLP are",
            r".*attn\.(qkv\.weight without bias|q_norm\..*)": "norms of "
            "queries and keys, or projections without biases are",
        },
        **_MODEL,
    ),
    "huggingface": formats.tower_format(
        _NAMES,
        _config_of,
        requires=(r"(vision_model\.)?pre_layrnorm\.weight",),
        forbids={
            r"classifier\..*": "a classifier on CLIP's mean of patches before "
            "the last norm is"
        },
        defaults=dict.fromkeys(_KINDS, _DEFAULTS),
        refused=_refused,
        **_MODEL,
    ),
}
FORMATS["keras_vit"] = formats.keras_files(FORMATS["timm"], r"pre_norm/0")
