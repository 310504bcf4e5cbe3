"""Names of timm's VisionTransformer and its hybrids, and of DeiT.

Checked against timm/models/vision_transformer.py and
vision_transformer_hybrid.py of timm 1.0.
"""

import math
import re

import numpy as np

from keras_vit.weights.rules import configs, table, timm_config
from keras_vit.weights.rules.vit import timm_names
from keras_vit.weights.rules.vit.architecture import (
    Architecture,
    expand,
    fuse_heads,
    is_published,
    part_heads,
)
from keras_vit.weights.stored import Stored

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
    arrays = table.rename(arrays, lambda name: name.removeprefix("module."))
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
    _, tokens, width = positions.shape
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
    if apart:
        arrays["pos_embed"] = positions.map(
            lambda a: np.concatenate([np.zeros_like(a[:, :1]), a], axis=1),
            (1, tokens + 1, width),
        )
    return arrays, apart


def _stem_scale(names):
    if not any(name.startswith(_BACKBONE) for name in names):
        return 1
    stages = {match[1] for match in map(_UNIT.match, names) if match}
    return 2 ** (1 + max(1, len(stages)))


def restore(
    arrays: dict[str, np.ndarray], apart: bool
) -> dict[str, np.ndarray]:
    """Invert `flatten`."""
    arrays = dict(arrays)
    if apart:
        first, grid = np.split(arrays["pos_embed"], [1], axis=1)
        if first.any():
            arrays["cls_token"] = arrays["cls_token"] + first
        arrays["pos_embed"] = grid
    return arrays


def read_architecture(arrays: dict[str, Stored], config: dict) -> Architecture:
    """Return the metadata that names and config show."""
    units = {}
    for match in filter(None, map(_UNIT.match, arrays)):
        units.setdefault(int(match[1]), set()).add(match[2])
    hybrid = any(name.startswith(_BACKBONE) for name in arrays)
    token, norm = "cls_token" in arrays, "fc_norm.weight" in arrays
    if token:
        pooled = "token_gap" if norm else "token"
    else:
        pooled = "gap_norm" if norm else "gap"
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
    return Architecture(
        num_layers=table.count(arrays, _BLOCK),
        num_heads=0,  # specified by the config
        resnet_units=(
            tuple(len(units[b]) for b in sorted(units)) if hybrid else None
        ),
        classifier=pooled,
        representation="pre_logits.fc.bias" in arrays,
        head="head.bias" in arrays,
    )


def settings(config: dict) -> dict:
    """Return the numerics of timm and the metadata in its config."""
    arguments = configs.section(config, "model_args")
    name = timm_config.architecture_of(config)
    activation = configs.choice(arguments, "act_layer", ("gelu", "gelu_tanh"))
    heads, width = timm_names.HEADS_AND_WIDTH.get(name or "") or (
        None,
        None,
    )
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
        found["gelu_approximate"] = name in timm_names.TANH
    if heads and found["no_embed_class"] is None:
        found["no_embed_class"] = name in timm_names.NO_EMBED_CLASS
    return configs.known(**found)


def config_of(metadata: dict) -> dict:
    """Return the config.json of timm for a model; inverts `settings`."""
    architecture = Architecture.of(metadata)
    arguments = dict(
        img_size=list(metadata["image_size"]),
        patch_size=list(metadata["patch_size"]),
        embed_dim=metadata["hidden_size"],
        depth=architecture.num_layers,
        num_heads=architecture.num_heads,
        mlp_ratio=metadata["mlp_dim"] / metadata["hidden_size"],
        class_token=architecture.has_class_token,
        global_pool="token" if architecture.classifier == "token" else "avg",
        fc_norm=architecture.classifier in ("gap_norm", "token_gap"),
    )
    if metadata["gelu_approximate"]:
        arguments["act_layer"] = "gelu_tanh"
    name = _PLAIN
    if architecture.resnet_units is not None:
        name = ARCHITECTURES.get(architecture.resnet_units, _PLAIN)
    return timm_config.write(metadata, name, **arguments) | dict(
        num_features=metadata["hidden_size"]
    )


def rules(architecture: Architecture) -> list[table.Rule]:
    """Return the expanded table of an architecture."""

    def join(array):
        rows = array.T  # [..., 3 D], in the order [3, A, E]
        parts = rows.reshape(*rows.shape[:-1], 3, architecture.num_heads, -1)
        return fuse_heads(*np.moveaxis(parts, -3, 0))

    def split(fused):
        parts = part_heads(fused, architecture.num_heads)
        rows = np.stack(parts, axis=-3)  # [..., 3, A, E]
        return (rows.reshape(*rows.shape[:-3], -1).T,)

    qkv = table.Transform(join, split)
    ours, theirs = "encoderblock_{i}/", "blocks.{i}."
    attention = "MultiHeadDotProductAttention_0"
    unit = "resnet/block{b}_unit{u}/"
    their_unit = f"{_BACKBONE}stages.{{b0}}.blocks.{{u0}}."
    pooled_first = architecture.classifier in ("gap_norm", "token_gap")
    norm = "fc_norm" if pooled_first else "norm"
    # Without stages, timm's root is a plain sequence, not a ResNet with a stem.
    root = _BACKBONE + ("stem." if architecture.resnet_units else "")
    dense = {
        "pre_logits": "pre_logits.fc",
        "head": "head",
        f"{ours}{attention}/out": f"{theirs}attn.proj",
        f"{ours}MlpBlock_0/Dense_0": f"{theirs}mlp.fc1",
        f"{ours}MlpBlock_0/Dense_1": f"{theirs}mlp.fc2",
    }
    norms = {
        "encoder_norm": norm,
        f"{ours}LayerNorm_0": f"{theirs}norm1",
        f"{ours}LayerNorm_1": f"{theirs}norm2",
        "resnet/gn_root": f"{root}norm",
        f"{unit}gn1": f"{their_unit}norm1",
        f"{unit}gn2": f"{their_unit}norm2",
        f"{unit}gn3": f"{their_unit}norm3",
        f"{unit}gn_proj": f"{their_unit}downsample.norm",
    }
    convolutions = {
        "embedding": "patch_embed.proj",
        "resnet/conv_root": f"{root}conv",
        f"{unit}conv1": f"{their_unit}conv1",
        f"{unit}conv2": f"{their_unit}conv2",
        f"{unit}conv3": f"{their_unit}conv3",
        f"{unit}conv_proj": f"{their_unit}downsample.conv",
    }
    rows = [
        ("class_token/cls", "cls_token"),
        ("posembed_input/pos_embedding", "pos_embed"),
        ("embedding/bias", "patch_embed.proj.bias"),
        (
            f"{ours}{attention}/qkv/kernel",
            f"{theirs}attn.qkv.weight",
            qkv,
        ),
        (f"{ours}{attention}/qkv/bias", f"{theirs}attn.qkv.bias", qkv),
    ]
    for layer, name in dense.items():
        rows.append((f"{layer}/kernel", f"{name}.weight", table.TRANSPOSED))
        rows.append((f"{layer}/bias", f"{name}.bias"))
    for layer, name in norms.items():
        rows.append((f"{layer}/gamma", f"{name}.weight"))
        rows.append((f"{layer}/beta", f"{name}.bias"))
    for layer, name in convolutions.items():
        rows.append((f"{layer}/kernel", f"{name}.weight", table.CONVOLUTION))
    return expand(rows, architecture)


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that timm cannot store."""
    units = metadata.get("resnet_units")
    has = dict(
        pre_logits=metadata.get("representation_size"),
        stem_of_other_units=units not in (None, *ARCHITECTURES),
        stem_of_other_width=metadata.get("resnet_width") not in (None, 1),
    )
    return [name for name, value in has.items() if value]


def differences(metadata: dict) -> list[str]:
    """List what timm computes differently."""
    found = table.pixel_differences(metadata)
    if metadata.get("layer_norm_epsilon", 1e-6) != 1e-6:
        found.append("it adds 1e-6 in LayerNorm")
    if metadata.get("resnet_units") is not None and (
        metadata["resnet_numerics"] != "timm"
    ):
        found.append("it has other epsilons in the stem")
    return found
