"""The released checkpoints of MLP-Mixer and of BiT, as rows of the registry."""

import re
from collections.abc import Iterator

MIXER_URL = "https://storage.googleapis.com/mixer_models/"
BIT_URL = "https://storage.googleapis.com/bit_models/"
# Architectures of BiT that were released.
_BIT = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")
# Published accuracies on ImageNet of BiT-M after fine-tuning.
_BIT_TOP1 = {"R50x1": 80.68, "R152x2": 85.15, "R152x4": 85.39}
_BIT_NAME = re.compile(
    r"(?P<data>BiT-[SM])-(?P<model>R\d+x\d)"
    r"(?P<tuned>-ILSVRC2012|-run[0-2]-(?P<task>[a-z][\w-]*))?"
)


def mixer() -> Iterator[dict]:
    """Yields the checkpoints of MLP-Mixer; sam: Chen et al. 2021."""
    sizes = {"MixerB16": "B_16", "MixerB32": "B_32", "MixerL16": "L_16"}
    for name, data, variants, source in (
        ("imagenet1k", "imagenet2012", ("MixerB16", "MixerL16"), "2105.01601"),
        ("imagenet21k", "imagenet21k", ("MixerB16", "MixerL16"), "2105.01601"),
        ("sam", "imagenet2012", ("MixerB16", "MixerB32"), "2106.01548"),
    ):
        for variant in variants:
            yield dict(
                name=name,
                variant=variant,
                file=f"{name}/Mixer-{sizes[variant]}.npz",
                base_url=MIXER_URL,
                data=data,
                source=source,
                top1={"MixerB16": 76.44, "MixerL16": 71.76}[variant]
                if name == "imagenet1k"
                else None,
            )


def bit() -> Iterator[dict]:
    """Yields BiT-S, BiT-M, and BiT-M fine-tuned on ImageNet."""
    for model in _BIT:
        for file in ("BiT-S-{}", "BiT-M-{}", "BiT-M-{}-ILSVRC2012"):
            name = {
                "BiT-S-{}": "imagenet2012",
                "BiT-M-{}": "imagenet21k",
                "BiT-M-{}-ILSVRC2012": "imagenet21k+imagenet2012",
            }[file]
            yield dict(bit_file(file.format(model)), name=name)


def bit_file(name: str) -> dict:
    """Returns the row of any file of BiT's, those fine-tuned on VTAB too.

    Args:
        name: Its name without the folder, such as "BiT-M-R50x1-run0-dtd".

    Raises:
        ValueError: If it is no such name.
    """
    name = name.removesuffix(".npz")
    match = _BIT_NAME.fullmatch(name)
    if not match or match["model"] not in _BIT:
        raise ValueError(
            "`weights='bit:FILE'` must be a file name of BiT's release, such "
            "as 'bit:BiT-M-R50x1-ILSVRC2012' or, fine-tuned on VTAB, "
            f"'bit:BiT-M-R50x1-run0-caltech101'. Received: {name!r}"
        )
    tuned, task = match["tuned"], match["task"]
    data = "imagenet21k" if match["data"] == "BiT-M" else "imagenet2012"
    if tuned:
        data = task or "imagenet2012"
    size = 224
    if tuned and not task:  # the HyperRule's, smaller for larger models
        size = {"R152x2": 448, "R152x4": 384}.get(match["model"], 480)
    return dict(
        name=f"bit:{name}",
        variant=f"BiT{match['model']}",
        file=f"vtab/{name}.npz" if task else f"{name}.npz",
        base_url=BIT_URL,
        data=data,
        image_size=size,
        source="1912.11370",
        top1=_BIT_TOP1.get(match["model"]) if tuned and not task else None,
    )
