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
        f"{_UNIT}/conv1": f"{unit}/a",
        f"{_UNIT}/conv2": f"{unit}/b",
        f"{_UNIT}/conv3": f"{unit}/c",
        f"{_UNIT}/conv_proj": f"{unit}/a/proj",
    }
    norms = {
        f"{_UNIT}/gn1": f"{unit}/a",
        f"{_UNIT}/gn2": f"{unit}/b",
        f"{_UNIT}/gn3": f"{unit}/c",
        "group_norm": "resnet",
    }
    rows = [
        ("head/kernel", "resnet/head/conv2d/kernel", _HEAD),
        ("head/bias", "resnet/head/conv2d/bias"),
    ]
    for layer, name in convolutions.items():
        rows.append((f"{layer}/kernel", f"{name}/standardized_conv2d/kernel"))
    for layer, name in norms.items():
        for part in ("gamma", "beta"):
            rows.append((f"{layer}/{part}", f"{name}/group_norm/{part}"))
    return rows


def _torch_rows(root, unit, projection, unit_norm, norm, head):
    """Return the table of a library of PyTorch, from its names of layers."""
    convolutions = {
        "conv_root": root,
        f"{_UNIT}/conv_proj": f"{unit}.{projection}",
    }
    norms = {"group_norm": norm}
    for n in (1, 2, 3):
        convolutions[f"{_UNIT}/conv{n}"] = f"{unit}.conv{n}"
        norms[f"{_UNIT}/gn{n}"] = f"{unit}.{unit_norm}{n}"
    rows = [
        ("head/kernel", f"{head}.weight", _TORCH_HEAD),
        ("head/bias", f"{head}.bias"),
    ]
    for layer, name in convolutions.items():
        rows.append((f"{layer}/kernel", f"{name}.weight", table.CONVOLUTION))
    for layer, name in norms.items():
        rows.append((f"{layer}/gamma", f"{name}.weight"))
        rows.append((f"{layer}/beta", f"{name}.bias"))
    return rows


def _scenic_rows():
    unit = "block{b}/unit{u}"
    rows = [(f"head/{x}", f"output_projection/{x}") for x in ("kernel", "bias")]
    for n in ("1", "2", "3", "_proj", "_root"):
        ours, theirs = ("", "") if n == "_root" else (f"{_UNIT}/", f"{unit}/")
        rows.append((f"{ours}conv{n}/kernel", f"{theirs}conv{n}/kernel"))
        rows.append((f"{ours}gn{n}/gamma", f"{theirs}gn{n}/scale"))
        rows.append((f"{ours}gn{n}/beta", f"{theirs}gn{n}/bias"))
    return rows


def _own_rows():
    paths = [path for path, *_ in _release_rows()]
    for part in ("gamma", "beta"):
        paths += [f"{_UNIT}/gn_proj/{part}", f"gn_root/{part}"]
    return [(path, path) for path in paths]


def grid(metadata: dict) -> None:
    """Return None: no weight of a ResNet depends on the image size."""
    return None


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
            units=tuple(metadata["num_units"]),
            absent=table.without_top(metadata),
        )

    def read_arrays(arrays, config, specified):
        units = {}
        for match in filter(None, map(unit.match, arrays)):
            units.setdefault(int(match[1]), set()).add(int(match[2]))
        found = dict(num_units=tuple(len(units[b]) for b in sorted(units)))
        metadata = dict(
            found, classes=1, activation_order=specified.get("activation_order")
        )
        every = rules(metadata)
        shape_of = table.shapes(arrays, every)
        (bias,) = (r.sources[0] for r in every if r.path == "head/bias")
        root = shape_of("conv_root/kernel", 4)
        size = (found["num_units"], root[3] / 64)
        if size in _ARCHITECTURES and "architecture" not in specified:
            # A state dict alone, of the sizes of an architecture of timm.
            found |= {k: specified.get(k, v) for k, v in _TIMM.items()}
        return found | dict(
            width_factor=root[3] / 64,
            channels=root[2],
            classes=shape_of("head/bias", 1)[0] if bias in arrays else None,
            representation_size=None,
        )

    return table.Format(
        rules=rules,
        read_arrays=read_arrays,
        required=lambda metadata: _REQUIRED,
        **kwargs,
    )


def _refused(metadata, format, order="pre_activation"):
    found = []
    if metadata.get("activation_order", order) != order:
        found.append(f"activation_order={metadata['activation_order']!r}")
    if metadata.get("representation_size"):
        found.append("pre_logits")
    return found


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
    found = dict(image_size=(224, 224)) | timm_config.read(config)
    # Architectures of other names may compute something different.
    if re.fullmatch("resnetv2_.*_bit", found.get("architecture", "")):
        found |= _TIMM
    return found


def _without_module(arrays, specified):
    """Remove the prefix that data parallelism adds to names."""
    return table.rename(arrays, lambda name: name.removeprefix("module.")), None


def _architecture(metadata):
    size = (tuple(metadata["num_units"]), metadata["width_factor"])
    return _ARCHITECTURES.get(size)


def _timm_refused(metadata, format):
    found = _refused(metadata, format)
    if _architecture(metadata) is None:
        found.append(
            "num_units and width_factor of none of its architectures, "
            f"{tuple(_ARCHITECTURES.values())}"
        )
    return found


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
        requires=(r"(module\.)?body\.block1\.unit01\.conv3\.weight",),
        read_config=_release_config,
        flatten=_without_module,
        naming_schemes={"authors": None},
        config_of=lambda metadata: dict(
            block_units=list(metadata["num_units"]),
            width_factor=metadata["width_factor"],
            head_size=metadata["classes"],
        ),
        refused=_refused,
        differences=lambda metadata: _differences(metadata, "bit", 127.5),
    ),
    "scenic": _format(
        _scenic_rows(),
        r"block(\d+)/unit(\d+)/",
        requires=("gn_root/scale", "block1/unit1/conv2/kernel"),
        forbids={"embedding/.*": "a ViT after a stem of these names is"},
        read_config=lambda config: dict(
            activation_order="post_activation", numerics="scenic"
        ),
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
