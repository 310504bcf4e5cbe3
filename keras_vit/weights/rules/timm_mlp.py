"""Architectures of timm/models/mlp_mixer.py with one ratio of widths."""

from keras_vit.weights.rules import configs, table, timm_config


def fields(prefix: str, pixels: dict, names: dict, mlp_ratio: int) -> dict:
    """Return the fields of a family's `table.Format` for timm.

    Args:
        prefix: With which the names of the family's architectures begin.
        pixels: The metadata of pixels of these architectures.
        names: (hidden_size, patch_size, num_layers) -> name. No argument of
            timm changes these sizes.
        mlp_ratio: The hidden width of all of them, in units of `hidden_size`.
    """

    def architecture(metadata):
        patch, *other = dict.fromkeys(metadata["patch_size"])
        size = (metadata["hidden_size"], patch, metadata["num_layers"])
        if other or metadata["mlp_dim"] != mlp_ratio * metadata["hidden_size"]:
            return None
        return names.get(size)

    def read_config(config):
        arguments = configs.section(config, "model_args")
        configs.choice(arguments, "act_layer", ("gelu",))
        found = timm_config.read(config)
        own = found.get("architecture", prefix).startswith(prefix)
        return (pixels if own else {}) | found

    def config_of(metadata):
        return timm_config.write(
            metadata,
            architecture(metadata),
            img_size=list(metadata["image_size"]),
        )

    def refused(metadata, format):
        return table.refuse_pre_logits(metadata) + table.listed(
            {
                "patch_size, hidden_size, mlp_dim and num_layers of none of "
                f"its architectures, {tuple(names.values())}": (
                    architecture(metadata) is None
                )
            }
        )

    return dict(
        read_config=read_config,
        naming_schemes={"timm": None},
        config_of=config_of,
        refused=refused,
        differences=table.pixel_differences,
    )
