"""The variables of the ViTs after the paper, and their names in a library."""

from collections.abc import Sequence

import numpy as np

from keras_vit.weights.rules import table

# Properties that a family may lack, because all its models have this value.
DEFAULTS = dict(
    class_token=True,
    distillation_token=False,
    num_registers=0,
    positions=True,
    position_prefix=1,
    pre_norm=False,
    patch_bias=True,
    activation="gelu",
    qkv_bias="qkv",
    layer_scale=0.0,
    attention_norm=False,
    mlp_norm=False,
    relative_positions=False,
    relative_dim=0,
    parallel=False,
    norm="layer",
    query_key_norm=False,
    mlp_scale=True,
    num_kv_heads=0,
    rotary="none",
)
_BLOCK = "encoderblock_{i}/"
_ATTENTION = f"{_BLOCK}MultiHeadDotProductAttention_0/"
MLP = f"{_BLOCK}MlpBlock_0/"
_POOL = "attention_pooling/"
# Key of a library's names -> layer of the model.
_DENSE = {
    "out": f"{_ATTENTION}out",
    "relative_fc1": f"{_ATTENTION}relative_0",
    "relative_fc2": f"{_ATTENTION}relative_1",
    "fc1": f"{MLP}Dense_0",
    "gate": f"{MLP}Gate",
    "fc2": f"{MLP}Dense_1",
    "pool_q": f"{_POOL}query",
    "pool_kv": f"{_POOL}key_value",
    "pool_out": f"{_POOL}out",
    "pool_fc1": f"{_POOL}MlpBlock_0/Dense_0",
    "pool_fc2": f"{_POOL}MlpBlock_0/Dense_1",
    "pre_logits": "pre_logits",
    "head_distillation": "head/distillation",
}
_NORMS = {
    "pre_norm": "pre_norm",
    "q_norm": f"{_ATTENTION}query_norm",
    "k_norm": f"{_ATTENTION}key_norm",
    "norm1": f"{_BLOCK}LayerNorm_0",
    "norm2": f"{_BLOCK}LayerNorm_1",
    "attention_norm": f"{_ATTENTION}norm",
    "mlp_norm": f"{MLP}norm",
    "norm": "encoder_norm",
    "pool_norm": f"{_POOL}LayerNorm_0",
}
# Those of the kind `norm`; others are LayerNorm.
_OF_KIND = ("pre_norm", "q_norm", "k_norm", "norm1", "norm2", "norm")
# Arrays that are variables on their own.
SINGLE = {
    "class_token": "class_token/cls",
    "distillation_token": "distillation_token/cls",
    "registers": "register_tokens/registers",
    "positions": "posembed_input/pos_embedding",
    "q_bias": f"{_ATTENTION}q_bias",
    "v_bias": f"{_ATTENTION}v_bias",
    "relative": f"{_ATTENTION}relative_bias",
    "frequencies": f"{_ATTENTION}frequencies",
    "scale1": f"{_BLOCK}LayerScale_0/gamma",
    "scale2": f"{_BLOCK}LayerScale_1/gamma",
    "probe": f"{_POOL}probe",
}


def _absent(has):
    """Return the prefixes of paths that a model does not have."""
    presence = {
        "class_token/": has["class_token"],
        "distillation_token/": has["distillation_token"],
        "register_tokens/": has["num_registers"],
        "posembed_input/": has["positions"],
        "pre_norm/": has["pre_norm"],
        "embedding/bias": has["patch_bias"],
        f"{_BLOCK}LayerNorm_1": not has["parallel"],
        f"{_BLOCK}LayerScale_0": has["layer_scale"],
        f"{_BLOCK}LayerScale_1": (
            has["layer_scale"] and has["mlp_scale"] and not has["parallel"]
        ),
        f"{_ATTENTION}query_norm": has["query_key_norm"],
        f"{_ATTENTION}key_norm": has["query_key_norm"],
        f"{_ATTENTION}qkv/bias": has["qkv_bias"] == "qkv",
        f"{_ATTENTION}q_bias": has["qkv_bias"] == "qv",
        f"{_ATTENTION}v_bias": has["qkv_bias"] == "qv",
        f"{_ATTENTION}norm/": has["attention_norm"],
        f"{_ATTENTION}relative_bias": (
            has["relative_positions"] and not has["relative_dim"]
        ),
        f"{_ATTENTION}relative_0/": has["relative_dim"],
        f"{_ATTENTION}relative_1/": has["relative_dim"],
        f"{_ATTENTION}frequencies": has["rotary"] == "mixed",
        f"{MLP}norm/": has["mlp_norm"],
        f"{MLP}Gate/": has["activation"] == "swiglu",
        f"{_POOL}MlpBlock_0/Gate/": has["activation"] == "swiglu",
        _POOL: has["pooling"] == "map",
        "head/distillation/": has["pooling"] == "distilled",
        "resnet/": has.get("resnet_depths") is not None,
        "encoder_norm/": not has["pooling"].endswith("_unnormed"),
    }
    absent = tuple(path for path, present in presence.items() if not present)
    return absent + table.without_top(has)


def rules(
    names: dict, metadata: dict, more: Sequence[tuple] = ()
) -> list[table.Rule]:
    """Return the expanded table of a model for a library.

    Args:
        names: Names of the library's layers and arrays, by the keys of
            `_DENSE`, `_NORMS` and `SINGLE`, with `embedding`, `qkv` (one
            name, or three of q, k and v) and `head`; `head_bias` is False if
            the head has none. What is absent has no place there.
        metadata: Of the model.
        more: Rows of a stem of `resnet_depths` in the metadata.
    """
    has = dict(pooling="token") | DEFAULTS | metadata
    names = readout(names, has["pooling"])
    present = {key: name for key, name in names.items() if name}
    stem = {"embedding": names["embedding"]}
    rows = table.layer_rows(stem, table.TORCH_CONVOLUTION)
    rows += _qkv_rows(names["qkv"], has["num_heads"], has.get("hidden_size"))
    rows += [
        (path, present[key], *_SHAPES.get(present[key], ()))
        for key, path in SINGLE.items()
        if key in present
    ]
    dense = {_DENSE[key]: present[key] for key in _DENSE if key in present}
    rows += table.layer_rows(dense, table.TORCH_DENSE)
    for key in [key for key in _NORMS if key in present]:
        is_rms = has["norm"] == "rms" and key in _OF_KIND
        parts = dict(scale=(".weight",)) if is_rms else table.TORCH_NORM
        rows += table.layer_rows({_NORMS[key]: present[key]}, parts)
    head = "head/token" if has["pooling"] == "distilled" else "head"
    rows += table.layer_rows(
        {head: names.get("head", "head")}, table.TORCH_DENSE
    )
    if not names.get("head_bias", True):
        rows[-1] = (f"{head}/bias", (), _no_bias(has["classes"]))
    return table.expand(
        [*rows, *more],
        num_layers=has["num_layers"],
        units=has.get("resnet_depths"),
        absent=_absent(has),
    )


def gates(metadata: dict) -> list[table.Rule]:
    """Return a rule for each variable of gates, for which few libraries have
    a place; the names there are none."""
    has = dict(pooling="token") | DEFAULTS | metadata
    layers = {f"{MLP}Gate": "gate", f"{_POOL}MlpBlock_0/Gate": "pool_gate"}
    return table.expand(
        table.layer_rows(layers, table.TORCH_DENSE),
        num_layers=has["num_layers"],
        absent=_absent(has),
    )


# A table of embeddings, [N, D], which is a variable [1, N, D].
EMBEDDINGS = table.Transform(
    lambda array: array[None], lambda array: (array[0],)
)
# Arrays whose shape differs from that of their variable.
_SHAPES = {
    "embeddings.class_embedding": (
        table.Transform(
            lambda array: array[None, None], lambda array: (array[0, 0],)
        ),
    ),
    "embeddings.position_embedding.weight": (EMBEDDINGS,),
    "embeddings.position_embeddings.weight": (EMBEDDINGS,),
}


def _qkv_rows(names, heads, width):
    """Return the rows of the projection, from one array or three.

    Its columns are [G, R + 2, E]: of each group R heads of queries, one of
    keys and one of values. R is 1 unless heads share keys and values.
    """

    def join(*arrays):
        if len(arrays) == 1:
            rows = len(arrays[0])
            queries = width or rows // 3
            ends = [queries, (rows + queries) // 2]
            arrays = np.split(arrays[0], ends, axis=0)
        columns = [array.T for array in arrays]  # [..., D]
        size = columns[0].shape[-1] // heads
        groups = columns[1].shape[-1] // size
        parts = [
            part.reshape(*part.shape[:-1], groups, -1, size) for part in columns
        ]
        fused = np.concatenate(parts, axis=-2)
        return fused.reshape(*fused.shape[:-3], -1)

    def split(fused):
        size = (width or fused.shape[-1] // 3) // heads
        groups = (fused.shape[-1] // size - heads) // 2
        fused = fused.reshape(*fused.shape[:-1], groups, -1, size)
        parts = np.split(fused, [-2, -1], axis=-2)
        parts = tuple(part.reshape(*part.shape[:-3], -1).T for part in parts)
        if isinstance(names, str):
            return (np.concatenate(parts, axis=0),)
        return parts

    qkv = table.Transform(join, split)
    sources = (names,) if isinstance(names, str) else names
    return [
        (f"{_ATTENTION}qkv/kernel", tuple(f"{n}.weight" for n in sources), qkv),
        (f"{_ATTENTION}qkv/bias", tuple(f"{n}.bias" for n in sources), qkv),
    ]


def _no_bias(size):
    """Return the transform of a head's bias in a file without one."""

    def split(bias):
        if bias.any():
            raise ValueError(
                "The format has no place for the bias of the head, which is "
                "not zero. Save the model in another format."
            )
        return ()

    return table.Transform(lambda: np.zeros(size, "float32"), split)


def readout(names: dict, pooling: str | None) -> dict:
    """Return the names with those of the last norm and the head."""
    if pooling == "gap_norm" and names.get("fc_norm"):
        return {**names, "norm": names["fc_norm"]}
    if pooling == "distilled" and names.get("head_token"):
        return {**names, "head": names["head_token"]}
    return names
