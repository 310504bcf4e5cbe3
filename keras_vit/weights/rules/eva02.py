"""EVA, EVA-02, Perception Encoders and BEiT-3, in timm.

Checked against timm/models/eva.py, and timm/models/vision_transformer.py for
BEiT-3, of timm 1.0.
"""

import re

from keras_vit.weights.rules import configs, patches, table, timm_config
from keras_vit.weights.rules.encoder import formats, rotary, timm

TITLE = "EVA-02 or BEiT-3"
grid = patches.grid
RESIZES = formats.RESIZES
_FIELDS = (
    *("class_token", "position_prefix", "pre_norm", "patch_bias"),
    *("activation", "qkv_bias", "layer_scale", "attention_norm", "mlp_norm"),
    "rotary",
)
_NONE = dict(rotary="none")
# Pattern of timm's architectures -> epsilon, and constants of their positions.
_KNOWN: dict[str, tuple[float, dict]] = {
    r"eva02_enormous_.*": (1e-6, dict(_NONE, post_norm=True)),
    r"eva_giant_.*": (1e-6, _NONE),
    r"eva02_.*": (
        1e-6,
        dict(
            rotary.INDEX,
            rotary_reference=(16, 16),
            rotary_order="ij",
            rotary_offset=0.0,
        ),
    ),
    r"vit_pe_\w+": (1e-5, dict(rotary.INDEX, rotary_order="xy")),
    r"beit3_.*": (1e-5, _NONE),
}


def family_of(metadata: dict) -> str:
    """Return the family of a checkpoint."""
    return "perception_encoder" if metadata["pre_norm"] else "eva02"


def _settings(config):
    name = timm_config.architecture_of(config) or ""
    found = timm.settings(config, _KNOWN)
    # timm's VisionTransformer pools the patches alone, Eva all tokens.
    if name.startswith("beit3") and found.get("global_pool") == "map":
        raise ValueError("attention pooling of a BEiT-3 is not supported")
    if name.startswith("vit_pe_"):
        found = _of_perception_encoder(name) | found
    arguments = configs.section(config, "model_args")
    return found | configs.known(
        post_norm=configs.flag(arguments, "use_post_norm"),
        pooling_heads=configs.integer(arguments, "attn_pool_num_heads"),
    )


def _of_perception_encoder(name):
    """Return the grid of its positions, and the heads of its pooling."""
    patch, size = map(int, re.findall(r"patch(\d+)_(\d+)", name)[0])
    return dict(
        rotary_reference=(size // patch,) * 2,
        rotary_offset=0.0 if "gigantic" in name else 1.0,
        pooling_heads=8,
    )


def _is_beit3(metadata):
    """Whether timm has the model as a VisionTransformer, not as an Eva."""
    plain = metadata["rotary"] == "none" and not metadata["pre_norm"]
    return plain and metadata["qkv_bias"] == "qkv"


def _config_of(metadata):
    pooling = metadata["pooling"]
    if _is_beit3(metadata):
        return timm.config_of(
            metadata,
            "beit3_base_patch16_224",
            class_token=metadata["class_token"],
            fc_norm=pooling == "gap_norm",
            scale_attn_norm=metadata["attention_norm"],
            scale_mlp_norm=metadata["mlp_norm"],
        )
    name = "eva02_tiny_patch14_224"
    if metadata["pre_norm"]:
        name = "vit_pe_core_base_patch16_224"
    elif metadata["rotary"] == "none":
        name = "eva_giant_patch14_224"
    arguments = rotary.arguments(metadata) | dict(
        class_token=metadata["class_token"],
        qkv_bias=metadata["qkv_bias"] != "none",
        qkv_fused="separate" not in _forms(metadata),
        swiglu_mlp=metadata["activation"] == "swiglu",
        # timm packs the halves of a SwiGLU, unless it aligns their width.
        swiglu_align_to=0 if "packed" in _forms(metadata) else 1,
        scale_mlp=metadata["mlp_norm"],
        scale_attn_inner=metadata["attention_norm"],
        init_values=metadata["layer_scale"] or None,
        use_post_norm=metadata["post_norm"],
        use_fc_norm=pooling == "gap_norm",
        use_post_transformer_norm=pooling not in ("gap_norm", "gap_unnormed"),
    )
    if pooling == "map":
        arguments["attn_pool_num_heads"] = (
            metadata["pooling_heads"] or metadata["num_heads"]
        )
        pool_dim = metadata["pooling_mlp_dim"] or metadata["mlp_dim"]
        arguments["attn_pool_mlp_ratio"] = pool_dim / metadata["hidden_size"]
    return timm.config_of(metadata, name, **arguments)


def _forms(metadata):
    """Return the forms in which timm stores a model (`timm.restore`)."""
    if metadata["activation"] != "swiglu":
        return frozenset()
    return frozenset({"separate" if metadata["mlp_norm"] else "packed"})


def _refused(metadata, format):
    biases = "qkv" if metadata["pre_norm"] else "qv"
    has = {
        "rotary positions without rotary_reference": (
            metadata["rotary"] == "index" and not metadata["rotary_reference"]
        ),
        f"qkv_bias={metadata['qkv_bias']!r}": not _is_beit3(metadata)
        and metadata["qkv_bias"] not in (biases, "none"),
        "activation='swiglu' without rotary positions": (
            _is_beit3(metadata) and metadata["activation"] == "swiglu"
        ),
        "post_norm=True with LayerScale": (
            metadata["post_norm"] and metadata["layer_scale"]
        ),
        "rotary='none' with a norm before the blocks": (
            metadata["rotary"] == "none" and metadata["pre_norm"]
        ),
        "post_norm=True or LayerScale of BEiT-3": _is_beit3(metadata)
        and (metadata["post_norm"] or metadata["layer_scale"]),
        f"pooling={metadata['pooling']!r} of BEiT-3": _is_beit3(metadata)
        and metadata["pooling"] in ("map", "gap_unnormed"),
    }
    return timm.refused_by_eva(metadata, format) + table.listed(has)


def _differences(metadata):
    tuned = metadata["pre_norm"] or _is_beit3(metadata)
    return timm.differences(metadata, 1e-5 if tuned else 1e-6)


def _timm(config_of, requires, forbids, **kwargs):
    return formats.timm_format(
        config_of,
        names=timm.EVA_NAMES,
        fields=_FIELDS,
        derived=lambda metadata: dict(patch_bias=not metadata["pre_norm"]),
        requires=(
            r"blocks\.0\.norm1\.weight",  # ResMLP has alpha
            r"pos_embed",
            *requires,
        ),
        forbids={
            r".*\.attn\.[qk]_norm\..*": "norms of queries and keys are",
            r".*reg_token": "registers with learned positions are",
            **forbids,
        },
        required=dict(rotary=rotary.REQUIRED),
        read_config=_settings,
        **kwargs,
    )


_READ_ONLY: dict = dict(naming_schemes={})
_BRANCHES = "a norm before the blocks with parallel branches is"
FORMATS = {
    "timm": _timm(
        _config_of,
        (r"blocks\.0\.attn\.(q_bias|q_proj\.weight|norm\.weight)",),
        {r".*gamma_1": "LayerScale in an EVA-02 is"},
        forms=_forms,
        refused=_refused,
        differences=_differences,
    ),
    # Perception Encoders: with attention pooling, and without a last norm.
    "timm_pe_core": _timm(
        None, (r"norm_pre\.weight", r"attn_pool\.latent"), {}, **_READ_ONLY
    ),
    "timm_pe_spatial": _timm(
        None,
        (r"norm_pre\.weight",),
        {r"(fc_)?norm\.weight": _BRANCHES},
        **_READ_ONLY,
    ),
}
FORMATS["keras_vit"] = formats.keras_files(
    FORMATS["timm"], r"encoderblock_0/MlpBlock_0/Gate/0"
)
