"""Architectures of timm/models/mlp_mixer.py with one ratio of widths."""

from keras_vit.weights.rules import configs, table, timm_config


def architecture(metadata: dict, names: dict, mlp_ratio: int) -> str | None:
    """Return the name of the architecture with a model's sizes, or None.

    No argument of timm changes these sizes.

    Args:
        metadata: Of the model.
        names: (hidden_size, patch_size, num_layers) -> name.
        mlp_ratio: The hidden width of all of them, in units of `hidden_size`.
    """
    patch, *other = dict.fromkeys(metadata["patch_size"])
    size = (metadata["hidden_size"], patch, metadata["num_layers"])
    if other or metadata["mlp_dim"] != mlp_ratio * metadata["hidden_size"]:
        return None
    return names.get(size)


def refused(metadata: dict, names: dict, mlp_ratio: int) -> list:
    """List the properties that timm cannot store; see `architecture`."""
    found = table.refuse_pre_logits(metadata)
    if architecture(metadata, names, mlp_ratio) is None:
        found.append(
            "patch_size, hidden_size, mlp_dim and num_layers of none of its "
            f"architectures, {tuple(names.values())}"
        )
    return found


def config_of(metadata: dict, names: dict, mlp_ratio: int) -> dict:
    """Return the config.json of timm; see `architecture`."""
    return timm_config.write(
        metadata,
        architecture(metadata, names, mlp_ratio) or "",
        img_size=list(metadata["image_size"]),
    )


def read(config: dict, prefix: str, pixels: dict) -> dict:
    """Return the metadata of a config.json of timm.

    Args:
        config: The config, {} without one.
        prefix: With which the names of the family's architectures begin.
        pixels: The metadata of pixels of these architectures.
    """
    configs.choice(
        configs.section(config, "model_args"), "act_layer", ("gelu",)
    )
    found = timm_config.read(config)
    own = found.get("architecture", prefix).startswith(prefix)
    return (pixels if own else {}) | found
