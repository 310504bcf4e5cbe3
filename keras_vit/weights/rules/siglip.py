"""The image towers of SigLIP and SigLIP 2, in timm and transformers.

Checked against timm/models/vision_transformer.py of timm 1.0, and siglip of
transformers 5.23.
"""

import functools

from keras_vit.weights.rules import configs, encoder, patches
from keras_vit.weights.rules.encoder import timm, transformers

TITLE = "SigLIP"
grid = patches.grid
RESIZES = encoder.RESIZES
_FIXED = dict(class_token=False, position_prefix=0)
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
_DEFAULTS = dict(
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
    num_attention_heads=12,
    image_size=224,
)


def _timm_config_of(metadata):
    name = "vit_base_patch16_siglip_224"
    if metadata["classifier"] == "gap":
        name = "vit_base_patch16_siglip_gap_224"
    arguments = {}
    if metadata["activation"] != "gelu":
        arguments["act_layer"] = metadata["activation"]
    return timm.config_of(
        metadata,
        name,
        mlp_ratio=metadata["mlp_dim"] / metadata["hidden_size"],
        **arguments,
    )


def _settings(config):
    if config.get("model_type") == "siglip2":
        raise ValueError(
            "patches of images of any shape (NaFlex) are not supported; "
            "SigLIP 2 of a fixed resolution is"
        )
    found = transformers.settings(
        config, dict(siglip=_DEFAULTS, siglip_vision_model=_DEFAULTS)
    )
    tower = config.get("vision_config") or config
    pooled = tower.get("vision_use_head") is not False
    return found | dict(pooling="map" if pooled else "avg")


def _flatten(arrays, metadata):
    """Flattens a tower; a classifier reads the mean, not the pooling beside."""
    arrays, prefix = transformers.tower(arrays, metadata)
    if "classifier.weight" in arrays:
        metadata["pooling"] = "avg"
        arrays = {n: a for n, a in arrays.items() if not n.startswith("head.")}
    return arrays, prefix


def _config_of(metadata):
    tower = transformers.config_of(
        metadata,
        "siglip_vision_model",
        "SiglipVisionModel",
        vision_use_head=metadata["classifier"] == "map",
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


def _refused(metadata, format):
    found = transformers.refused(metadata, format)
    found += transformers.refuse_rectangles(metadata)
    if metadata["classes"] is not None and metadata["classifier"] != "gap":
        found.append("head of attention pooling")
    return found


FORMATS = {
    "timm": timm.with_heads(
        encoder.formats(
            timm.NAMES,
            fields=("activation",),
            fixed=_FIXED,
            requires=(
                r"(module\.)?patch_embed\.proj\.weight",
                r"(module\.)?attn_pool\.latent",
                r"(module\.)?pos_embed",
            ),
            forbids={
                r".*norm_pre\..*": "attention pooling with a norm before the "
                "blocks is",
                r".*(ls1\.gamma|gamma_1|reg_token|cls_token)": "attention "
                "pooling with LayerScale, registers or a class token is",
                r"attn_pool\.pos_embed": "attention pooling with positions is",
            },
            read_config=functools.partial(
                timm.settings, known=r"vit_\w+_siglip_\w+", epsilon=1e-6
            ),
            flatten=timm.flatten,
            restore=timm.restore,
            naming_schemes={"timm": frozenset()},
            config_of=_timm_config_of,
            refused=timm.refused,
            differences=functools.partial(timm.differences, epsilon=1e-6),
        )
    ),
    "huggingface": encoder.formats(
        _NAMES,
        fields=("activation",),
        fixed=_FIXED,
        resampling=lambda metadata: "bicubic",
        requires=(
            r"(vision_model\.)?embeddings\.patch_embedding\.bias",
            r"(vision_model\.)?post_layernorm\.weight",
        ),
        read_config=_settings,
        flatten=_flatten,
        restore=transformers.restore_tower,
        naming_schemes={"huggingface": transformers.TOWER},
        config_of=_config_of,
        refused=_refused,
    ),
}
FORMATS["keras_vit"] = encoder.keras_files(
    FORMATS["timm"], r"attention_pooling/0"
)
