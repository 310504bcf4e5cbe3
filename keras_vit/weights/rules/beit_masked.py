"""BEiTs that predict visual tokens, in transformers."""

from keras_vit.weights.rules import beit, heads, table
from keras_vit.weights.rules.encoder import transformers

TITLE = "BEiT that predicts visual tokens"
MODEL_TYPES = ("beit",)
HAS = r"lm_head\..*"
ENCODER = "beit"
grid = beit.grid
RESIZES = beit.RESIZES
_NAMES = beit.NAMES | dict(fc_norm="no_norm_after_the_mean")


def _flatten(arrays, metadata):
    """Give the norm before the head a name, and each block its table."""
    arrays = table.rename(
        arrays,
        lambda name: f"head_{name}" if name.startswith("layernorm.") else name,
    )
    arrays, _ = transformers.flatten(
        arrays, ("beit.",), r".*relative_position_index"
    )
    blocks = _NAMES["relative"].format(i=0) in arrays
    shared = beit.share_positions(arrays)
    metadata["shared_positions"] = shared and not blocks
    return arrays, None


def _restore(arrays, shared):
    """Invert `_flatten`."""
    arrays = dict(arrays)
    if shared:
        beit.join_positions(arrays)
    arrays = transformers.restore(arrays, "beit.", ("head_", "lm_head."))
    return table.rename(arrays, lambda name: name.removeprefix("head_"))


def _head_rows(metadata):
    norm, dense = (
        {"visual_norm": "head_layernorm"},
        {"visual_tokens": "lm_head"},
    )
    return [
        *table.layer_rows(norm, table.TORCH_NORM),
        *table.layer_rows(dense, table.TORCH_DENSE),
        ("mask_embedding/mask_token", "embeddings.mask_token"),
    ]


def _read_head(arrays, found):
    normed = f"{_NAMES['norm']}.weight" in arrays
    return dict(
        vocab_size=arrays["lm_head.weight"].shape[0],
        pooling="token" if normed else "gap_norm",
    )


def _config_of(metadata):
    shared = metadata["shared_positions"]
    return transformers.config_of(
        metadata,
        "beit",
        "BeitForMaskedImageModeling",
        vocab_size=metadata["vocab_size"],
        use_mask_token=True,
        use_mean_pooling=metadata["pooling"] == "gap_norm",
        use_relative_position_bias=not shared,
        use_shared_relative_position_bias=shared,
        use_absolute_position_embeddings=False,
        layer_scale_init_value=metadata["layer_scale"],
    )


def _refused(metadata):
    has = {
        key: value
        for key, value in beit.refusals(metadata).items()
        if key != "no LayerScale"
    }
    return has | {"a family other than BEiT": "relative_dim" not in metadata}


FORMATS = {
    "huggingface": heads.make(
        _NAMES,
        states_qv=True,
        head_rows=_head_rows,
        read_head=_read_head,
        read_config=beit.settings,
        config_of=_config_of,
        refused=_refused,
        unused=lambda metadata: (
            r"no_norm.*" if metadata["pooling"] == "gap_norm" else ""
        ),
        flatten=_flatten,
        restore=_restore,
        scheme=lambda metadata: metadata["shared_positions"],
        resampling=lambda metadata: "bilinear",
        **beit.MODEL,
    )
}
