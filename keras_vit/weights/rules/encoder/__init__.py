"""The formats of the ViTs after the paper.

The families (`models/encoder.py`) have the same layers under the same names.
`rows` names the variables, `reading` reads an architecture, and `timm` and
`transformers` have the names and configs of these libraries.
"""

import math

from keras_vit.weights import resize
from keras_vit.weights.rules import keras_format, patches, table
from keras_vit.weights.rules.encoder import reading, rows

REQUIRED = dict(
    num_heads="12 (ViT-B)",
    activation="'gelu' (most of timm), 'gelu_tanh' (SigLIP) or 'quick_gelu' "
    "(OpenAI's CLIP)",
    layer_norm_epsilon="1e-6 (timm's DeiT, DINOv2, SigLIP), 1e-5 (CLIP, "
    "DINOv3) or 1e-12 (transformers' DeiT, BEiT)",
    classifier="'token', 'gap', 'gap_norm' or 'map'",
)
# The formats' `adapt` resamples positions, since each library does it in its
# own way.
RESIZES = {"embedding/kernel": table.fit_pixels}


def check_heads(found: dict, wanted: dict) -> None:
    """Checks the number of heads, which shapes do not show."""
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
    antialias=lambda metadata: True,
    fixed: dict | None = None,
    derived=lambda metadata: {},
    resample=None,
    **kwargs,
) -> table.Format:
    """Returns a format of a family.

    Args:
        names: See `rows.rules`.
        requires, read_config, **kwargs: See `table.Format`.
        fields: The properties of `rows.DEFAULTS` in which the family's models
            differ.
        antialias: Whether the library resamples position embeddings with
            antialiasing, given metadata.
        fixed: Values of others, if not those of `rows.DEFAULTS`.
        resample: See `table.Format.adapt`; None resamples `positions`.
        derived: Returns properties that follow from others, given metadata.
    """
    constants = {k: v for k, v in rows.DEFAULTS.items() if k not in fields}
    constants |= fixed or {}

    def of(metadata):
        named = rows.readout(names, metadata.get("classifier"))
        return rows.rules(named, {**metadata, **derived(metadata), **constants})

    def read(arrays, config, specified):
        found = reading.read_arrays(names, arrays, specified)
        if found.get("activation") == "swiglu":  # configs name that of the gate
            specified.pop("activation", None)
        for name, value in constants.items():
            if found.get(name, value) != value:
                raise ValueError(
                    f"a model of its names with {name}={found[name]!r} is not "
                    "supported"
                )
        return found

    def adapt(arrays, found, wanted):
        return _adapt(arrays, found, wanted, names, antialias(found))

    return table.Format(
        rules=of,
        read_arrays=read,
        read_config=read_config,
        required=lambda metadata: REQUIRED,
        requires=requires,
        check=check_heads,
        adapt=resample or adapt,
        **kwargs,
    )


def _adapt(arrays, found, wanted, names, antialias):
    """Resamples position embeddings as a library does."""
    name, target = names.get("positions"), wanted.get("grid")
    source = found.get("grid")
    if source is None and "image_size" in found:
        source = patches.grid(found)
    if name not in arrays or None in (source, target) or source == target:
        return arrays
    stored = arrays[name]
    width, first = stored.shape[-1], stored.shape[-2] - math.prod(source)

    def resample(array):
        shape = array.shape[:-2]
        array = resize.resample_bicubic(
            array.reshape(1, -1, width), source, target, antialias
        )
        return array.reshape(*shape, -1, width)

    shape = (*stored.shape[:-2], first + math.prod(target), width)
    return {**arrays, name: stored.map(resample, shape)}


def keras_files(like: table.Format, *paths: str, resample=None) -> table.Format:
    """Returns the format of a family's `.keras` files.

    Args:
        like: Another format of the family.
        *paths: Patterns of numbered names that only this family has.
        resample: See `formats`; positions are resampled as timm does.
    """
    names = dict(positions=rows.SINGLE["positions"])

    def adapt(arrays, found, wanted):
        return _adapt(arrays, found, wanted, names, antialias=True)

    return keras_format.derive(
        like,
        requires=("embedding/0", "encoder_norm/0", *paths),
        adapt=resample or adapt,
    )
