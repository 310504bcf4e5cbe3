"""Models of released files: the backbone, the head, and their weights."""

import dataclasses
from collections.abc import Callable

from keras_vit.heads.beit_masked import beit_masked
from keras_vit.heads.depth_anything import depth_anything
from keras_vit.heads.dpt import dpt
from keras_vit.heads.eomt import eomt
from keras_vit.heads.masked import mae
from keras_vit.heads.owl import owl
from keras_vit.heads.task_model import TaskModel
from keras_vit.heads.vitpose import vitpose
from keras_vit.heads.yolos import yolos
from keras_vit.models import arguments
from keras_vit.models.build import build
from keras_vit.models.families import FAMILIES, OPENERS
from keras_vit.weights import load, preprocessing
from keras_vit.weights.checkpoint import Checkpoint, complete

# The arguments of `from_pretrained` that these models take, beside the head's.
_ARGUMENTS = (
    *("classes", "class_names", "input_shape", "include_preprocessing"),
    *("pixel_mean", "pixel_std", "name", "remat", "dtype"),
)


@dataclasses.dataclass(frozen=True)
class Release:
    """How the model of a kind of file is built.

    Attributes:
        head: The function of the head.
        options: The names of its arguments that files specify.
        backbone: Returns the family of the backbone and the fields of its
            configuration, given metadata.
        changes: The names of its arguments that a caller may change.
    """

    head: Callable
    options: tuple[str, ...]
    backbone: Callable
    changes: tuple[str, ...] = ()


def plain_vit(metadata: dict) -> tuple[str, dict]:
    """Return ViT as the backbone, or its relative with more options."""
    activation = metadata["activation"]
    tanh = activation == "gelu_tanh"
    if metadata["qkv_bias"] == "qkv" and activation in ("gelu", "gelu_tanh"):
        return "vit", metadata | dict(gelu_approximate=tanh)
    return "dinov2", metadata


_EOMT: dict = dict(
    head=eomt,
    options=(
        *("num_queries", "num_blocks", "num_upscale_blocks"),
        *("masked_attention", "kind", "view"),
    ),
    changes=("auxiliary_blocks", "masked_attention", "kind", "view"),
)


_MAE: dict = dict(
    head=mae,
    options=(
        *("decoder_num_layers", "decoder_hidden_size", "mask_ratio"),
        *("decoder_num_heads", "decoder_mlp_dim", "target"),
    ),
    changes=("mask_ratio", "target"),
)


def vit_or_dinov2(metadata: dict) -> tuple[str, dict]:
    """Return DINOv2 as the backbone where there is LayerScale, or ViT."""
    if metadata["layer_scale"]:
        return "dinov2", metadata
    return plain_vit(metadata)


RELEASES = {
    "yolos": Release(
        yolos,
        ("num_detection_tokens", "mid_positions"),
        plain_vit,
        ("auxiliary_blocks",),
    ),
    "eomt": Release(**_EOMT, backbone=lambda found: ("dinov2", found)),
    "eomt_dinov3": Release(**_EOMT, backbone=lambda found: ("dinov3", found)),
    "dpt": Release(
        dpt,
        (
            *("blocks", "last_norm", "neck_sizes", "fusion_size", "readout"),
            *("readout_activation", "unused_weights", "head_dropout_rate"),
            *("batch_norm", "residual_bias", "projection"),
        ),
        vit_or_dinov2,
    ),
    "depth_anything": Release(
        depth_anything,
        (
            *("kind", "max_depth", "blocks", "last_norm", "neck_sizes"),
            *("fusion_size", "head_size", "unused_weights"),
        ),
        vit_or_dinov2,
    ),
    **dict.fromkeys(
        ("owlvit", "owlv2"),
        Release(
            owl,
            ("embedding_size", "objectness", "pads", "unused_weights"),
            lambda metadata: ("clip", metadata),
        ),
    ),
    "beit_masked": Release(
        beit_masked,
        ("vocab_size", "shared_positions"),
        lambda metadata: ("beit", metadata),
    ),
    "vit_mae": Release(**_MAE, backbone=plain_vit),
    "videomae_pretraining": Release(
        **_MAE, backbone=lambda metadata: ("videomae", metadata)
    ),
    "vitpose": Release(
        vitpose,
        (
            *("decoder", "scale_factor", "block", "shifted_patches"),
            "unused_weights",
        ),
        lambda metadata: ("dinov2", metadata),
    ),
}


def open_release(source: Checkpoint, changes: dict) -> TaskModel:
    """Build the model of a released file, with its weights.

    Args:
        source: The checkpoint.
        changes: Arguments in place of the checkpoint's own.

    Raises:
        ValueError: If an argument has no possible value, or the weights do not
            fit.
        TypeError: If there is no such argument.
    """
    release = RELEASES[source.family]
    known = (*_ARGUMENTS, *release.changes)
    arguments.refuse_unknown("from_pretrained", changes, known)
    source = complete(source, changes)
    metadata = source.metadata
    classes, names = changes.get("classes"), changes.get("class_names")
    if names is not None and classes is None:
        classes = len(names)
    keeps_head = classes in (None, metadata["classes"])
    if classes is not None and metadata["classes"] is None:
        raise ValueError(
            f"`classes` must be None for {source.name!r}, which has none. "
            f"Received: classes={classes}"
        )
    if keeps_head:
        classes = metadata["classes"]
        names = metadata.get("class_names") if names is None else names
    backbone = _backbone(source, release, changes)
    options = {name: metadata[name] for name in release.options}
    options |= {key: changes[key] for key in release.changes if key in changes}
    if options.get("view") == "windows" and "view" not in changes:
        # The file's, of classes of pixels in squares.
        is_same = options["kind"] == metadata["kind"]
        height, width, _ = backbone.image_shape
        options["view"] = (
            "windows" if is_same and height == width else "stretched"
        )
    if classes is not None:
        options |= dict(classes=classes, class_names=names)
    if not keeps_head and "unused_weights" in options:
        options["unused_weights"] = None  # such as a head for training
    model = release.head(backbone, **options, name=changes.get("name"))
    wanted = model.metadata
    if not keeps_head:
        wanted["classes"] = None
    load.fill(model, source, wanted)
    return model


def _backbone(source, release, changes):
    metadata = source.metadata
    shape = changes.get("input_shape")
    if shape is None:
        frames = metadata.get("num_frames")
        shape = (*metadata["image_size"], metadata["channels"])
        shape = shape if frames is None else (frames, *shape)
    mean, std = preprocessing.known(
        changes.get("pixel_mean"),
        changes.get("pixel_std"),
        metadata,
        shape[-1],
    )
    scales = changes.get("include_preprocessing", True)
    if scales:
        preprocessing.scale_and_offset(mean, std, metadata, shape[-1])
    name, found = release.backbone(metadata)
    family = FAMILIES[name]
    fields = {
        field.name: found[field.name]
        for field in dataclasses.fields(family.config)
        if field.name in found
    }
    given = {key: changes[key] for key in ("remat", "dtype") if key in changes}
    backbone = build(
        family,
        dict(
            fields,
            input_shape=shape,
            include_top=False,
            include_preprocessing=scales,
            pixel_mean=mean,
            pixel_std=std,
            **given,
        ),
    )
    backbone._metadata.provenance = source.provenance
    backbone._metadata.resampling = metadata.get("resampling")
    return backbone


for _name in RELEASES:
    OPENERS[_name] = open_release
