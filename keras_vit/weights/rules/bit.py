"""BiT ResNets of the release, bit_pytorch, timm, scenic, and our own files.

Checked against the files of gs://bit_models, bit_pytorch/models.py of
google-research/big_transfer, timm/models/resnetv2.py and
scenic/projects/baselines/bit_resnet.py. All but scenic's are pre-activation;
timm adds 1e-8 to the variance of kernels, the others 1e-10.
"""

import functools
import re

from keras_vit.weights.rules import configs, keras_format, table, timm_config

TITLE = "BiT ResNet"
_UNIT = "block{b}_unit{u}"
# The head is a convolution of 1 x 1 pixels.
_HEAD = table.Transform(
    lambda kernel: kernel.reshape(kernel.shape[-2:]),
    lambda kernel: (kernel.reshape(1, 1, *kernel.shape),),
)
_TORCH_HEAD = table.Transform(
    lambda kernel: kernel.reshape(kernel.shape[:2]).T,
    lambda kernel: (kernel.T.reshape(*kernel.shape[::-1], 1, 1),),
)
_REQUIRED = dict(
    activation_order="'pre_activation' (the release, timm)",
    numerics="'bit' (the release) or 'timm'",
)
_TIMM = dict(activation_order="pre_activation", numerics="timm")
# Units, width: architecture of timm. No argument changes these.
_ARCHITECTURES = {
    ((3, 4, 6, 3), 1): "resnetv2_50x1_bit",
    ((3, 4, 6, 3), 3): "resnetv2_50x3_bit",
    ((3, 4, 23, 3), 1): "resnetv2_101x1_bit",
    ((3, 4, 23, 3), 3): "resnetv2_101x3_bit",
    ((3, 8, 36, 3), 2): "resnetv2_152x2_bit",
    ((3, 8, 36, 3), 4): "resnetv2_152x4_bit",
}


def _release_rows():
    unit = "resnet/block{b}/unit{u:02}"
    convolutions = {
        "conv_root": "resnet/root_block",
        f"{_UNIT}/conv_proj": f"{unit}/a/proj",
    }
    norms = {"group_norm": "resnet"}
    for n, letter in enumerate("abc", 1):
        convolutions[f"{_UNIT}/conv{n}"] = f"{unit}/{letter}"
        norms[f"{_UNIT}/gn{n}"] = f"{unit}/{letter}"
    parts = {x: (f"/group_norm/{x}",) for x in ("gamma", "beta")}
    head = dict(kernel=("/kernel", _HEAD), bias=("/bias",))
    return [
        *table.layer_rows({"head": "resnet/head/conv2d"}, head),
        *table.layer_rows(
            convolutions, dict(kernel=("/standardized_conv2d/kernel",))
        ),
        *table.layer_rows(norms, parts),
    ]


def _torch_rows(root, unit, projection, unit_norm, norm, head):
    convolutions = {
        "conv_root": root,
        f"{_UNIT}/conv_proj": f"{unit}.{projection}",
    }
    norms = {"group_norm": norm}
    for n in (1, 2, 3):
        convolutions[f"{_UNIT}/conv{n}"] = f"{unit}.conv{n}"
        norms[f"{_UNIT}/gn{n}"] = f"{unit}.{unit_norm}{n}"
    parts = dict(kernel=(".weight", _TORCH_HEAD), bias=(".bias",))
    return [
        *table.layer_rows({"head": head}, parts),
        *table.layer_rows(convolutions, table.TORCH_CONVOLUTION, "kernel"),
        *table.layer_rows(norms, table.TORCH_NORM),
    ]


def _scenic_rows():
    names = {"conv_root": "conv_root", "gn_root": "gn_root"}
    for layer in ("conv1", "conv2", "conv3", "conv_proj"):
        names[f"{_UNIT}/{layer}"] = f"block{{b}}/unit{{u}}/{layer}"
        norm = layer.replace("conv", "gn")
        names[f"{_UNIT}/{norm}"] = f"block{{b}}/unit{{u}}/{norm}"
    convolutions = {p: n for p, n in names.items() if "conv" in p}
    norms = {p: n for p, n in names.items() if "gn" in p}
    return [
        *table.layer_rows({"head": "output_projection"}, table.FLAX_LAYER),
        *table.layer_rows(convolutions, table.FLAX_LAYER, "kernel"),
        *table.layer_rows(norms, table.FLAX_NORM),
    ]


def _own_rows():
    paths = [path for path, *_ in _release_rows()]
    for part in ("gamma", "beta"):
        paths += [f"{_UNIT}/gn_proj/{part}", f"gn_root/{part}"]
    return [(path, path) for path in paths]


grid = table.no_grid
RESIZES = {"conv_root/kernel": table.fit_pixels}
# The rows that models of each order do not have.
_ABSENT = {
    "pre_activation": r"gn_root/|.*/gn_proj/",
    "post_activation": r"group_norm/",
}


def _format(rows, unit, **kwargs):
    unit = re.compile(unit)

    def rules(metadata):
        order = metadata.get("activation_order") or "pre_activation"
        return table.expand(
            [row for row in rows if not re.match(_ABSENT[order], row[0])],
            units=tuple(metadata["depths"]),
            absent=table.without_top(metadata),
        )

    def read_arrays(arrays, config, specified):
        found = dict(depths=table.depths(arrays, unit))
        metadata = dict(
            found, classes=1, activation_order=specified.get("activation_order")
        )
        every = rules(metadata)
        shape_of = table.shapes(arrays, every)
        root = shape_of("conv_root/kernel", 4)
        size = (found["depths"], root[3] / 64)
        if size in _ARCHITECTURES and "architecture" not in specified:
            # A state dict alone, of the sizes of an architecture of timm.
            found |= {k: specified.get(k, v) for k, v in _TIMM.items()}
        return found | dict(
            width_factor=root[3] / 64,
            channels=root[2],
            **table.read_top(arrays, every),
        )

    return table.Format(
        rules=rules,
        read_arrays=read_arrays,
        required=lambda metadata: _REQUIRED,
        **kwargs,
    )


def _flatten_big_vision(arrays, metadata):
    """Give the names of big_vision those of scenic; its epsilons differ.

    Arrays without a head and without `params/` have the same names in both, and
    are taken for scenic's: `numerics="authors"` of the model is big_vision's.
    """
    plain = table.without_params(arrays)
    if plain is not arrays or "head/kernel" in arrays:
        metadata["numerics"] = "authors"
    return table.rename(
        plain, lambda name: re.sub("^head/", "output_projection/", name)
    ), None


def _refused(metadata, format, order="pre_activation"):
    given = metadata.get("activation_order", order)
    return table.refuse_pre_logits(metadata) + table.listed(
        {f"activation_order={given!r}": given != order}
    )


def _differences(metadata, numerics, scale=None):
    found = table.pixel_differences(metadata, scale)
    if metadata.get("numerics", numerics) != numerics:
        found.append(f"it has other epsilons, numerics={numerics!r}")
    return found


def _release_config(config):
    return dict(
        activation_order="pre_activation",
        numerics="bit",
        pixel_mean=127.5,
        pixel_std=127.5,
        image_size=(224, 224),
    )


def _timm_config(config):
    arguments = configs.section(config, "model_args")
    configs.choice(arguments, "act_layer", ("relu",))
    if configs.flag(arguments, "avg_down"):
        raise ValueError("shortcuts of means (avg_down) are not supported")
    if (configs.integer(arguments, "output_stride") or 32) < 32:
        raise ValueError("an output_stride below 32 is not supported")
    found = dict(image_size=(224, 224)) | timm_config.read(config)
    # Architectures of other names may compute something different.
    if re.fullmatch("resnetv2_.*_bit", found.get("architecture", "")):
        found |= _TIMM
    return found


def _architecture(metadata):
    size = (tuple(metadata["depths"]), metadata["width_factor"])
    return _ARCHITECTURES.get(size)


def _timm_refused(metadata, format):
    return _refused(metadata, format) + table.listed(
        {
            "depths and width_factor of none of its architectures, "
            f"{tuple(_ARCHITECTURES.values())}": _architecture(metadata) is None
        }
    )


FORMATS = {
    "jax": _format(
        _release_rows(),
        r"resnet/block(\d+)/unit(\d+)/",
        requires=(r"resnet/root_block/standardized_conv2d/kernel",),
        read_config=_release_config,
        naming_schemes={"jax": None},
        refused=_refused,
        differences=lambda metadata: _differences(metadata, "bit", 127.5),
    ),
    "authors": _format(
        _torch_rows(
            "root.conv",
            "body.block{b}.unit{u:02}",
            "downsample",
            "gn",
            "head.gn",
            "head.conv",
        ),
        r"body\.block(\d+)\.unit(\d+)\.",
        requires=(r"body\.block1\.unit01\.conv3\.weight",),
        read_config=_release_config,
        naming_schemes={"authors": None},
        config_of=lambda metadata: dict(
            block_units=list(metadata["depths"]),
            width_factor=metadata["width_factor"],
            head_size=metadata["classes"],
        ),
        refused=_refused,
        differences=lambda metadata: _differences(metadata, "bit", 127.5),
    ),
    "scenic": _format(
        _scenic_rows(),
        r"block(\d+)/unit(\d+)/",
        requires=("(params/)?gn_root/scale", "(params/)?block1/unit1/conv2/.*"),
        forbids={
            "(params/)?embedding/.*": "a ViT after a stem of these names is"
        },
        read_config=lambda config: dict(
            activation_order="post_activation", numerics="scenic"
        ),
        flatten=_flatten_big_vision,
        naming_schemes={"scenic": None},
        refused=functools.partial(_refused, order="post_activation"),
        differences=lambda metadata: _differences(metadata, "scenic"),
    ),
    "timm": _format(
        _torch_rows(
            "stem.conv",
            "stages.{b0}.blocks.{u0}",
            "downsample.conv",
            "norm",
            "norm",
            "head.fc",
        ),
        r"stages\.(\d+)\.blocks\.(\d+)\.",
        requires=(r"stem\.conv\.weight", r"stages\.0\.blocks\.0\.conv3\..*"),
        forbids={
            r".*running_mean": "a timm ResNetV2 with BatchNorm: batch "
            "statistics are",
            r".*downsample\.norm\..*": "a timm ResNetV2 in post-activation "
            "order: files of these are",
        },
        read_config=_timm_config,
        naming_schemes={"timm": None},
        config_of=lambda metadata: timm_config.write(
            metadata, _architecture(metadata)
        ),
        refused=_timm_refused,
        differences=lambda metadata: _differences(metadata, "timm"),
    ),
    "keras_vit": keras_format.derive(
        _format(_own_rows(), r"block(\d+)_unit(\d+)/", requires=()),
        requires=("conv_root/0", r"block1_unit1/conv1/0"),
    ),
}
