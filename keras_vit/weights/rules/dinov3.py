"""DINOv3 and ViTs with rotary positions, in timm and transformers.

Checked against timm/models/eva.py of timm 1.0, and dinov3_vit of transformers
5.23.
"""

import dataclasses
import re

from keras_vit.weights.rules import configs, heads, patches, table, timm_config
from keras_vit.weights.rules.encoder import formats, rotary, timm, transformers

TITLE = "DINOv3 or ViT with rotary positions"
grid = patches.grid
RESIZES = formats.RESIZES
# Properties of models whose files do not state them.
UNSTATED: dict = dict(
    position_prefix=0,
    num_full_blocks=0,
    rotary_reference=None,
    rotary_offset=0.0,
    rotary_order="ij",
)
_FIELDS = (
    *("class_token", "num_registers", "positions", "position_prefix"),
    *("activation", "qkv_bias", "layer_scale", "rotary", "norm"),
    *("query_key_norm", "mlp_scale", "num_kv_heads"),
)
# Pattern of timm's architectures -> epsilon, and constants of their positions.
_KNOWN: dict[str, tuple[float, dict]] = {
    r"vit_\w+_dinov3(_qkvb)?|vit_\w+_lingbot": (
        1e-5,
        dict(rotary="centered", rotary_theta=100.0),
    ),
    r"vit_\w+_sapiens2": (1e-6, dict(rotary="centered", rotary_theta=100.0)),
    r"vit_\w+_rope_reg\d_gap_\d+": (
        1e-6,
        dict(rotary.INDEX, rotary_reference=(16, 16)),
    ),
    r"vit_\w+_rope_mixed_(ape_)?\d+": (
        1e-6,
        dict(rotary="mixed", rotary_order="xy"),
    ),
    r"vit_\w+_rope_(ape_)?\d+": (
        1e-6,
        dict(rotary="index", rotary_theta=100.0, rotary_order="xy"),
    ),
}
NAMES = transformers.DINOV2_NAMES | dict(
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
# Patterns of the authors' names of Sapiens 2 -> timm's.
_SAPIENS2 = {
    r"storage_tokens": "reg_token",
    r"patch_embed\.projection\.": "patch_embed.proj.",
    r"attn\.w([qkv])\.": r"attn.\1_proj.",
    r"attn\.gamma\.weight": "gamma_1",
    r"\.ffn\.w12\.": ".mlp.fc1.",
    r"\.ffn\.w3\.": ".mlp.fc2.",
    r"\.ln([12])\.": r".norm\1.",
    r"^ln1\.": "norm.",
}
_ROTARY = (
    "'centered' (DINOv3), 'index' (timm's rope) or 'mixed'. A file without "
    "rotary positions, such as a DeiT III of its authors, opens with timm's "
    "names: `ls1.gamma` for `gamma_1`, `ls2.gamma` for `gamma_2`"
)
_DEFAULTS = transformers.defaults(
    1e-5, heads=6, rope_theta=100.0, image_size=224
)
_KINDS = dict(dinov3_vit=_DEFAULTS)


def _architecture(metadata):
    """Return the name of an architecture of timm with the same constants."""
    if metadata["norm"] == "rms":
        return "vit_base_patch16_sapiens2"
    if metadata["rotary"] == "centered":
        return "vit_small_patch16_dinov3"
    if metadata["rotary"] == "mixed":
        return "vit_small_patch16_rope_mixed_224"
    if metadata["qkv_bias"] == "qkv":
        return "vit_small_patch16_rope_224"
    return "vit_medium_patch16_rope_reg1_gap_256"


def _timm_forms(metadata):
    rms = metadata["norm"] == "rms"
    return timm.forms(metadata, *(["separate"] if rms else []))


def _timm_config_of(metadata):
    pooling = metadata["pooling"]
    heads, depth = metadata["num_heads"], metadata["num_layers"]
    full = metadata["num_full_blocks"]
    grouped = [metadata["num_kv_heads"] or heads] * (depth - 2 * full)
    arguments: dict = dict(
        num_kv_heads=[heads] * full + grouped + [heads] * full,
        attn_only_layer_scale=not metadata["mlp_scale"],
    )
    return timm.config_of(
        metadata,
        _architecture(metadata),
        class_token=metadata["class_token"],
        num_reg_tokens=metadata["num_registers"],
        use_abs_pos_emb=metadata["positions"],
        no_embed_class=timm.is_class_apart(metadata),
        qkv_bias=metadata["qkv_bias"] != "none",
        swiglu_mlp=metadata["activation"] == "swiglu",
        # timm packs the halves of a SwiGLU, unless it aligns their width.
        swiglu_align_to=1,
        init_values=metadata["layer_scale"] or None,
        use_fc_norm=pooling == "gap_norm",
        use_post_transformer_norm=pooling != "gap_norm",
        **rotary.arguments(metadata),
        **(arguments if metadata["norm"] == "rms" else {}),
    )


def _timm_refused(metadata, format):
    rms, scale = metadata["norm"] == "rms", metadata["layer_scale"]
    normed = metadata["query_key_norm"]
    name = _architecture(metadata)
    index = name.endswith("reg1_gap_256")
    # Biases that the attention of the architecture does not have.
    biases = "qv" if rms or "_rope_" in name and not index else "qkv"
    has = {
        # timm takes arguments of None from the architecture.
        "no LayerScale": not scale,
        "rotary positions without rotary_reference": (
            index and not metadata["rotary_reference"]
        ),
        "RMSNorm without rotary='centered' and norms of queries and keys": (
            rms and not (metadata["rotary"] == "centered" and normed)
        ),
        f"qkv_bias={metadata['qkv_bias']!r} in {name!r}": (
            metadata["qkv_bias"] == biases
        ),
        "norms of queries and keys, shared keys and values, or LayerScale of "
        "attention alone, without RMSNorm": not rms
        and (normed or metadata["num_kv_heads"] or not metadata["mlp_scale"]),
    }
    return timm.refused_by_eva(metadata, format) + table.listed(has)


def _settings(config):
    found = transformers.settings(config, _KINDS)
    defaults = _DEFAULTS if config.get("model_type") == "dinov3_vit" else {}
    rope = configs.section(config, "rope_parameters")
    config = defaults | rope | config
    if configs.flag(config, "use_gated_mlp"):
        heads.refuse(config, hidden_act="silu")
    theta = configs.number(config, "rope_theta", 0.0, 1e9)
    return found | configs.known(rotary="centered", rotary_theta=theta)


def _flatten(arrays, metadata):
    return transformers.flatten(arrays, ("dinov3_vit.", "model."))


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
        f"pooling={metadata['pooling']!r}": (metadata["pooling"] != "token"),
        f"rotary={metadata['rotary']!r}": metadata["rotary"] != "centered",
        "rotary_order='xy'": metadata["rotary_order"] == "xy",
        "learned positions": metadata["positions"],
        "no LayerScale": not metadata["layer_scale"],
        "norm='rms'": metadata["norm"] == "rms",
        "norms of queries and keys": metadata["query_key_norm"],
        "LayerScale of attention alone": not metadata["mlp_scale"],
        "shared keys and values": metadata["num_kv_heads"],
    }
    found = transformers.refused(metadata, format, any_shape=True)
    return found + table.listed(has)


def _flatten_sapiens2(arrays, metadata):
    """Give the authors' names of Sapiens 2 those of timm."""
    arrays = {
        name: stored
        for name, stored in arrays.items()
        if name != "mask_token" and "rope" not in name
    }

    def rename(name):
        for old, new in _SAPIENS2.items():
            name = re.sub(old, new, name)
        return name

    return timm.flatten(table.rename(arrays, rename), metadata)


def _differences(metadata):
    centered = metadata["rotary"] == "centered"
    tuned = centered and metadata["norm"] == "layer"
    return timm.differences(metadata, 1e-5 if tuned else 1e-6)


FORMATS = {
    "timm": formats.timm_format(
        _timm_config_of,
        names=timm.EVA_NAMES,
        fields=_FIELDS,
        requires=(
            r"blocks\.0\.norm1\.weight",  # ResMLP has alpha
            r"blocks\.0\.gamma_1",
        ),
        forbids={
            r".*relative_position_bias_table": "rotary positions with "
            "tables of relative positions are",
            r"norm_pre\..*": "registers with a norm before the blocks are",
        },
        required=dict(rotary=_ROTARY),
        forms=_timm_forms,
        known=_KNOWN,
        refused=_timm_refused,
        differences=_differences,
    ),
    "huggingface": formats.transformers_format(
        NAMES,
        _config_of,
        fields=_FIELDS,
        requires=(
            r".*embeddings\.patch_embeddings\.weight",
            r".*layer\.0\.layer_scale1\.lambda1",
        ),
        defaults=_KINDS,
        read_config=_settings,
        flatten=_flatten,
        resampling=timm_config.resampling,
        naming_schemes={"huggingface": ""},
        refused=_refused,
        heads=(),
    ),
}
FORMATS["sapiens2"] = dataclasses.replace(
    FORMATS["timm"],
    requires=(r"storage_tokens", r"blocks\.0\.attn\.wq\.weight"),
    flatten=_flatten_sapiens2,
    naming_schemes={},
)
FORMATS["keras_vit"] = formats.keras_files(
    FORMATS["timm"], r"encoderblock_0/LayerScale_0/0"
)
