"""DINOv3, EVA-02 and Perception Encoders, in timm and transformers.

Checked against timm/models/eva.py of timm 1.0, and dinov3_vit of transformers
5.23.
"""

import re

from keras_vit.weights.rules import configs, encoder, patches, timm_config
from keras_vit.weights.rules.encoder import timm, transformers

TITLE = "DINOv3, EVA-02 or Perception Encoder"
grid = patches.grid
RESIZES = encoder.RESIZES
_FIELDS = (
    *("class_token", "num_registers", "positions", "position_prefix"),
    *("pre_norm", "patch_bias", "activation", "qkv_bias", "layer_scale"),
    *("attention_norm", "mlp_norm", "rotary"),
)
_INDEX = dict(rotary="index", rotary_theta=10_000.0)
# Pattern of timm's architectures -> epsilon, and constants of their positions.
_KNOWN = {
    r"vit_\w+_dinov3(_qkvb)?|vit_\w+_lingbot": (
        1e-5,
        dict(rotary="centered", rotary_theta=100.0),
    ),
    r"eva02_enormous_.*|eva_giant_.*": (1e-6, dict(rotary="none")),
    r"eva02_.*|vit_\w+_rope_reg\d_gap_\d+": (
        1e-6,
        dict(_INDEX, rotary_reference=(16, 16)),
    ),
    r"vit_\w+_rope_mixed_(ape_)?\d+": (
        1e-6,
        dict(rotary="mixed", rotary_order="xy"),
    ),
    r"vit_\w+_rope_(ape_)?\d+": (
        1e-6,
        dict(rotary="index", rotary_theta=100.0, rotary_order="xy"),
    ),
    r"vit_pe_\w+": (1e-5, dict(_INDEX, rotary_order="xy")),
}
_NAMES = transformers.DINOV2_NAMES | dict(
    embedding="embeddings.patch_embeddings",
    positions=None,
    norm1="layer.{i}.norm1",
    norm2="layer.{i}.norm2",
    qkv=tuple(f"layer.{{i}}.attention.{part}_proj" for part in "qkv"),
    q_bias="layer.{i}.attention.q_proj.bias",
    v_bias="layer.{i}.attention.v_proj.bias",
    out="layer.{i}.attention.o_proj",
    scale1="layer.{i}.layer_scale1.lambda1",
    scale2="layer.{i}.layer_scale2.lambda1",
    fc1="layer.{i}.mlp.up_proj",
    gate="layer.{i}.mlp.gate_proj",
    fc2="layer.{i}.mlp.down_proj",
    norm="norm",
)
_DEFAULTS = dict(
    hidden_act="gelu",
    layer_norm_eps=1e-5,
    num_attention_heads=6,
    rope_theta=100.0,
    image_size=224,
)


def _timm_settings(config):
    name = timm_config.architecture_of(config) or ""
    known, (epsilon, constants) = next(
        (row for row in _KNOWN.items() if re.fullmatch(row[0], name)),
        ("", (None, {})),
    )
    found = timm.settings(config, known or "-", epsilon)
    found |= constants
    if name.startswith("vit_pe_"):
        found |= _of_perception_encoder(name)
    arguments = configs.section(config, "model_args")
    if configs.flag(arguments, "rope_rotate_half") is False and (
        found.get("rotary") == "centered"
    ):
        raise ValueError("rope_rotate_half=False is not supported")
    given = configs.known(
        rotary_theta=configs.number(arguments, "rope_temperature", 0.0, 1e9),
        rotary_reference=configs.pair(arguments, "ref_feat_shape"),
        rotary_offset=arguments.get("rope_grid_offset"),
        rotary_order=configs.choice(
            arguments, "rope_grid_indexing", ("ij", "xy")
        ),
        pooling_heads=configs.integer(arguments, "attn_pool_num_heads"),
    )
    return found | given


def _of_perception_encoder(name):
    """Returns the grid of its positions, and the heads of its pooling."""
    patch, size = map(int, re.search(r"patch(\d+)_(\d+)", name).groups())
    return dict(
        rotary_reference=(size // patch,) * 2,
        rotary_offset=0.0 if "gigantic" in name else 1.0,
        pooling_heads=8,
    )


def _architecture(metadata):
    """Returns the name of an architecture of timm with the same constants."""
    if metadata["pre_norm"]:
        return "vit_pe_core_base_patch16_224"
    if metadata["rotary"] == "centered":
        return "vit_small_patch16_dinov3"
    if metadata["rotary"] == "mixed":
        return "vit_small_patch16_rope_mixed_224"
    if metadata["rotary"] == "none":
        return "eva_giant_patch14_224"
    if metadata["qkv_bias"] == "qkv":
        return "vit_small_patch16_rope_224"
    if metadata["layer_scale"]:
        return "vit_medium_patch16_rope_reg1_gap_256"
    return "eva02_tiny_patch14_224"


def _timm_config_of(metadata):
    classifier = metadata["classifier"]
    name = _architecture(metadata)
    arguments = dict(
        class_token=metadata["class_token"],
        num_reg_tokens=metadata["num_registers"],
        use_abs_pos_emb=metadata["positions"],
        no_embed_class=not metadata["position_prefix"],
        qkv_bias=metadata["qkv_bias"] != "none",
        qkv_fused="separate" not in _forms(metadata),
        swiglu_mlp=metadata["activation"] == "swiglu",
        # timm packs the halves of a SwiGLU, unless it aligns their width.
        swiglu_align_to=0 if "packed" in _forms(metadata) else 1,
        scale_mlp=metadata["mlp_norm"],
        scale_attn_inner=metadata["attention_norm"],
        init_values=metadata["layer_scale"] or None,
        mlp_ratio=metadata["mlp_dim"] / metadata["hidden_size"],
        use_fc_norm=classifier == "gap_norm",
        use_post_transformer_norm=classifier
        not in ("gap_norm", "gap_unnormed"),
    )
    if metadata["activation"] not in ("gelu", "swiglu"):
        raise ValueError(
            "`activation` must be 'gelu' or 'swiglu' in timm's Eva. Received: "
            f"activation={metadata['activation']!r}"
        )
    if metadata["rotary"] not in ("none", "mixed"):
        reference = metadata["rotary_reference"]
        arguments |= dict(
            rope_temperature=metadata["rotary_theta"],
            rope_grid_offset=metadata["rotary_offset"],
            rope_grid_indexing=metadata["rotary_order"],
            ref_feat_shape=reference and list(reference),
        )
    if classifier == "map":
        arguments["attn_pool_num_heads"] = (
            metadata["pooling_heads"] or metadata["num_heads"]
        )
    return timm.config_of(metadata, name, **arguments)


def _forms(metadata):
    """Returns the forms in which timm stores a model (`timm.restore`)."""
    forms = set()
    if metadata["mlp_norm"]:
        forms.add("separate")
    elif not metadata["layer_scale"]:
        forms.add("packed")
    return frozenset(forms)


def _settings(config):
    found = transformers.settings(config, dict(dinov3_vit=_DEFAULTS))
    if config.get("model_type") == "dinov3_vit":
        config = _DEFAULTS | config
    rope = configs.section(config, "rope_parameters")
    theta = configs.number(rope | config, "rope_theta", 0.0, 1e9)
    return found | configs.known(rotary="centered", rotary_theta=theta)


def _flatten(arrays, metadata):
    return transformers.flatten(
        arrays, ("dinov3_vit.", "model."), r".*embeddings\.mask_token"
    )


def _config_of(metadata):
    gated = metadata["activation"] == "swiglu"
    biases = metadata["qkv_bias"]
    return transformers.config_of(
        metadata,
        "dinov3_vit",
        "DINOv3ViTModel",
        num_register_tokens=metadata["num_registers"],
        rope_theta=metadata["rotary_theta"],
        use_gated_mlp=gated,
        query_bias=biases != "none",
        key_bias=biases == "qkv",
        value_bias=biases != "none",
        layerscale_value=metadata["layer_scale"],
    )


def _refused(metadata, format):
    has = {
        "head": metadata["classes"] is not None,
        "no class token": not metadata["class_token"],
        f"classifier={metadata['classifier']!r}": (
            metadata["classifier"] != "token"
        ),
        f"rotary={metadata['rotary']!r}": metadata["rotary"] != "centered",
        "learned positions": metadata["positions"],
        "no LayerScale": not metadata["layer_scale"],
        "norms within a block": metadata["mlp_norm"]
        or metadata["attention_norm"],
        "a norm before the blocks": metadata["pre_norm"],
    }
    return transformers.refused(metadata, format) + [
        name for name, value in has.items() if value
    ]


def _differences(metadata):
    epsilon = 1e-6
    if metadata["pre_norm"] or metadata["rotary"] == "centered":
        epsilon = 1e-5
    return timm.differences(metadata, epsilon)


def _derived(metadata):
    return dict(patch_bias=not metadata["pre_norm"])


def _timm(requires, forbids, **kwargs):
    return timm.with_heads(
        encoder.formats(
            timm.EVA_NAMES,
            fields=_FIELDS,
            derived=_derived,
            requires=(
                r"(module\.)?patch_embed\.proj\.weight",
                r"(module\.)?blocks\.0\.norm1\.weight",  # ResMLP has alpha
                *requires,
            ),
            forbids={
                r".*\.attn\.[qk]_norm\..*": "a Sapiens 2: norms of queries and "
                "keys are",
                r".*relative_position_bias_table": "rotary positions with "
                "tables of relative positions are",
                **forbids,
            },
            read_config=_timm_settings,
            flatten=timm.flatten,
            restore=timm.restore,
            **kwargs,
        ),
        rotary="'centered' (DINOv3), 'index' (EVA-02), 'mixed' or 'none'",
    )


_OTHERS = {
    r".*(gamma_1|ls1\.gamma|attn\.q_bias|reg_token)": "a norm before the "
    "blocks with LayerScale or registers is",
}
FORMATS = {
    "timm": _timm(
        (r"(module\.)?blocks\.0\.(gamma_1|attn\.(q_bias|q_proj\.weight))",),
        {},
        naming_schemes={"timm": _forms},
        config_of=_timm_config_of,
        refused=timm.refused,
        differences=_differences,
    ),
    # Perception Encoders: with attention pooling, and without a last norm.
    "timm_pe_core": _timm((r"norm_pre\.weight", r"attn_pool\.latent"), _OTHERS),
    "timm_pe_spatial": _timm(
        (r"norm_pre\.weight",),
        {
            r"(fc_)?norm\.weight": "a norm before the blocks with parallel "
            "branches is"
        }
        | _OTHERS,
    ),
    "huggingface": encoder.formats(
        _NAMES,
        fields=_FIELDS,
        requires=(
            r".*embeddings\.patch_embeddings\.weight",
            r".*layer\.0\.layer_scale1\.lambda1",
        ),
        read_config=_settings,
        flatten=_flatten,
        restore=lambda arrays, prefix: transformers.restore(arrays, prefix, ()),
        naming_schemes={"huggingface": ""},
        config_of=_config_of,
        refused=_refused,
    ),
}
FORMATS["keras_vit"] = encoder.keras_files(
    FORMATS["timm"], r"encoderblock_0/(LayerScale_0/0|MlpBlock_0/Gate/0)"
)
