"""Configs of blocks as version 0.2 wrote them."""

# Options that the first files lack, and what they mean there.
_LATER = dict(
    norm="layer",
    parallel=False,
    post_norm=False,
    query_key_norm=False,
    relative_dim=0,
    num_kv_heads=0,
    mlp_scale=True,
    output_scale=1.0,
)


def block_config(config: dict) -> dict:
    """Return today's config of an earlier `EncoderBlock`.

    It had the options of attention and MLP of all families. Files from before
    an option have none.
    """
    config = _LATER | config
    epsilon, norm = config["layer_norm_epsilon"], config["norm"]
    is_after, is_shared = config.pop("post_norm"), config.pop("parallel")
    scale = config["layer_scale"]
    has_query_key_norm = config.pop("query_key_norm")
    first = dict(
        kernel_stddev=0.02, output_stddev=0.02 * config.pop("output_scale")
    )
    mlp = dict(first, activation=config.pop("activation"))
    if config.pop("mlp_norm"):
        mlp |= dict(layer="EVA02Mlp", norm_epsilon=epsilon)
    attention = dict(
        first,
        qkv_bias=config.pop("qkv_bias"),
        query_key_norm=norm if has_query_key_norm else "none",
        norm_epsilon=epsilon,
        **_positions(config),
    )
    if config.pop("attention_norm"):
        attention |= dict(layer="EVA02Attention", head_norm=True)
    groups = config.pop("num_kv_heads")
    if groups:
        attention |= dict(layer="DINOv3Attention", num_kv_heads=groups)
    return config | dict(
        norm_placement="after"
        if is_after
        else "shared"
        if is_shared
        else "before",
        layer_scale=(scale, scale if config.pop("mlp_scale") else 0.0),
        attention_options=attention,
        mlp_options=mlp,
    )


def _positions(config):
    """Take the options of positions out of a config, and return them."""
    grid_size, rotary = config.pop("grid_size"), config.pop("rotary")
    relative_dim = config.pop("relative_dim")
    if config.pop("relative_positions"):
        return dict(
            layer="BEiTAttention",
            grid_size=grid_size,
            relative_dim=relative_dim,
        )
    if rotary is None:
        return {}
    if rotary["kind"] == "mixed":
        return dict(layer="DINOv3Attention", mixed_grid=grid_size)
    return dict(rotary=dict(rotary, grid_size=grid_size))
