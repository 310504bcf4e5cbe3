"""VideoMAE, in transformers."""

import dataclasses
import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, patches, table
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "VideoMAE"
MODEL_TYPES = ("videomae",)
RESIZES: dict = {}
MODEL: dict = dict(
    fields=("activation", "qkv_bias"),
    fixed=dict(class_token=False, position_prefix=0, positions=False),
)
_SELF = "encoder.layer.{i}.attention.attention."
NAMES: dict = transformers.BERT_NAMES | dict(
    class_token=None,
    positions=None,
    q_bias=f"{_SELF}q_bias",
    v_bias=f"{_SELF}v_bias",
    fc_norm="fc_norm",
)
_PATCHES = "embeddings.patch_embeddings.projection.weight"
_KINDS = dict(
    videomae=transformers.defaults(
        1e-12, hidden_size=768, image_size=224, patch_size=16
    )
)
# Beside the encoder, in files of pre-training.
_DECODER = r"(decoder|encoder_to_decoder)\..*|mask_token"


def grid(metadata: dict) -> tuple[int, ...]:
    """Return the (frames, rows, columns) of tubelets."""
    size = metadata.get("tubelet_size", 2)
    frames = metadata.get("num_frames") or size
    return (frames // size, *patches.grid(metadata))


def settings(config: dict) -> dict:
    """Return the metadata in a config."""
    found = transformers.settings(config, _KINDS)
    bias = configs.flag(config, "qv_bias")
    if bias is None:
        bias = configs.flag(config, "qkv_bias")
    return found | dict(
        num_frames=configs.integer(config, "num_frames") or 16,
        tubelet_size=configs.integer(config, "tubelet_size") or 2,
        **({} if bias is None else dict(qkv_bias="qv" if bias else "none")),
    )


def merge_frames(arrays: dict, tubelet_size: int) -> None:
    """Make the frames of the kernel of tubelets channels, [D, S * C, P, P]."""
    kernel = arrays[_PATCHES]
    shape = kernel.shape
    if len(shape) != 5 or shape[2] != tubelet_size:
        raise ValueError(
            f"expected `{_PATCHES}` of 5 axes with {tubelet_size} frames; "
            f"found shape {shape}"
        )
    width, channels, frames, *patch = shape
    merged = (width, frames * channels, *patch)
    arrays[_PATCHES] = kernel.map(
        lambda a: a.transpose(0, 2, 1, 3, 4).reshape(merged), merged
    )


def split_frames(arrays: dict, tubelet_size: int) -> None:
    """Invert `merge_frames`."""
    kernel = arrays[_PATCHES]
    width, _, *patch = kernel.shape
    kernel = kernel.reshape(width, tubelet_size, -1, *patch)
    arrays[_PATCHES] = np.ascontiguousarray(kernel.transpose(0, 2, 1, 3, 4))


def sizes(found: dict, specified: dict) -> dict:
    """Return the metadata of arrays with the frames of a tubelet apart."""
    frames = specified["tubelet_size"]
    found = dict(found, channels=found["channels"] // frames)
    found.pop("grid", None)  # of a frame
    return found | dict(tubelet_size=frames)


def _flatten(arrays, metadata):
    """Read the pooling; of a file of pre-training the encoder remains.

    Where it has no norm, a classifier begins with a new one after the mean.
    """
    whole = [n for n in arrays if re.fullmatch(_DECODER, n)]
    arrays, prefix = transformers.flatten(arrays, ("videomae.",), _DECODER)
    merge_frames(arrays, metadata["tubelet_size"])
    if whole and f"{NAMES['norm']}.weight" not in arrays:
        shape = arrays[_PATCHES].shape[:1]
        arrays["fc_norm.weight"] = Stored(shape, lambda: np.ones(shape))
        arrays["fc_norm.bias"] = Stored(shape, lambda: np.zeros(shape))
    normed = f"{NAMES['norm']}.weight" in arrays
    metadata["global_pool"] = "first" if normed else "avg"
    return arrays, (prefix, metadata["tubelet_size"])


def _restore(arrays, scheme):
    prefix, tubelet_size = scheme
    arrays = dict(arrays)
    split_frames(arrays, tubelet_size)
    return transformers.restore(arrays, prefix, ("classifier.", "fc_norm."))


def _scheme(metadata):
    top = metadata["classes"] is not None
    return "videomae." if top else "", metadata["tubelet_size"]


def config_of(metadata: dict, architecture: str, **fields) -> dict:
    """Return the config of transformers for a model."""
    config = transformers.config_of(
        metadata,
        "videomae",
        architecture,
        num_frames=metadata["num_frames"],
        tubelet_size=metadata["tubelet_size"],
        qv_bias=metadata["qkv_bias"] == "qv",
        use_mean_pooling=metadata["pooling"] != "first",
        **fields,
    )
    if "preprocessor" in config:
        kind = "VideoMAEImageProcessor"
        config["preprocessor"]["image_processor_type"] = kind
    return config


def _config_of(metadata):
    if metadata["classes"] is None:
        return config_of(metadata, "VideoMAEModel")
    return config_of(
        metadata,
        "VideoMAEForVideoClassification",
        **transformers.labels(metadata),
    )


def refusals(metadata: dict) -> dict:
    """Return what VideoMAEs of transformers lack -> whether a model has it."""
    return {
        "qkv_bias='qkv'": metadata["qkv_bias"] == "qkv",
        "activation='swiglu'": metadata["activation"] == "swiglu",
    }


def _refused(metadata, format):
    top, pooling = metadata["classes"] is not None, metadata["pooling"]
    without = "gap_unnormed" if top else "gap_norm"
    has = refusals(metadata) | {f"pooling={pooling!r}": pooling == without}
    return transformers.refused(metadata, format) + table.listed(has)


_BASE = formats.transformers_format(
    NAMES,
    _config_of,
    requires=(),
    defaults=_KINDS,
    read_config=settings,
    flatten=_flatten,
    restore=_restore,
    naming_schemes={"huggingface": _scheme},
    resampling=lambda metadata: None,
    refused=_refused,
    **MODEL,
)
FORMATS = {
    "huggingface": dataclasses.replace(
        _BASE,
        read_arrays=lambda arrays, config, specified: sizes(
            _BASE.read_arrays(arrays, config, specified), specified
        ),
    )
}
FORMATS["keras_vit"] = formats.keras_files(FORMATS["huggingface"])
