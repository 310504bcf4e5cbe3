"""Rotary positions in the configs of timm."""

from keras_vit.weights.rules import configs

REQUIRED = "'centered' (DINOv3), 'index' (EVA-02), 'mixed' or 'none'"
INDEX = dict(rotary="index", rotary_theta=10_000.0)
# Kind -> the arguments of timm's Eva that have one value here.
_FIXED: dict[str, dict] = {
    "centered": dict(
        use_rot_pos_emb=True,
        rope_type="dinov3",
        rope_rotate_half=True,
        rope_grid_offset=0.0,
    ),
    "index": dict(
        use_rot_pos_emb=True, rope_type="cat", rope_rotate_half=False
    ),
    "mixed": dict(
        use_rot_pos_emb=True,
        rope_type="mixed",
        rope_rotate_half=False,
        rope_grid_indexing="xy",
    ),
    "none": dict(use_rot_pos_emb=False),
}


def settings(arguments: dict, found: dict) -> dict:
    """Return the metadata in arguments of timm's Eva, given the others."""
    kind = found.get("rotary")
    for name, value in _FIXED.get(str(kind), {}).items():
        if arguments.get(name) not in (None, value):
            raise ValueError(
                f"{name}={arguments[name]!r} is not supported with "
                f"rotary={kind!r}; expected {value!r}"
            )
    orders = ("ij", "xy")
    return configs.known(
        rotary_theta=configs.number(arguments, "rope_temperature", 0.0, 1e9),
        rotary_reference=configs.pair(arguments, "ref_feat_shape"),
        rotary_offset=arguments.get("rope_grid_offset"),
        rotary_order=configs.choice(arguments, "rope_grid_indexing", orders),
    )


def arguments(metadata: dict) -> dict:
    """Return arguments of timm's Eva for a model; inverts `settings`."""
    if metadata["rotary"] in ("none", "mixed"):
        return {}
    reference = metadata["rotary_reference"]
    has_indices = metadata["rotary"] == "index"
    return dict(
        rope_temperature=metadata["rotary_theta"],
        rope_grid_offset=metadata["rotary_offset"] if has_indices else 0.0,
        rope_grid_indexing=metadata["rotary_order"],
        ref_feat_shape=reference and list(reference),
    )
