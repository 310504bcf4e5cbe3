"""The config.json of timm: classes, preprocessing and name of any model."""

import re

from keras_vit.weights.rules import configs


def architecture_of(config: dict) -> str | None:
    """Return the name of the architecture, without the weights' tag."""
    return str(config.get("architecture") or "").split(".")[0] or None


# Architectures with a part that no array shows: pattern of names -> the part.
_UNSUPPORTED = {r"test_vit3": "attention pooling of registers is"}


# The norms that models have. Of the others no array shows a difference.
NORMS = ("layernorm", "layernormfp32", "rmsnorm", "rmsnormfp32")


def resampling(metadata: dict) -> str:
    """Return how timm resamples weights; see `table.Format.resampling`."""
    name = metadata.get("architecture") or ""
    if re.search(r"(base|huge)_patch16_radio_v3", name):
        return "aligned_bilinear"
    if "radio" in name or "flexi" in name:
        return "bilinear"
    return "antialiased_bicubic"


def read(config: dict) -> dict:
    """Return the metadata of classes and of images.

    Raises:
        ValueError: If the architecture is known not to be supported, or a
            value is impossible.
    """
    for pattern, part in _UNSUPPORTED.items():
        if re.fullmatch(pattern, architecture_of(config) or ""):
            raise ValueError(f"{part} not supported")
    arguments = configs.section(config, "model_args")
    pretrained = configs.section(config, "pretrained_cfg")
    if configs.flag(arguments, "pool_include_prefix"):
        raise ValueError("pool_include_prefix=True is not supported")
    configs.choice(arguments, "norm_layer", NORMS)
    classes = configs.integer(arguments, "num_classes", low=0)
    if classes is None:
        classes = configs.integer(config, "num_classes", low=0)
    pooling = arguments.get("global_pool", config.get("global_pool"))
    pooled = pooling in (None, "token", "avg", "map")
    if not pooled and (pooling or classes):
        raise ValueError(
            f"global_pool={pooling!r} is not supported; expected 'token', "
            "'avg' or 'map'"
        )
    found = dict(
        architecture=architecture_of(config),
        classes=classes,
        channels=configs.integer(arguments, "in_chans"),
        image_size=_image_size(arguments, pretrained),
        class_names=configs.names(pretrained, "label_names")
        or configs.names(config, "label_names"),
    )
    mean = configs.pixels(pretrained, "mean")
    std = configs.pixels(pretrained, "std")
    if mean and std:
        found |= dict(pixel_mean=mean, pixel_std=std)
    return configs.known(**found)


def _image_size(arguments, pretrained):
    """Return the size of the model's images, not of its pre-training."""
    size = pretrained.get("input_size")
    if size is not None and not (isinstance(size, (list, tuple)) and size):
        raise ValueError(
            "expected `input_size` of [channels, height, width]; found "
            f"{size!r}"
        )
    return configs.pair(arguments, "img_size") or (
        configs.pair(dict(input_size=size[1:]), "input_size") if size else None
    )


def write(metadata: dict, architecture: str, **arguments) -> dict:
    """Return a config.json; inverts `read`."""
    classes = metadata["classes"] or 0
    pretrained = dict(
        input_size=[metadata["channels"], *metadata["image_size"]],
        num_classes=classes,
        interpolation="bilinear",
        crop_pct=1.0,
    )
    if metadata.get("pixel_mean") is not None:
        pretrained["mean"] = [n / 255 for n in metadata["pixel_mean"]]
        pretrained["std"] = [n / 255 for n in metadata["pixel_std"]]
    if metadata["class_names"]:
        pretrained["label_names"] = list(metadata["class_names"])
    return dict(
        architecture=architecture,
        num_classes=classes,
        model_args=dict(in_chans=metadata["channels"], **arguments),
        pretrained_cfg=pretrained,
    )
