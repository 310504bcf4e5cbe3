"""MViT in the files of PySlowFast (the authors'), torchvision and our own.

Checked against slowfast/models/video_model_builder.py of
facebookresearch/SlowFast and torchvision/models/video/mvit.py. The arrays do
not show the strides: a config specifies them, or they are those of a published
model.

An image model's checkpoint fills a video model as the authors inflate it
(`inflate_weight` in slowfast/utils/checkpoint.py): a kernel of one frame is
repeated over the frames of the video model's kernel and divided by their
number, so that a video of equal frames gives the result of the image. A joint
table of positions becomes the spatial one, and the temporal one starts at zero.
"""

import functools
import math
import re

import numpy as np

from keras_vit.weights import resize
from keras_vit.weights.rules import keras_format, table
from keras_vit.weights.rules.mvit import reading, slowfast, tables, torchvision
from keras_vit.weights.rules.patches import check_heads_and_grid

TITLE = "MViT"
grid = reading.grid
# What a ViT of timm does not have; without pooling's kernels, and without a
# head or a config, a model of one stage of images has the names of a ViT.
OWN_NAMES = (
    r"head\.projection\..*|pos_embed_(spatial|temporal|class)"
    r"|blocks\.\d+\.(attn\.pool_k|proj)\..*"
    r"|patch_embed\.proj\.weight of 5 axes|config\.MVIT"
)
_REQUIRED = dict(
    num_heads="those of each stage, such as (1, 2, 4, 8)",
    cube_stride="(2, 4, 4) of videos, (1, 4, 4) of images",
    pooling_mode="'conv', 'max', 'avg' or 'none'",
    query_stride="(1, 2, 2)",
    key_value_stride="(1, 8, 8) of videos, (1, 4, 4) of images",
)


def _positions(value, fit, axes):
    """Resample a table of positions, `[1, rows, D]`, in time and space.

    Linear between the centres of tokens, each axis separately, as the authors'
    `_get_pos_embed` does. The row of the class token is unchanged.
    """
    if fit.source_grid is None or fit.grid is None:
        return value
    source, target = (
        ((1,) * (3 - len(grid)) + tuple(grid))[axes]
        for grid in (fit.source_grid, fit.grid)
    )
    matrices = map(resize.bilinear, source, target)
    first = value.shape[1] - math.prod(source)
    if first not in (0, 1):
        return value
    places = value[0, first:].reshape(*source, -1).astype("float64")
    for axis, matrix in enumerate(matrices):
        places = np.moveaxis(np.tensordot(matrix, places, (1, axis)), 0, axis)
    places = places.reshape(1, math.prod(target), -1).astype(value.dtype)
    return np.concatenate([value[:, :first], places], axis=1)


def _inflate(value, fit):
    """Repeat a kernel of one frame over time, keeping its sum."""
    frames = fit.shape[0]
    if value.shape[0] != 1 or frames == 1:
        return value
    return np.repeat(value / frames, frames, axis=0).astype(value.dtype)


def _fit_patches(value, fit):
    """Fit the patch kernel to other numbers of frames and channels."""
    value = _inflate(value, fit)
    flat = value.reshape(-1, *value.shape[2:])
    folded = resize.fold_channels(flat, fit.shape[3])
    return folded.reshape(*value.shape[:2], *folded.shape[1:])


RESIZES = {
    "patch_embed/kernel": _fit_patches,
    r"blocks_\d+/attn/pool_[qkv]/kernel": _inflate,
    "pos_encoding/joint_pos": functools.partial(_positions, axes=slice(3)),
    "pos_encoding/spatial_pos": functools.partial(_positions, axes=slice(1, 3)),
    "pos_encoding/temporal_pos": functools.partial(_positions, axes=slice(1)),
}


def _adapt(arrays, found, wanted, names, patches=None):
    """Return the arrays of an image model as those of a video model.

    Args:
        names: Variable of positions -> its name in the checkpoint.
        patches: Name of the patch kernel, if that of image models has no axis
            of frames.
    """
    arrays = dict(arrays)
    if patches in arrays:
        arrays[patches] = _with_frames(arrays[patches], tables.is_flat(wanted))
    kinds = (found["position_embedding"], wanted["position_embedding"])
    if kinds != ("joint", "separate") or found.get("num_frames") is not None:
        return arrays
    joint = arrays.pop(names["joint_pos"])
    _, rows, width = joint.shape
    first = int(found["pooling"] == "token")
    arrays[names["spatial_pos"]] = joint.map(
        lambda array: array[:, first:], (1, rows - first, width)
    )
    arrays[names["temporal_pos"]] = joint.map(
        lambda array: np.zeros((1, 1, width), array.dtype), (1, 1, width)
    )
    if first:
        arrays[names["class_pos"]] = joint.map(
            lambda array: array[:, :1], (1, 1, width)
        )
    return arrays


def _with_frames(kernel, is_flat):
    """Add or remove an axis of one frame."""
    shape = kernel.shape
    if len(shape) == 4 and not is_flat:
        shape = (*shape[:2], 1, *shape[2:])
    elif len(shape) == 5 and shape[2] == 1 and is_flat:
        shape = (*shape[:2], *shape[3:])
    return kernel.map(lambda array: array.reshape(shape), shape)


def _fuse(arrays, specified):
    """Join the three projections of the first files."""
    arrays = dict(arrays)
    for name in list(arrays):
        match = re.fullmatch(r"(blocks\.\d+\.attn\.)q(\.weight|\.bias)", name)
        if match:
            parts = [f"{match[1]}{part}{match[2]}" for part in "qkv"]
            table.join(arrays, parts, f"{match[1]}qkv{match[2]}")
    return arrays, None


def _format(rows, block, patches, is_slowfast=False, **kwargs):
    """Return a format.

    Args:
        rows: Its table.
        block: Pattern of the names of a block.
        patches: Name of the kernel of patches.
        is_slowfast: Whether it is PySlowFast's: the kernel of patches of images
            has no axis of frames, and kernels of pooling may show strides.
    """
    block = re.compile(block)

    def rules(metadata):
        flat = is_slowfast and tables.is_flat(metadata)
        absent = tables.absent_paths(metadata)
        every = tables.expand(rows, sum(metadata["depths"]), flat)
        return [rule for rule in every if not rule.path.startswith(absent)]

    def read_arrays(arrays, config, specified):
        is_image = is_slowfast and len(arrays[patches].shape) == 4
        every = tables.expand(rows, table.count(arrays, block), is_image)
        paths = {
            rule.path for rule in every if arrays.keys() >= {*rule.sources}
        }
        shape_of = table.shapes(arrays, every, of_variable=True)
        if not is_slowfast and "pos_encoding/temporal_pos" in paths:
            frames = shape_of("pos_encoding/temporal_pos", 3)[1]
            is_image = frames == shape_of("patch_embed/kernel", 5)[0] == 1
        return reading.read(shape_of, paths, specified, is_image, is_slowfast)

    return table.Format(
        rules=rules,
        read_arrays=read_arrays,
        required=lambda metadata: _REQUIRED,
        check=check_heads_and_grid,
        differences=table.pixel_differences,
        **kwargs,
    )


def _torchvision_refused(metadata, format):
    """List what torchvision's MViT does not have."""
    only = dict(pooling="token", position_embedding="separate", mlp_ratio=4)
    found = [
        f"{name}={metadata[name]!r}"
        for name, value in only.items()
        if metadata[name] != value
    ]
    strides = {*metadata["query_stride"], *metadata["key_value_stride"]}
    if metadata["pooling_mode"] in ("max", "avg") and strides != {(1, 1, 1)}:
        found.append(f"pooling_mode={metadata['pooling_mode']!r}")
    return found + table.refuse_pre_logits(metadata)


_POSITIONS = ("joint_pos", "spatial_pos", "temporal_pos", "class_pos")
FORMATS = {
    "authors": _format(
        tables.slowfast_rows(),
        r"blocks\.(\d+)\.",
        "patch_embed.proj.weight",
        is_slowfast=True,
        requires=(
            r"patch_embed\.proj\.weight",
            r"blocks\.0\.attn\.(qkv|q)\.weight",
            r"norm\.weight",
            OWN_NAMES,
        ),
        forbids={
            r".*\.rel_pos_[hwt]": "an MViTv2: relative positions are",
            r".*\.norm_[qkv]\.running_mean": "an MViT with BatchNorm: batch "
            "statistics are",
        },
        read_config=slowfast.read,
        flatten=_fuse,
        adapt=functools.partial(
            _adapt,
            names=dict(
                joint_pos="pos_embed",
                **{x: f"pos_embed_{x[:-4]}" for x in _POSITIONS[1:]},
            ),
            patches="patch_embed.proj.weight",
        ),
        naming_schemes={"authors": None},
        config_of=lambda metadata: slowfast.write(
            metadata, tables.blocks_of(metadata)
        ),
    ),
    "torchvision": _format(
        tables.torchvision_rows(),
        r"blocks\.(\d+)\.",
        "conv_proj.weight",
        requires=(r"conv_proj\.weight", r"pos_encoding\.class_token"),
        forbids={r".*\.rel_pos_[hwt]": "an MViTv2: relative positions are"},
        read_config=torchvision.read,
        naming_schemes={"torchvision": None},
        config_of=lambda metadata: torchvision.write(
            metadata, tables.blocks_of(metadata)
        ),
        refused=_torchvision_refused,
    ),
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"],
    requires=("patch_embed/0", r"blocks_0/attn/qkv/0"),
    adapt=functools.partial(
        _adapt, names={x: f"pos_encoding/{x}" for x in _POSITIONS}
    ),
)
