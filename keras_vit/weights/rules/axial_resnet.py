"""Axial-ResNet in the authors' PyTorch names, in scenic's, and in our files.

Checked against lib/models/axialnet.py of csrhddlam/axial-deeplab and
scenic/projects/baselines/axial_resnet.py of google-research/scenic.
"""

import re

import numpy as np

from keras_vit.weights import resize
from keras_vit.weights.rules import imagenet, keras_format, table, torch_modules

TITLE = "Axial-ResNet"
_UNIT = "block{b}_unit{u}"
_ATTENTION = "SelfAttentionWith1DRelativePos_0"
# 1-D convolutions with a kernel of one pixel: [out, in, 1].
_DENSE = table.Transform(
    lambda kernel: kernel[..., 0].T, lambda kernel: (kernel.T[..., None],)
)


def _authors_rows():
    unit = "layer{b}.{u0}"
    convolutions = {
        "conv_root": "conv1",
        f"{_UNIT}/conv_down": f"{unit}.conv_down",
        f"{_UNIT}/conv_up": f"{unit}.conv_up",
        f"{_UNIT}/conv_proj": f"{unit}.downsample.0",
    }
    norms = {
        "bn_root": "bn1",
        f"{_UNIT}/bn1": f"{unit}.bn1",
        f"{_UNIT}/bn2": f"{unit}.bn2",
        f"{_UNIT}/bn_proj": f"{unit}.downsample.1",
    }
    rows = table.layer_rows({"head": "fc"}, table.TORCH_DENSE)
    for axis, name in (("height", "hight_block"), ("width", "width_block")):
        ours, theirs = f"{_UNIT}/{axis}_block", f"{unit}.{name}"
        rows.append((f"{ours}/relative", f"{theirs}.relative"))
        name = f"{theirs}.qkv_transform.weight"
        rows.append((f"{ours}/qkv/kernel", name, _DENSE))
        for norm in ("bn_qkv", "bn_similarity", "bn_output"):
            norms[f"{ours}/{norm}"] = f"{theirs}.{norm}"
    rows += table.layer_rows(convolutions, table.TORCH_CONVOLUTION, "kernel")
    return rows + table.layer_rows(norms, table.TORCH_BATCH_NORM)


def _scenic_rows():
    unit = "block{b}/unit{u}"
    same = {"conv_root": "conv_root"}
    norms = {"gn_root": "gn_root"}
    for number in ("1", "3", "_proj"):
        same[f"{_UNIT}/conv{number}"] = f"{unit}/conv{number}"
        norms[f"{_UNIT}/gn{number}"] = f"{unit}/gn{number}"
    rows = table.layer_rows({"head": "output_projection"}, table.FLAX_LAYER)
    for n, axis in enumerate(("height", "width")):
        ours = f"{_UNIT}/{axis}_block"
        theirs = f"{unit}/AxialSelfAttention_{n}/{_ATTENTION}"
        rows.append((f"{ours}/relative", f"{theirs}/relative_pos_emb"))
        same[f"{ours}/qkv"] = f"{theirs}/Dense_0"
        for norm in ("gn_qkv", "gn_out"):
            norms[f"{ours}/{norm}"] = f"{theirs}/{norm}"
    rows += table.layer_rows(same, table.FLAX_LAYER, "kernel")
    return rows + table.layer_rows(norms, table.FLAX_NORM)


_ROWS = dict(batch_norm=_authors_rows(), group_norm=_scenic_rows())


grid = table.no_grid


def _fit_distances(value, fit):
    """Resample a table of distances, [2 E, 2 N - 1], to other lengths."""
    before, after = (value.shape[1], 1), (fit.shape[1], 1)
    return resize.resample_positions(value.T[None], before, after)[0].T


RESIZES = {
    "conv_root/kernel": table.fit_pixels,
    r"block\d+_unit\d+/(height|width)_block/relative": _fit_distances,
}


def _rules(metadata):
    return table.expand(
        _ROWS[metadata.get("normalization") or "batch_norm"],
        units=tuple(metadata["depths"]),
        absent=table.without_top(metadata),
    )


def _format(normalization, unit, before_attention, **kwargs):
    unit = re.compile(unit)

    def read_arrays(arrays, config, specified):
        found = dict(
            depths=table.depths(arrays, unit), normalization=normalization
        )
        every = _rules(found | dict(classes=1))
        shape_of = table.shapes(arrays, every)
        root = shape_of("conv_root/kernel", 4)
        axes = ("block1_unit1/height_block", "block1_unit1/width_block")
        width = shape_of(f"block1_unit1/{before_attention}/kernel", 4)[3]

        def length_of(axis):  # in the first map, a quarter of the image
            return (shape_of(f"{axis}/relative", 2)[1] + 1) // 2

        # Heads share a table of twice their width.
        head_size = shape_of(f"{axes[0]}/relative", 2)[0] // 2
        return found | dict(
            width_factor=root[3] / 64,
            num_heads=width // head_size,
            channels=root[2],
            image_size=tuple(4 * length_of(axis) for axis in axes),
            **table.read_top(arrays, every),
        )

    return table.Format(
        rules=lambda metadata: _rules(
            metadata | dict(normalization=normalization)
        ),
        read_arrays=read_arrays,
        refused=lambda metadata, format: _refused(metadata, normalization),
        **kwargs,
    )


def _refused(metadata, normalization):
    given = metadata.get("normalization", normalization)
    return table.refuse_pre_logits(metadata) + table.listed(
        {f"normalization={given!r}": given != normalization}
    )


def _restore(arrays, scheme):
    """Add the buffers that PyTorch's modules derive or count, and require."""
    for name in [name for name in arrays if name.endswith(".relative")]:
        place = np.arange((arrays[name].shape[1] + 1) // 2)
        index = place[:, None] - place[None] + len(place) - 1
        buffer = name.removesuffix("relative") + "flatten_index"
        arrays[buffer] = index.reshape(-1)
    return torch_modules.restore(arrays, scheme)


FORMATS = {
    "authors": _format(
        "batch_norm",
        r"layer(\d+)\.(\d+)\.",
        "conv_down",
        requires=(r"layer1\.0\.hight_block\.relative",),
        read_config=lambda config: dict(imagenet.PIXELS),
        restore=_restore,
        naming_schemes={"authors": None},
        config_of=lambda metadata: dict(
            layers=list(metadata["depths"]),
            s=metadata["width_factor"],
            groups=metadata["num_heads"],
            num_classes=metadata["classes"],
        ),
        differences=imagenet.differences,
    ),
    "jax": _format(
        "group_norm",
        r"block(\d+)/unit(\d+)/",
        "conv1",
        requires=(rf"block1/unit1/AxialSelfAttention_0/{_ATTENTION}/.*",),
        read_config=lambda config: dict(pixel_mean=127.5, pixel_std=127.5),
        naming_schemes={"jax": None},
        differences=lambda metadata: table.pixel_differences(metadata, 127.5),
    ),
}
FORMATS["keras_vit"] = keras_format.derive(
    table.Format(requires=(), rules=_rules, read_arrays=lambda *_: {}),
    requires=("conv_root/0", r"block1_unit1/height_block/.*"),
)
