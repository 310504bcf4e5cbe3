"""BEiT and BEiT v2, in timm and transformers.

Checked against timm/models/beit.py of timm 1.0, and beit of transformers 5.23.
"""

import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, patches, table
from keras_vit.weights.rules.encoder import formats, timm, transformers

TITLE = "BEiT or ViT with relative positions"
grid = patches.grid
_BLOCK = re.compile(r"encoder\.layer\.(\d+)\.")
MODEL: dict = dict(
    fields=(
        *("activation", "layer_scale", "qkv_bias", "class_token"),
        "relative_dim",
    ),
    fixed=dict(relative_positions=True, positions=False),
)
_SHARED_MLP = "shared_rel_pos."
_TABLE = "relative_position_bias.relative_position_bias_table"
_SHARED = f"encoder.{_TABLE}"
NAMES: dict = transformers.BERT_NAMES | dict(
    positions=None,
    scale1="encoder.layer.{i}.lambda_1",
    scale2="encoder.layer.{i}.lambda_2",
    relative=f"encoder.layer.{{i}}.attention.attention.{_TABLE}",
    fc_norm="pooler.layernorm",
)
_KINDS = dict(beit=transformers.defaults(1e-12, image_size=224))


RESIZES = formats.RESIZES | {
    r"encoderblock_\d+/.*/relative_bias": table.fit_distances
}
# Of files of transformers, which do not state it.
UNSTATED = dict(post_norm=False)


def _timm_settings(config):
    arguments = configs.section(config, "model_args")
    kind = arguments.get("rel_pos_type", "mlp")
    if kind != "mlp":
        raise ValueError(f"rel_pos_type={kind!r} is not supported")
    known = r"beit(v2)?_.*|vit_s?relpos_.*|test_vit_relpos"
    return timm.settings(config, {known: (1e-6, {})})


def _timm_flatten(arrays, metadata):
    """Give vit_relpos the names of BEiT, and each block what all share."""
    arrays, forms = timm.flatten(arrays, metadata)
    if "blocks.0.ls1.gamma" in arrays:
        forms |= {"relpos"}
        arrays = table.rename(
            arrays, lambda name: re.sub(r"\.ls(\d)\.gamma", r".gamma_\1", name)
        )
    count = table.count(arrays, re.compile(r"blocks\.(\d+)\."))
    for name in [n for n in arrays if n.startswith(_SHARED_MLP)]:
        stored, rest = arrays.pop(name), name.removeprefix(_SHARED_MLP)
        for i in range(count):
            table.add(arrays, f"blocks.{i}.attn.rel_pos.{rest}", stored)
    return arrays, forms


def _timm_restore(arrays, forms):
    arrays = timm.restore(arrays, forms)
    if "relpos" not in forms:
        return arrays
    return table.rename(
        arrays, lambda name: re.sub(r"\.gamma_(\d)", r".ls\1.gamma", name)
    )


def _timm_refused(metadata, format):
    relpos = metadata["relative_dim"] > 0
    biases = ("qkv", "none") if relpos else ("qv", "none")
    activations = ("gelu",) if relpos else ("gelu", "swiglu")
    has = {
        "post_norm=True with LayerScale or tables of relative positions": (
            metadata["post_norm"] and (metadata["layer_scale"] or not relpos)
        ),
        f"qkv_bias={metadata['qkv_bias']!r}": (
            metadata["qkv_bias"] not in biases
        ),
        f"activation={metadata['activation']!r}": (
            metadata["activation"] not in activations
        ),
        "pooling='gap' of a BEiT": (
            metadata["pooling"] == "gap" and not relpos
        ),
    }
    return timm.refused_gated(metadata, format) + table.listed(has)


def _relpos_config_of(metadata):
    name = "vit_relpos_base_patch16_224"
    if metadata["post_norm"]:
        name = "vit_relpos_base_patch16_rpn_224"
    return timm.config_of(
        metadata,
        name,
        init_values=metadata["layer_scale"],
        qkv_bias=metadata["qkv_bias"] == "qkv",
        class_token=metadata["class_token"],
        fc_norm=metadata["pooling"] == "gap_norm",
        rel_pos_dim=metadata["relative_dim"],
    )


def _timm_config_of(metadata):
    if metadata["relative_dim"]:
        return _relpos_config_of(metadata)
    return timm.config_of(
        metadata,
        "beit_base_patch16_224",
        swiglu_mlp=metadata["activation"] == "swiglu",
        init_values=metadata["layer_scale"],  # None would be the default, 0.1
        qkv_bias=metadata["qkv_bias"] == "qv",
        use_rel_pos_bias=True,
    )


def settings(config: dict) -> dict:
    """Return the metadata in a config of transformers."""
    name = "use_absolute_position_embeddings"
    if configs.flag(config, name):
        raise ValueError(f"{name}=True is not supported")
    found = transformers.settings(config, _KINDS)
    size, patch = found.get("image_size"), found.get("patch_size")
    if size and patch and size[0] // patch[0] != size[1] // patch[1]:
        # transformers takes rows of the table for columns, and resamples it.
        raise ValueError("images that are not square are not supported")
    return found


def _flatten(arrays, metadata):
    """Give each block its table of relative positions, and read the pooling.

    Of a model that predicts visual tokens the encoder remains. Where it has no
    norm, a classifier begins with a new one after the mean.
    """
    masked = any(name.startswith("lm_head.") for name in arrays)
    ignored = r".*(mask_token|relative_position_index)"
    if masked:
        ignored += r"|(lm_head|layernorm)\..*"
    arrays, prefix = transformers.flatten(arrays, ("beit.",), ignored)
    norm = NAMES["fc_norm"]
    if masked and f"{NAMES['norm']}.weight" not in arrays:
        shape = arrays["embeddings.cls_token"].shape[-1:]
        arrays[f"{norm}.weight"] = Stored(shape, lambda: np.ones(shape))
        arrays[f"{norm}.bias"] = Stored(shape, lambda: np.zeros(shape))
    pools = f"{norm}.weight" in arrays
    metadata["global_pool"] = "avg" if pools else "token"
    share_positions(arrays)
    return arrays, prefix


def share_positions(arrays: dict) -> bool:
    """Add the table that all blocks share to that of each, if any.

    Returns:
        Whether there is such a table.
    """
    shared = arrays.pop(_SHARED, None)
    for i in range(0 if shared is None else table.count(arrays, _BLOCK)):
        _add_shared(arrays, NAMES["relative"].format(i=i), shared)
    return shared is not None


def join_positions(arrays: dict) -> None:
    """Make the tables of all blocks one that they share."""
    count = table.count(arrays, _BLOCK)
    names = [NAMES["relative"].format(i=i) for i in range(count)]
    first, *others = (arrays.pop(name) for name in names)
    if any(not np.array_equal(first, other) for other in others):
        raise ValueError(
            "The blocks must have the same table of relative positions, as in "
            "the file that the model is of. Received: different tables. Save "
            "it with `model.save('model.keras')`"
        )
    arrays[_SHARED] = first


def _add_shared(arrays, name, shared):
    """Add the table that all blocks share to that of a block, if any."""
    own = arrays.get(name)
    arrays[name] = shared.map(
        lambda value: value if own is None else value + own.read(), shared.shape
    )


def _config_of(metadata):
    top = metadata["classes"] is not None
    return transformers.config_of(
        metadata,
        "beit",
        "BeitForImageClassification" if top else "BeitModel",
        use_mean_pooling=metadata["pooling"] == "gap_norm",
        use_relative_position_bias=True,
        layer_scale_init_value=metadata["layer_scale"],
        **(transformers.labels(metadata) if top else {}),
    )


def refusals(metadata: dict) -> dict:
    """Return what BEiTs of transformers lack -> whether a model has it."""
    return {
        "no LayerScale": not metadata["layer_scale"],
        "MLPs of relative positions": metadata["relative_dim"],
        "post_norm=True": metadata["post_norm"],
        "pooling='gap'": metadata["pooling"] == "gap",
        f"qkv_bias={metadata['qkv_bias']!r}": metadata["qkv_bias"] != "qv",
        "activation='swiglu'": metadata["activation"] == "swiglu",
    }


def _refused(metadata, format):
    has = refusals(metadata)
    return transformers.refused(metadata, format) + table.listed(has)


FORMATS = {
    "timm": formats.timm_format(
        _timm_config_of,
        names=timm.EVA_NAMES,
        requires=(
            r"(blocks\.0\.attn\.relative_position_bias_table"
            r"|(blocks\.0\.attn|shared)[._]rel_pos\.mlp\.fc1\.weight)",
        ),
        forbids={
            r"layers\..*": "windows (Swin) are",
            r".*\.[qk]_norm\..*": "norms of queries and keys are",
        },
        required=dict(post_norm=timm.POST_NORM),
        forms=lambda metadata: frozenset(
            ["relpos"] if metadata["relative_dim"] else []
        ),
        read_config=_timm_settings,
        flatten=_timm_flatten,
        restore=_timm_restore,
        resampling=lambda metadata: "geometric",
        refused=_timm_refused,
        **MODEL,
    ),
    "huggingface": formats.transformers_format(
        NAMES,
        _config_of,
        requires=(
            r".*embeddings\.patch_embeddings\.projection\.weight",
            r".*encoder\.layer\.0\.lambda_1",
        ),
        forbids={
            r".*embeddings\.position_embeddings": "learned positions beside "
            "LayerScale are"
        },
        defaults=_KINDS,
        prefix="beit.",
        read_config=settings,
        flatten=_flatten,
        resampling=lambda metadata: "bilinear",
        refused=_refused,
        **MODEL,
    ),
}
FORMATS["keras_vit"] = formats.keras_files(
    FORMATS["timm"], r"encoderblock_0/MultiHeadDotProductAttention_0/2"
)
