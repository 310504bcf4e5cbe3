"""The formats of the ViTs after the paper.

The families (`models/encoder.py`) have the same layers under the same names.
`rows` names the variables, `reading` reads an architecture, and `timm` and
`transformers` have the names and configs of these libraries.
"""

from keras_vit.weights.rules import keras_format, table, timm_config
from keras_vit.weights.rules.encoder import reading, rows

REQUIRED = dict(
    num_heads="12 (ViT-B)",
    activation="'gelu' (most of timm), 'gelu_tanh' (SigLIP) or 'quick_gelu' "
    "(OpenAI's CLIP)",
    layer_norm_epsilon="1e-6 (timm's DeiT, DINOv2, SigLIP), 1e-5 (CLIP, "
    "DINOv3) or 1e-12 (transformers' DeiT, BEiT)",
    classifier="'token', 'gap', 'gap_norm' or 'map'",
)
RESIZES = {
    "embedding/kernel": table.fit_pixels,
    rows.SINGLE["positions"]: table.fit_positions,
}


def check_heads(found: dict, wanted: dict) -> None:
    """Check the number of heads, which shapes do not show."""
    heads = found.get("num_heads")
    if heads and heads != wanted["num_heads"]:
        raise ValueError(
            f"`num_heads` must be that of the checkpoint, {heads}. Received: "
            f"num_heads={wanted['num_heads']}"
        )


def formats(
    names: dict,
    *,
    requires: tuple[str, ...],
    read_config,
    fields: tuple[str, ...] = (),
    fixed: dict | None = None,
    resampling=timm_config.resampling,
    derived=lambda metadata: {},
    **kwargs,
) -> table.Format:
    """Return a format of a family.

    Args:
        names: See `rows.rules`.
        requires, read_config, resampling, **kwargs: See `table.Format`.
        fields: The properties of `rows.DEFAULTS` in which the family's models
            differ.
        fixed: Values of others, if not those of `rows.DEFAULTS`.
        derived: Returns properties that follow from others, given metadata.
    """
    constants = {k: v for k, v in rows.DEFAULTS.items() if k not in fields}
    constants |= fixed or {}

    def of(metadata):
        named = rows.readout(names, metadata.get("classifier"))
        return rows.rules(named, {**metadata, **derived(metadata), **constants})

    def read(arrays, config, specified):
        found = reading.read_arrays(names, arrays, specified)
        if isinstance(names["qkv"], str):
            found |= reading.groups(names, arrays, found)
        if found.get("activation") == "swiglu":  # configs name that of the gate
            specified.pop("activation", None)
        for name, value in constants.items():
            if found.get(name, value) != value:
                raise ValueError(
                    f"a model of its names with {name}={found[name]!r} is not "
                    "supported"
                )
        return found

    return table.Format(
        rules=of,
        read_arrays=read,
        read_config=read_config,
        required=lambda metadata: REQUIRED,
        requires=requires,
        resampling=resampling,
        check=check_heads,
        **kwargs,
    )


def keras_files(like: table.Format, *paths: str) -> table.Format:
    """Return the format of a family's `.keras` files.

    Args:
        like: Another format of the family; its library's way to resample is
            that of files that specify none.
        *paths: Patterns of numbered names that only this family has.
    """
    return keras_format.derive(
        like, requires=("embedding/0", "encoder_norm/0", *paths)
    )
