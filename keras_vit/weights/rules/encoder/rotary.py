"""Rotary positions in the configs of timm."""

from keras_vit.weights.rules import configs

REQUIRED = "'centered' (DINOv3), 'index' (EVA-02), 'mixed' or 'none'"
INDEX = dict(rotary="index", rotary_theta=10_000.0)


def settings(arguments: dict, found: dict) -> dict:
    """Return the metadata in arguments of timm's Eva, given the others."""
    if configs.flag(arguments, "rope_rotate_half") is False and (
        found.get("rotary") == "centered"
    ):
        raise ValueError("rope_rotate_half=False is not supported")
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
    return dict(
        rope_temperature=metadata["rotary_theta"],
        rope_grid_offset=metadata["rotary_offset"],
        rope_grid_indexing=metadata["rotary_order"],
        ref_feat_shape=reference and list(reference),
    )
