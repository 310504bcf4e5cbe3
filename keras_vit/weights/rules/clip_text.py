"""The text towers of CLIP, in transformers.

Checked against clip of transformers 5.24.
"""

from keras_vit.weights.rules import configs, table, text_tower

TITLE = "CLIP's text tower"
MODEL_TYPES = ("clip_text_model", "metaclip_2_text_model")
RESIZES: dict = {}
grid = table.no_grid
# Of files that were written before the id was right: the largest id is read.
_OLD_END = 2
_DEFAULTS = dict(
    hidden_act="quick_gelu",
    layer_norm_eps=1e-5,
    num_attention_heads=8,
    eos_token_id=49407,
)


def _settings(config):
    end = config["eos_token_id"]
    if isinstance(end, list):
        raise ValueError(
            "several tokens that end a text are not supported; its config has "
            f"eos_token_id={end}"
        )
    end = configs.integer(config, "eos_token_id", 0)
    # MetaCLIP 2 means what it says: its vocabulary ends texts with 2.
    if end == _OLD_END and config.get("model_type") != MODEL_TYPES[1]:
        return dict(pooling="largest", end_token=None)
    return dict(pooling="end", end_token=end)


def _config_of(metadata):
    size = metadata["embedding_size"]
    if metadata["end_token"] == _OLD_END:
        raise ValueError(
            f"CLIP's files have no place for end_token={_OLD_END}, which they "
            "take for the largest id"
        )
    if metadata["pooling"] == "last":
        raise ValueError("CLIP's files have no place for pooling='last'")
    if metadata.get("logit_bias"):
        raise ValueError("CLIP's files have no place for logit_bias")
    end = _OLD_END if metadata["end_token"] is None else metadata["end_token"]
    return dict(
        architectures=[
            "CLIPTextModelWithProjection" if size else "CLIPTextModel"
        ],
        model_type=MODEL_TYPES[0],
        eos_token_id=end,
        **(dict(projection_dim=size) if size else {}),
    )


FORMATS = {
    "huggingface": text_tower.make(
        "text_projection",
        _DEFAULTS,
        scalar_shape=(),
        settings=_settings,
        config_of=_config_of,
        causal=True,
        projection_bias=False,
    )
}
