"""The image towers of SigLIP and SigLIP 2, in timm and transformers.

Checked against timm/models/vision_transformer.py of timm 1.0, and siglip of
transformers 5.23.
"""

from keras_vit.weights.rules import configs, patches, table
from keras_vit.weights.rules.encoder import formats, timm, transformers

TITLE = "SigLIP"
# The rules of the text tower that files may have beside that of images.
TEXT_TOWER = "siglip_text"
grid = patches.grid
RESIZES = formats.RESIZES
_MODEL: dict = dict(
    fields=("activation",), fixed=dict(class_token=False, position_prefix=0)
)
_NAMES = transformers.TOWER_NAMES | dict(
    probe="head.probe",
    pool_q="head.attention.q",
    pool_kv="head.attention.kv",
    pool_out="head.attention.out_proj",
    pool_norm="head.layernorm",
    pool_fc1="head.mlp.fc1",
    pool_fc2="head.mlp.fc2",
    head="classifier",
)
_DEFAULTS = transformers.defaults(1e-6, "gelu_pytorch_tanh", image_size=224)
_KINDS = dict(siglip=_DEFAULTS, siglip_vision_model=_DEFAULTS)


def _timm_config_of(metadata):
    gap = "gap_" if metadata["pooling"] == "gap" else ""
    return timm.config_of(metadata, f"vit_base_patch16_siglip_{gap}224")


def _settings(config):
    found = transformers.settings(config, _KINDS)
    tower = config.get("vision_config") or config
    pooled = tower.get("vision_use_head") is not False
    return found | dict(global_pool="map" if pooled else "avg")


def _flatten(arrays, metadata):
    """Flatten a tower; a classifier reads the mean, not the pooling beside."""
    arrays, prefix = transformers.tower(arrays, metadata)
    if "classifier.weight" in arrays:
        metadata["global_pool"] = "avg"
        arrays = {n: a for n, a in arrays.items() if not n.startswith("head.")}
    return arrays, prefix


def config_of(metadata: dict) -> dict:
    """Return the config of transformers for an image tower."""
    tower = transformers.config_of(
        metadata,
        "siglip_vision_model",
        "SiglipVisionModel",
        vision_use_head=metadata["pooling"] == "map",
    )
    if metadata["classes"] is None:
        return tower
    return configs.known(
        architectures=["SiglipForImageClassification"],
        model_type="siglip",
        preprocessor=tower.pop("preprocessor", None),
        vision_config=tower,
        **transformers.labels(metadata),
    )


def joined_config(image: dict, text: dict) -> dict:
    """Return the config of both towers, given those of each."""
    return configs.known(
        architectures=["SiglipModel"],
        model_type="siglip",
        preprocessor=image.pop("preprocessor", None),
        text_config=text,
        vision_config=image,
    )


def _refused(metadata, format):
    other = metadata["pooling"] != "gap"
    return transformers.refused(metadata, format) + table.listed(
        {
            "head of attention pooling": (
                metadata["classes"] is not None and other
            )
        }
    )


FORMATS = {
    "timm": formats.timm_format(
        _timm_config_of,
        known=r"vit_\w+_siglip_\w+",
        requires=(r"attn_pool\.latent", r"pos_embed"),
        forbids={
            r".*norm_pre\..*": "attention pooling with a norm before the "
            "blocks is",
            r".*(ls1\.gamma|gamma_1|reg_token|cls_token)": "attention "
            "pooling with LayerScale, registers or a class token is",
            r"attn_pool\.pos_embed": "attention pooling with positions is",
        },
        **_MODEL,
    ),
    "huggingface": formats.tower_format(
        _NAMES,
        config_of,
        requires=(
            r"(vision_model\.)?embeddings\.patch_embedding\.bias",
            r"(vision_model\.)?post_layernorm\.weight",
        ),
        defaults=_KINDS,
        read_config=_settings,
        flatten=_flatten,
        refused=_refused,
        **_MODEL,
    ),
}
FORMATS["keras_vit"] = formats.keras_files(
    FORMATS["timm"], r"attention_pooling/0"
)
