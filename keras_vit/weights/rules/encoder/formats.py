"""Formats of the ViTs after the paper: what arrays show, and each library.

The families (`models/encoder.py`) have the same layers under the same names.
`rows` names the variables; `timm` and `transformers` have the names and configs
of these libraries.
"""

import dataclasses
import functools
import math
import re

from keras_vit.weights.rules import (
    configs,
    keras_format,
    patches,
    table,
    timm_config,
)
from keras_vit.weights.rules.encoder import rows, timm, transformers

REQUIRED = dict(
    num_heads="12 (ViT-B)",
    activation="'gelu' (most of timm), 'gelu_tanh' (SigLIP) or 'quick_gelu' "
    "(OpenAI's CLIP)",
    layer_norm_epsilon="1e-6 (timm's DeiT, DINOv2, SigLIP), 1e-5 (CLIP, "
    "DINOv3) or 1e-12 (transformers' DeiT, BEiT)",
    pooling="'token', 'gap', 'gap_norm' or 'map'",
)
RESIZES = {
    "embedding/kernel": table.fit_pixels,
    rows.SINGLE["positions"]: table.fit_positions,
}


def make(
    names: dict,
    *,
    requires: tuple[str, ...],
    read_config,
    fields: tuple[str, ...] = (),
    fixed: dict | None = None,
    resampling=timm_config.resampling,
    derived=lambda metadata: {},
    **kwargs,
) -> table.Format:
    """Return a format of a family.

    Args:
        names: See `rows.rules`.
        requires, read_config, resampling, **kwargs: See `table.Format`.
        fields: The properties of `rows.DEFAULTS` in which the family's models
            differ.
        fixed: Values of others, if not those of `rows.DEFAULTS`.
        derived: Returns properties that follow from others, given metadata.
    """
    constants = {k: v for k, v in rows.DEFAULTS.items() if k not in fields}
    constants |= fixed or {}

    def of(metadata):
        return rows.rules(names, {**metadata, **derived(metadata), **constants})

    def read(arrays, config, specified):
        found = _read_arrays(names, arrays, specified)
        if isinstance(names["qkv"], str):
            found |= _groups(names, arrays, found)
        if found.get("activation") == "swiglu":  # configs name that of the gate
            specified.pop("activation", None)
        for name, value in constants.items():
            if found.get(name, value) != value:
                raise ValueError(
                    f"a model of its names with {name}={found[name]!r} is not "
                    "supported"
                )
        return found

    return table.Format(
        rules=of,
        read_arrays=read,
        read_config=read_config,
        required=lambda metadata: REQUIRED,
        requires=requires,
        resampling=resampling,
        check=patches.check_heads_and_grid,
        **kwargs,
    )


def timm_format(
    config_of,
    *,
    requires: tuple[str, ...],
    names: dict = timm.NAMES,
    known: str | dict[str, tuple[float, dict]] | None = None,
    epsilon: float = 1e-6,
    forms=frozenset(),
    required: dict | None = None,
    **kwargs,
) -> table.Format:
    """Return the format of timm of a family.

    Args:
        config_of: Returns the config.json, given metadata; None if models are
            only read.
        requires: See `table.Format`; besides the patch embedding.
        names: Those of timm's class.
        known: Pattern of names of architectures, or see `timm.settings`.
        epsilon: Of LayerNorm of these.
        forms: Those in which it stores arrays; see `timm.restore`.
        required: Further fields that must be known; see `table.Format`.
        **kwargs: See `make`.
    """
    known = {known: (epsilon, {})} if isinstance(known, str) else known or {}
    fields: dict = dict(
        read_config=functools.partial(timm.settings, known=known),
        flatten=timm.flatten,
        restore=timm.restore,
        naming_schemes={"timm": forms},
        config_of=config_of,
        refused=timm.refused,
        differences=functools.partial(timm.differences, epsilon=epsilon),
    )
    requires = (r"patch_embed\.proj\.weight", *requires)
    own = make(names, requires=requires, **(fields | kwargs))

    def read_arrays(arrays, config, specified):
        # A config that gives a width of its own gives the heads as well.
        default = specified.pop("default_heads", False)
        if "num_heads" not in specified and default:
            width = arrays["patch_embed.proj.weight"].shape[0]
            name = timm_config.architecture_of(config) or ""
            specified["num_heads"] = timm.heads_of(width, name)
        found = own.read_arrays(arrays, config, specified)
        gated = found.get("activation") == "swiglu"  # the only gate
        given = configs.section(config, "model_args")
        choices = ("silu",) if gated else timm.ACTIVATIONS
        configs.choice(given, "act_layer", choices)
        if found["layer_scale"]:  # not where norms follow the branches
            found["post_norm"] = False
        return found

    return dataclasses.replace(
        own,
        read_arrays=read_arrays,
        required=lambda metadata: REQUIRED | (required or {}),
    )


def transformers_format(
    names: dict,
    config_of,
    *,
    requires: tuple[str, ...],
    defaults: dict[str, dict],
    prefix: str = "",
    heads: tuple[str, ...] = ("classifier.",),
    **kwargs,
) -> table.Format:
    """Return the format of transformers of a family.

    Args:
        names: Those of its classes.
        config_of: Returns the config, given metadata.
        requires: See `table.Format`.
        defaults: See `transformers.settings`.
        prefix: Of all names but those of heads, in a model with a head.
        heads: With what these begin.
        **kwargs: See `make`.
    """

    def scheme(metadata):
        return "" if metadata["classes"] is None else prefix

    fields: dict = dict(
        read_config=functools.partial(transformers.settings, defaults=defaults),
        restore=functools.partial(transformers.restore, heads=heads),
        resampling=lambda metadata: "bicubic",
        naming_schemes={"huggingface": scheme},
        config_of=config_of,
        refused=transformers.refused,
    )
    return make(names, requires=requires, **(fields | kwargs))


def tower_format(names: dict, config_of, **kwargs) -> table.Format:
    """Return the format of an image tower; see `transformers_format`."""
    fields: dict = dict(
        flatten=transformers.tower,
        restore=transformers.restore_tower,
        naming_schemes={"huggingface": transformers.TOWER},
    )
    return transformers_format(names, config_of, **(fields | kwargs))


def keras_files(like: table.Format, *paths: str) -> table.Format:
    """Return the format of a family's `.keras` files.

    Args:
        like: Another format of the family; its library's way to resample is
            that of files that specify none.
        *paths: Patterns of numbered names that only this family has.
    """

    def rules(metadata):
        found = like.rules(metadata)
        there = {rule.path for rule in found}
        return found + [x for x in rows.gates(metadata) if x.path not in there]

    return keras_format.derive(
        dataclasses.replace(like, rules=rules),
        requires=("embedding/0", "encoder_norm/0", *paths),
    )


def _read_arrays(names: dict, arrays: dict, specified: dict) -> dict:
    """Return the metadata that names and shapes show.

    Args:
        names: See `rows.rules`.
        arrays: Of the checkpoint, flattened.
        specified: Metadata of its config. `global_pool` is the pooling that it
            has: "token", "avg", "map", "token_and_gap" or "distilled".
    """
    found = _parts(names, arrays, specified)
    if not found["num_layers"]:
        raise KeyError(names["norm1"].format(i=0) + ".weight")
    named = rows.readout(names, found["pooling"])
    head = f"{named.get('head', 'head')}.weight"
    found["classes"] = arrays[head].shape[0] if head in arrays else None
    found |= _sizes(named, arrays, found)
    heads = found["num_heads"]
    if heads and found["hidden_size"] % heads:
        raise ValueError(
            "expected a number of heads that divides its width, "
            f"{found['hidden_size']}; found {heads}"
        )
    if found["positions"]:
        name = names["positions"]
        shape = arrays[name].shape
        if len(shape) not in (2, 3):
            raise ValueError(
                f"expected `{name}` of 2 or 3 axes; found shape {shape}"
            )
        found |= _positions(found, shape[-2], specified)
    elif "image_size" in specified:
        found["grid"] = patches.grid(dict(found, **specified))
    elif "grid" not in specified and (
        found["relative_positions"] and not found["relative_dim"]
    ):
        found |= _square_of_distances(
            arrays[names["relative"].format(i=0)].shape[0]
        )
    return found


def _parts(names, arrays, specified):
    """Return the metadata that names show: which parts are there."""

    def has(key, ending=""):
        name = names.get(key)
        name = name if isinstance(name, (str, type(None))) else name[0]
        return bool(name) and f"{name}{ending}".format(i=0) in arrays

    found = dict(
        num_layers=table.count(arrays, _pattern(names["norm1"])),
        num_heads=specified.get("num_heads"),
        class_token=has("class_token"),
        distillation_token=has("distillation_token"),
        positions=has("positions"),
        pre_norm=has("pre_norm", ".weight"),
        patch_bias=has("embedding", ".bias"),
        layer_scale=1e-5 if has("scale1") else 0.0,
        attention_norm=has("attention_norm", ".weight"),
        mlp_norm=has("mlp_norm", ".weight"),
        relative_positions=has("relative") or has("relative_fc1", ".weight"),
        relative_dim=0,
        parallel=specified.get("parallel", False),
        norm="layer",
        query_key_norm=has("q_norm", ".weight"),
        mlp_scale=has("scale2") or not has("scale1") or "parallel" in specified,
        num_kv_heads=0,
        num_registers=0,
        qkv_bias="qkv" if has("qkv", ".bias") else "none",
    )
    # Without a bias of keys, three projections have names of their own.
    if has("q_bias") and not _has_key_bias(names, arrays):
        found["qkv_bias"] = "qv"
    if has("registers"):
        found["num_registers"] = arrays[names["registers"]].shape[1]
    if has("relative_fc1", ".weight"):
        name = names["relative_fc1"].format(i=0)
        found["relative_dim"] = arrays[f"{name}.weight"].shape[0]
    if has("norm1", ".weight") and not has("norm1", ".bias"):
        found["norm"] = "rms"
    if has("gate", ".weight"):
        found["activation"] = "swiglu"
    if has("frequencies"):
        found["rotary"] = "mixed"
    found["pooling"] = _classifier(
        found, specified, has("norm", ".weight"), has("fc_norm", ".weight")
    )
    return found


def _sizes(names, arrays, found):
    """Return the metadata that shapes show."""
    every = rows.rules(names, dict(found, num_heads=1))
    shape_of = table.shapes(arrays, every)
    kernel = shape_of("embedding/kernel", 4)
    mlp_dim = shape_of(f"{rows.MLP}Dense_0/kernel".format(i=0), 2)[1]
    sizes = dict(
        patch_size=kernel[:2],
        stride=kernel[:2],
        channels=kernel[2],
        hidden_size=kernel[3],
        mlp_dim=mlp_dim,
        representation_size=None,
    )
    if found["pooling"] == "map":
        pool_dim = shape_of("attention_pooling/MlpBlock_0/Dense_0/kernel", 2)[1]
        sizes["pooling_mlp_dim"] = 0 if pool_dim == mlp_dim else pool_dim
    if found["query_key_norm"]:
        size = arrays[f"{names['q_norm']}.weight".format(i=0)].shape[0]
        sizes["num_heads"] = kernel[3] // max(1, size)
    return sizes


def _groups(names: dict, arrays: dict, found: dict) -> dict:
    """Return which heads share keys and values, given other metadata."""
    width, heads = found["hidden_size"], found["num_heads"] or 1
    shared = [
        (arrays[f"{names['qkv']}.weight".format(i=i)].shape[0] - width)
        // (2 * (width // heads))
        for i in range(found["num_layers"])
    ]
    count = min(shared)
    if count == heads:
        return dict(num_kv_heads=0, num_full_blocks=0)
    full = shared.index(count)
    expected = [heads] * full + [count] * (len(shared) - 2 * full)
    if shared != expected + [heads] * full:
        raise ValueError(
            f"{shared} heads of keys and values in its blocks are not supported"
        )
    return dict(num_kv_heads=count, num_full_blocks=full)


def _pattern(name):
    return re.compile(re.escape(name).replace(r"\{i\}", r"(\d+)") + r"\.")


def _has_key_bias(names, arrays):
    qkv = names["qkv"]
    return not isinstance(qkv, str) and f"{qkv[1]}.bias".format(i=0) in arrays


def _classifier(found, specified, norm, norm_after):
    """Return what the head reads."""
    pooling = specified.get("global_pool")
    if pooling is None:
        # As timm's classes do, whose norm stands after the mean or before it.
        reads_token = found["class_token"] and (norm or not norm_after)
        pooling = "token" if reads_token else "avg"
    if pooling == "avg":
        if norm_after:
            return "gap_norm"
        return "gap" if norm else "gap_unnormed"
    if pooling == "token" and not found["class_token"]:
        raise ValueError(
            "expected a class token, which its config says the head reads; "
            "found none"
        )
    if not norm:
        return f"{pooling}_unnormed"
    return pooling


def _square_of_distances(count):
    """Return the square grid of a table of distances, {} if there is none.

    Its rows are those of all distances of two patches, and three of the class
    token.
    """
    distances = math.isqrt(max(0, count - 3))
    if distances % 2 == 0 or distances**2 != count - 3:
        return {}
    side = (distances + 1) // 2
    return dict(grid=(side, side))


def _positions(found, tokens, specified):
    """Return the grid of the position embeddings, and `position_prefix`.

    They cover no token before the patches, the class token, or all of them.
    """
    first = int(found["class_token"])
    others = found["num_registers"] + found["distillation_token"]
    prefixes = (0, first, first + others)
    grid = specified.get("grid")
    if grid is None and "image_size" in specified:
        grid = patches.grid(dict(specified, patch_size=found["stride"]))

    def fits(patches):
        if grid is not None:
            return math.prod(grid) == patches
        return math.isqrt(patches) ** 2 == patches

    prefix = next((n for n in prefixes if fits(tokens - n)), first)
    own = patches.grid_of(tokens - prefix, found["stride"], specified)
    read = dict(grid=own, position_prefix=prefix)
    if grid is None:
        read["patch_counts"] = tuple(tokens - n for n in prefixes)
    return read
