"""BiT ResNets in the release's npz files and in timm.

Checked against the files of gs://bit_models and timm/models/resnetv2.py. Both
are pre-activation; timm adds 1e-8 to the variance of kernels, the release
1e-10.
"""

from keras_vit.weights.rules import table

_UNIT = "block{b}_unit{u}"
# The head is a convolution of 1 x 1 pixels.
_HEAD = table.Transform(
    lambda kernel: kernel.reshape(kernel.shape[-2:]),
    lambda kernel: (kernel.reshape(1, 1, *kernel.shape),),
)
_TIMM_HEAD = table.Transform(
    lambda kernel: kernel.reshape(kernel.shape[:2]).T,
    lambda kernel: (kernel.T.reshape(*kernel.shape[::-1], 1, 1),),
)


def release() -> list[tuple]:
    """Returns the table of the release's npz files."""
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


def timm() -> list[tuple]:
    """Returns the table of timm's state dicts."""
    unit = "stages.{b0}.blocks.{u0}"
    rows = [
        ("head/kernel", "head.fc.weight", _TIMM_HEAD),
        ("head/bias", "head.fc.bias"),
        ("conv_root/kernel", "stem.conv.weight", table.CONVOLUTION),
        (
            f"{_UNIT}/conv_proj/kernel",
            f"{unit}.downsample.conv.weight",
            table.CONVOLUTION,
        ),
    ]
    norms = {"group_norm": "norm"}
    for n in (1, 2, 3):
        rows.append(
            (
                f"{_UNIT}/conv{n}/kernel",
                f"{unit}.conv{n}.weight",
                table.CONVOLUTION,
            )
        )
        norms[f"{_UNIT}/gn{n}"] = f"{unit}.norm{n}"
    for layer, name in norms.items():
        rows.append((f"{layer}/gamma", f"{name}.weight"))
        rows.append((f"{layer}/beta", f"{name}.bias"))
    return rows
