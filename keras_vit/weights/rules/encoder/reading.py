"""What the arrays of a ViT after the paper show of its architecture."""

import math
import re

from keras_vit.weights.rules import patches, table
from keras_vit.weights.rules.encoder import rows


def read_arrays(names: dict, arrays: dict, specified: dict) -> dict:
    """Return the metadata that names and shapes show.

    Args:
        names: See `rules`.
        arrays: Of the checkpoint, flattened.
        specified: Metadata of its config. `pooling` is the pooling that it
            has: "token", "avg", "map", "token_and_gap" or "distilled".
    """

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
        qkv_bias="none",
    )
    if has("qkv", ".bias"):
        found["qkv_bias"] = "qkv"
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
    found["classifier"] = _classifier(
        found, specified, has("norm", ".weight"), has("fc_norm", ".weight")
    )
    if not found["num_layers"]:
        raise KeyError(names["norm1"].format(i=0) + ".weight")
    named = rows.readout(names, found["classifier"])
    head = f"{named.get('head', 'head')}.weight"
    found["classes"] = arrays[head].shape[0] if head in arrays else None
    shape_of = table.shapes(arrays, rows.rules(named, dict(found, num_heads=1)))
    kernel = shape_of("embedding/kernel", 4)
    found |= dict(
        patch_size=kernel[:2],
        stride=kernel[:2],
        channels=kernel[2],
        hidden_size=kernel[3],
        mlp_dim=shape_of(f"{rows.MLP}Dense_0/kernel".format(i=0), 2)[1],
        representation_size=None,
    )
    if found["classifier"] == "map":
        pool_dim = shape_of("attention_pooling/MlpBlock_0/Dense_0/kernel", 2)[1]
        found["pooling_mlp_dim"] = (
            0 if pool_dim == found["mlp_dim"] else pool_dim
        )
    if found["query_key_norm"]:
        size = arrays[f"{names['q_norm']}.weight".format(i=0)].shape[0]
        found["num_heads"] = found["hidden_size"] // max(1, size)
    heads = found["num_heads"]
    if heads and found["hidden_size"] % heads:
        raise ValueError(
            "expected a number of heads that divides its width, "
            f"{found['hidden_size']}; found {heads}"
        )
    if found["positions"]:
        name = names["positions"]
        table_shape = arrays[name].shape
        if len(table_shape) not in (2, 3):
            raise ValueError(
                f"expected `{name}` of 2 or 3 axes; found shape {table_shape}"
            )
        tokens = table_shape[-2]
        found |= _positions(found, tokens, specified)
    elif "image_size" in specified:
        found["grid"] = patches.grid(dict(found, **specified))
    return found


def groups(names: dict, arrays: dict, found: dict) -> dict:
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
    pooling = specified.get("pooling")
    if pooling is None:
        pooling = "token" if found["class_token"] else "avg"
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
    grid = table.grid_of(tokens - prefix, found["stride"], specified)
    return dict(grid=grid, position_prefix=prefix)
