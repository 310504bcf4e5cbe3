"""DINOv2, DeiT III and ViTs with registers, in timm and transformers.

Checked against timm/models/vision_transformer.py of timm 1.0, and dinov2 and
dinov2_with_registers of transformers 5.23.
"""

import re

import numpy as np

from keras_vit.weights.rules import configs, patches, table
from keras_vit.weights.rules.encoder import formats, timm, transformers

TITLE = "DINOv2 or ViT with registers"
grid = patches.grid
RESIZES = formats.RESIZES
# Of files of transformers, which do not state it.
UNSTATED = dict(post_norm=False)
_FIELDS = (
    *("class_token", "num_registers", "position_prefix", "activation"),
    *("layer_scale", "qkv_bias", "parallel", "pre_norm", "patch_bias"),
    *("norm", "query_key_norm"),
)
_KNOWN = (
    r"deit3_.*|vit_\w+_patch14_(reg\d_)?(dinov2|tipsv2)|vit_\w+_gap_\d+"
    r"|vit_\w+_reg\d_map_\d+|vit_\w+_radio_v\d|test_vit2|vit_intern300m_patch14_448"
    r"|vit_base_patch16_plus_240|vit_base_patch32_plus_256"
    r"|vit_small_patch16_36x1_224|vit_\w+_miil|vit_\w+_rpn_\d+"
    r"|vit_\w+_xp_\d+|test_vit4"
)
# Patterns of the authors' names -> timm's.
_AUTHORS = {
    r"^register_tokens$": "reg_token",
    r"\.mlp\.w12\.": ".mlp.fc1.",
    r"\.mlp\.w3\.": ".mlp.fc2.",
}
_PREFIXES = ("dinov2_with_registers.", "dinov2.")
_DEFAULTS = transformers.defaults(1e-6)
_KINDS = dict(dinov2=_DEFAULTS, dinov2_with_registers=_DEFAULTS)
# What has other parts, under names that this family has.
_FORBIDS = {
    r"patch_embed\.norm\..*": "an AIMv2, whose norm of patches is",
    r".*\.attn\.([qv]_bias|temperature)": "an EVA or XCiT, whose attention is",
    r"(blocks_token_only|neck\.).*": "class attention or a neck is",
    r".*\.gamma_1": "LayerScale of timm's Eva is",
    r"input_conditioner\..*": "a RADIO, whose input conditioner is",
    r"patch_embed\.(cls_token|pos_embed|patch_generator.*)": "a RADIO, whose "
    "patch generator is",
    r"patch_embed\.backbone\..*": "a hybrid stem with LayerScale is",
    r".*\.lambda_[qk]\d": "differential attention is",
    r".*\.attns\.0\..*": "a timm ViT of parallel branches: these are",
    r".*\.out_proj\..*": "one projection of parallel attention and MLP is",
}


def family_of(metadata: dict) -> str:
    """Return the family of a checkpoint: DeiT III has no position in front."""
    has_registers = metadata["num_registers"] or not metadata["class_token"]
    is_plain = metadata["norm"] == "layer" and not metadata["parallel"]
    is_deit3 = metadata["layer_scale"] and not metadata["position_prefix"]
    return "deit3" if is_deit3 and is_plain and not has_registers else "dinov2"


def _config_of(metadata):
    """Return a config of the architecture whose MLP is the same."""
    swiglu = metadata["activation"] == "swiglu"
    name = "vit_base_patch14_dinov2"
    if metadata["parallel"]:
        name = "vit_pwee_patch16_reg1_gap_256"
        if metadata["norm"] == "rms":
            name = "vit_base_patch16_xp_224"
    elif metadata["norm"] == "rms":
        name = "test_vit4"
    elif metadata["post_norm"]:
        name = "vit_base_patch16_rpn_224"
    elif swiglu:
        name = "vit_giant_patch14_dinov2"
    elif not metadata["class_token"]:
        name = "vit_medium_patch16_reg4_gap_256"
    elif not metadata["position_prefix"] and not metadata["num_registers"]:
        name = "deit3_base_patch16_224"
    arguments = dict(
        class_token=metadata["class_token"],
        reg_tokens=metadata["num_registers"],
        no_embed_class=timm.is_class_apart(metadata),
        fc_norm=metadata["pooling"] == "gap_norm",
        qkv_bias=metadata["qkv_bias"] == "qkv",
        pre_norm=metadata["pre_norm"],
        qk_norm=metadata["query_key_norm"],
        # timm counts both halves of a SwiGLU.
        mlp_ratio=(1 + swiglu) * metadata["mlp_dim"] / metadata["hidden_size"],
    )
    # 0 gives parallel blocks a scale of zeros.
    if metadata["layer_scale"] or not metadata["parallel"]:
        arguments["init_values"] = metadata["layer_scale"]
    if metadata["pooling"].endswith("_unnormed"):
        arguments["final_norm"] = False
    return timm.config_of(metadata, name, **arguments)


def _timm_refused(metadata, format):
    rms, swiglu = metadata["norm"] == "rms", metadata["activation"] == "swiglu"
    scale, parallel = metadata["layer_scale"], metadata["parallel"]
    has = {
        "qkv_bias='qv'": metadata["qkv_bias"] == "qv",
        "post_norm=True with LayerScale, RMSNorm or SwiGLU": (
            metadata["post_norm"] and (scale or rms or swiglu)
        ),
        "SwiGLU in parallel or with RMSNorm": swiglu and (parallel or rms),
        "parallel=True with LayerScale and RMSNorm, or neither": (
            parallel and rms == (scale > 0)
        ),
    }
    return timm.refused_gated(metadata, format) + table.listed(has)


def _timm_flatten(arrays, metadata):
    """Give the authors' own names those of timm."""

    def rename(name):
        for old, new in _AUTHORS.items():
            name = re.sub(old, new, name)
        return name

    return timm.flatten(table.rename(arrays, rename), metadata)


def _settings(config):
    swiglu = configs.flag(config, "use_swiglu_ffn")
    found = transformers.settings(config, _KINDS)
    if swiglu:
        found["activation"] = "swiglu"
    return found


def _flatten(arrays, metadata):
    """Cut a packed SwiGLU; a classifier reads the mean of patches as well."""
    arrays, prefix = transformers.flatten(arrays, _PREFIXES)
    if "classifier.weight" in arrays:
        metadata["global_pool"] = "token_and_gap"
    cut_swiglu(arrays)
    return arrays, (prefix, False)


def cut_swiglu(arrays: dict) -> None:
    """Cut each packed SwiGLU into "gate" and "fc1"."""
    for name in [n for n in arrays if ".mlp.weights_in." in n]:
        gate, fc1, fc2, out = _parts_of(name)
        size = arrays[name].shape[0] // 2
        table.cut(arrays, name, {gate: size, fc1: size})
        table.add(arrays, fc2, arrays.pop(out))


def join_swiglu(arrays: dict) -> None:
    """Invert `cut_swiglu`."""
    for name in [n for n in arrays if ".mlp.gate." in n]:
        packed = name.replace("mlp.gate", "mlp.weights_in")
        gate, fc1, fc2, out = _parts_of(packed)
        table.join(arrays, [gate, fc1], packed)
        arrays[out] = arrays.pop(fc2)


def _parts_of(name):
    """Return the names of a packed SwiGLU's parts, and of its second layer."""
    parts = ("gate", "fc1", "fc2", "weights_out")
    return tuple(name.replace("weights_in", part) for part in parts)


def _restore(arrays, scheme):
    """Invert `_flatten`, and add a position of zeros for the class token."""
    prefix, adds_row = scheme
    arrays = dict(arrays)
    join_swiglu(arrays)
    if adds_row:
        name = "embeddings.position_embeddings"
        arrays[name] = np.pad(arrays[name], ((0, 0), (1, 0), (0, 0)))
    return transformers.restore(arrays, prefix, ("classifier.",))


def _scheme(metadata):
    name = "dinov2_with_registers" if metadata["num_registers"] else "dinov2"
    prefix = "" if metadata["classes"] is None else f"{name}."
    return prefix, not metadata["position_prefix"]


def _transformers_config_of(metadata):
    registers, top = metadata["num_registers"], metadata["classes"] is not None
    config = transformers.config_of(
        metadata,
        "dinov2_with_registers" if registers else "dinov2",
        ("Dinov2WithRegisters" if registers else "Dinov2")
        + ("ForImageClassification" if top else "Model"),
        qkv_bias=metadata["qkv_bias"] == "qkv",
        layerscale_value=metadata["layer_scale"],
        **(dict(num_register_tokens=registers) if registers else {}),
        **({} if registers else dict(use_mask_token=False)),
        **(transformers.labels(metadata) if top else {}),
    )
    return with_ratio(config, metadata)


def with_ratio(config: dict, metadata: dict) -> dict:
    """Return a config of which MLPs have their width by a ratio."""
    swiglu = metadata["activation"] == "swiglu"
    del config["intermediate_size"]
    config |= dict(mlp_ratio=_mlp_ratio(metadata), use_swiglu_ffn=swiglu)
    return config | (dict(hidden_act="gelu") if swiglu else {})


def _mlp_ratio(metadata):
    """Return the ratio of widths from which transformers computes them."""
    width, hidden = metadata["hidden_size"], metadata["mlp_dim"]
    return 4 if metadata["activation"] == "swiglu" else hidden // width


def mlp_dim(metadata: dict) -> int:
    """Return the width that transformers computes from the ratio."""
    expected = metadata["hidden_size"] * _mlp_ratio(metadata)
    if metadata["activation"] == "swiglu":
        expected = (int(expected * 2 / 3) + 7) // 8 * 8
    return expected


def _transformers_refused(metadata, format):
    top = metadata["classes"] is not None
    hidden = metadata["mlp_dim"]
    wanted = "token_and_gap" if top else "token"
    has = {
        "no class token": not metadata["class_token"],
        f"pooling={metadata['pooling']!r}": (metadata["pooling"] != wanted),
        "no LayerScale": not metadata["layer_scale"],
        "qkv_bias='qv'": metadata["qkv_bias"] == "qv",
        "post_norm=True": metadata["post_norm"],
        "parallel=True": metadata["parallel"],
        "a norm before the blocks": metadata["pre_norm"],
        "norm='rms'": metadata["norm"] == "rms",
        "norms of queries and keys": metadata["query_key_norm"],
        "positions of registers": metadata["position_prefix"] > 1,
        f"mlp_dim={hidden}": hidden != mlp_dim(metadata),
    }
    return transformers.refused(metadata, format) + table.listed(has)


FORMATS = {
    "timm": formats.timm_format(
        _config_of,
        known=_KNOWN,
        fields=_FIELDS,
        derived=lambda metadata: dict(patch_bias=not metadata["pre_norm"]),
        requires=(
            r"(blocks\.0\.(ls1\.gamma"
            r"|in_proj\.weight|attn\.q_norm\.weight"
            r"|attn\.qkv\.weight without bias)|reg_token)",
            r"pos_embed",
        ),
        forbids=_FORBIDS,
        required=dict(post_norm=timm.POST_NORM),
        flatten=_timm_flatten,
        forms=lambda metadata: timm.forms(
            metadata, "parallel" if metadata["parallel"] else "packed"
        ),
        refused=_timm_refused,
    ),
    "huggingface": formats.transformers_format(
        transformers.DINOV2_NAMES,
        _transformers_config_of,
        fields=_FIELDS,
        requires=(
            r".*embeddings\.patch_embeddings\.projection\.weight",
            r".*encoder\.layer\.0\.layer_scale1\.lambda1",
        ),
        defaults=_KINDS,
        read_config=_settings,
        flatten=_flatten,
        restore=_restore,
        resampling=lambda metadata: (
            "antialiased_bicubic" if metadata["num_registers"] else "bicubic"
        ),
        naming_schemes={"huggingface": _scheme},
        refused=_transformers_refused,
    ),
}
FORMATS["keras_vit"] = formats.keras_files(
    FORMATS["timm"],
    r"posembed_input/0",
    r"encoderblock_0/LayerScale_0/0|register_tokens/0",
)
