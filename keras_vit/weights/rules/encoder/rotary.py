"""Rotary positions in the configs of timm."""

import re

from keras_vit.weights.rules import configs, timm_config
from keras_vit.weights.rules.encoder import timm

REQUIRED = "'centered' (DINOv3), 'index' (EVA-02), 'mixed' or 'none'"
INDEX = dict(rotary="index", rotary_theta=10_000.0)


def settings(config: dict, known: dict) -> dict:
    """Return the metadata in a config of timm, and those of its name.

    Args:
        config: The config.json.
        known: Pattern of names of architectures -> epsilon, and constants.
    """
    name = timm_config.architecture_of(config) or ""
    pattern, (epsilon, constants) = next(
        (row for row in known.items() if re.fullmatch(row[0], name)),
        ("-", (0.0, {})),  # of no name
    )
    found = timm.settings(config, pattern, epsilon) | constants
    arguments = configs.section(config, "model_args")
    if configs.flag(arguments, "rope_rotate_half") is False and (
        found.get("rotary") == "centered"
    ):
        raise ValueError("rope_rotate_half=False is not supported")
    return found | configs.known(
        rotary_theta=configs.number(arguments, "rope_temperature", 0.0, 1e9),
        rotary_reference=configs.pair(arguments, "ref_feat_shape"),
        rotary_offset=arguments.get("rope_grid_offset"),
        rotary_order=configs.choice(
            arguments, "rope_grid_indexing", ("ij", "xy")
        ),
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


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that timm's Eva cannot store."""
    found = timm.refused(metadata, format)
    if metadata["activation"] not in ("gelu", "swiglu"):
        found.append(f"activation={metadata['activation']!r}")
    return found
