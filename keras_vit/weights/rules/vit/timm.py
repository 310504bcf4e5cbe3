"""Names of timm's VisionTransformer and its hybrids, and of DeiT.

Checked against timm/models/vision_transformer.py and
vision_transformer_hybrid.py of timm 1.0.
"""

import math
import re

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, table, timm_config
from keras_vit.weights.rules.encoder import rows, timm
from keras_vit.weights.rules.vit import timm_names
from keras_vit.weights.rules.vit.architecture import (
    add_class_row,
    fields,
    is_published,
    merge_class_row,
)

_BLOCK = re.compile(r"blocks\.(\d+)\.")
_UNIT = re.compile(r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\.")
_BACKBONE = "patch_embed.backbone."
# timm builds these architectures, with sizes replaced by `model_args`.
_PLAIN = "vit_base_patch16_224"
ARCHITECTURES = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], bool]:
    """Add a row for the class token to position embeddings without one.

    If nothing specifies the grid, it is assumed to be square, and the number of
    rows decides: a square, or one row more.

    Returns:
        The arrays, and whether the row was missing (timm's `no_embed_class`).
    """
    arrays = dict(arrays)
    arrays.pop("mask_token", None)  # of training alone
    # Without a config, a state dict of published sizes has the constants of
    # timm's names. All with a class token use erf; some without one do not.
    width = arrays["patch_embed.proj.weight"].shape[0]
    published = is_published(width, table.count(arrays, _BLOCK))
    if published and not metadata.get("architecture"):
        metadata.setdefault("layer_norm_epsilon", 1e-6)
        if "cls_token" in arrays:
            metadata.setdefault("gelu_approximate", False)
    positions = arrays.get("pos_embed")
    if positions is None or "cls_token" not in arrays:
        return arrays, False
    if len(positions.shape) != 3:
        raise ValueError(
            f"expected `pos_embed` of 3 axes; found shape {positions.shape}"
        )
    tokens = positions.shape[1]
    grid = metadata.get("grid")
    if grid is None and "image_size" in metadata:
        kernel = arrays["patch_embed.proj.weight"].shape[2:]
        scale = _stem_scale(arrays)
        size = zip(metadata["image_size"], kernel, strict=True)
        grid = tuple(n // (scale * k) for n, k in size)
    apart = metadata.pop("no_embed_class", None)
    if apart is None and grid is not None:
        apart = math.prod(grid) == tokens
    if apart is None:
        apart = math.isqrt(tokens) ** 2 == tokens
        metadata["patch_counts"] = (tokens, tokens - 1)
    if apart:
        add_class_row(arrays, "pos_embed")
    return arrays, apart


def _stem_scale(names):
    if not any(name.startswith(_BACKBONE) for name in names):
        return 1
    stages = {match[1] for match in map(_UNIT.match, names) if match}
    return 2 ** (1 + max(1, len(stages)))


def restore(arrays: dict, apart: bool) -> dict:
    """Invert `flatten`."""
    arrays = dict(arrays)
    if apart:
        merge_class_row(arrays, "pos_embed", "cls_token")
    return arrays


def read_architecture(arrays: dict[str, Stored], config: dict) -> dict:
    """Return the metadata that names and config show."""
    hybrid = any(name.startswith(_BACKBONE) for name in arrays)
    token, norm = "cls_token" in arrays, "fc_norm.weight" in arrays
    pooled = "gap_norm" if norm else "token" if token else "gap"
    arguments = configs.section(config, "model_args")
    implied = "token" if pooled == "token" else "avg"
    class_token = configs.flag(arguments, "class_token")
    if class_token is not None and class_token != token:
        raise ValueError(
            f"its config contradicts its arrays: class_token={class_token}"
        )
    pooling = (
        arguments.get("global_pool") or config.get("global_pool") or implied
    )
    if pooling != implied:
        raise ValueError(
            f"expected global_pool {implied!r} "
            f"{'with' if token else 'without'} a class token and "
            f"{'with' if norm else 'without'} fc_norm; found {pooling!r}"
        )
    return dict(
        num_layers=table.count(arrays, _BLOCK),
        resnet_depths=(table.depths(arrays, _UNIT) if hybrid else None),
        pooling=pooled,
        class_token=True if token and norm else None,
        representation_size="pre_logits.fc.bias" in arrays,
        classes="head.bias" in arrays,
    )


def settings(config: dict) -> dict:
    """Return the numerics of timm and the metadata in its config."""
    arguments = configs.section(config, "model_args")
    name = timm_config.architecture_of(config) or ""
    activation = configs.choice(arguments, "act_layer", ("gelu", "gelu_tanh"))
    heads, width = timm_names.HEADS_AND_WIDTH.get(name, (None, None))
    found = timm_config.read(config) | dict(
        resnet_numerics="timm",
        num_heads=configs.integer(arguments, "num_heads") or heads,
        hidden_size=configs.integer(arguments, "embed_dim") or width,
        num_layers=configs.integer(arguments, "depth"),
        patch_size=configs.pair(arguments, "patch_size"),
        no_embed_class=configs.flag(arguments, "no_embed_class"),
    )
    ratio = configs.number(arguments, "mlp_ratio", 0.0, 1000.0)
    if ratio and found["hidden_size"]:
        found["mlp_dim"] = int(found["hidden_size"] * ratio)
    # Architectures of other names may compute something different.
    if heads:
        found["layer_norm_epsilon"] = 1e-6
    if activation:
        found["gelu_approximate"] = activation == "gelu_tanh"
    elif heads:
        found["gelu_approximate"] = bool(timm.TANH.fullmatch(name))
    if heads and found["no_embed_class"] is None:
        apart = timm_names.NO_EMBED_CLASS.fullmatch(name)
        found["no_embed_class"] = bool(apart)
    return configs.known(**found)


def config_of(metadata: dict) -> dict:
    """Return the config.json of timm for a model; inverts `settings`."""
    pooling, units = metadata["pooling"], metadata.get("resnet_depths")
    approximate = metadata["gelu_approximate"]
    return timm.config_of(
        metadata | dict(activation="gelu_tanh" if approximate else "gelu"),
        _PLAIN if units is None else ARCHITECTURES.get(units, _PLAIN),
        class_token=fields(metadata)["class_token"],
        global_pool="token" if pooling == "token" else "avg",
        fc_norm=pooling == "gap_norm",
    )


def rules(metadata: dict) -> list[table.Rule]:
    """Return the expanded table of a model."""
    unit = "resnet/block{b}_unit{u}/"
    their_unit = f"{_BACKBONE}stages.{{b0}}.blocks.{{u0}}."
    # Without stages, timm's root is a plain sequence, not a ResNet with a stem.
    root = _BACKBONE + ("stem." if metadata.get("resnet_depths") else "")
    convolutions = {
        "resnet/conv_root": f"{root}conv",
        f"{unit}conv_proj": f"{their_unit}downsample.conv",
    }
    norms = {
        "resnet/gn_root": f"{root}norm",
        f"{unit}gn_proj": f"{their_unit}downsample.norm",
    }
    for n in (1, 2, 3):
        convolutions[f"{unit}conv{n}"] = f"{their_unit}conv{n}"
        norms[f"{unit}gn{n}"] = f"{their_unit}norm{n}"
    stem = table.layer_rows(convolutions, table.TORCH_CONVOLUTION, "kernel")
    stem += table.layer_rows(norms, table.TORCH_NORM)
    names = timm.NAMES | dict(pre_logits="pre_logits.fc")
    return rows.rules(names, fields(metadata), stem)


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that timm cannot store."""
    units = metadata.get("resnet_depths")
    return table.listed(
        dict(
            pre_logits=metadata.get("representation_size"),
            attention_pooling=metadata.get("pooling") == "map",
            stem_of_other_units=units not in (None, *ARCHITECTURES),
            stem_of_other_width=metadata.get("resnet_width") not in (None, 1),
        )
    )


def differences(metadata: dict) -> list[str]:
    """List what timm computes differently."""
    hybrid = metadata.get("resnet_depths") is not None
    return timm.differences(metadata, 1e-6) + table.listed(
        {
            "it has other epsilons in the stem": (
                hybrid and metadata["resnet_numerics"] != "timm"
            )
        }
    )
