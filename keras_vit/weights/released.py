"""The released checkpoints of all families, as rows of the registry."""

import re
from collections.abc import Iterator

VIT_URL = "https://storage.googleapis.com/vit_models/"
MIXER_URL = "https://storage.googleapis.com/mixer_models/"
BIT_URL = "https://storage.googleapis.com/bit_models/"
AXIAL_URL = "http://www.cs.jhu.edu/~hwang157/"
TORCHVISION_URL = "https://download.pytorch.org/models/"
MVIT_URL = "https://dl.fbaipublicfiles.com/pyslowfast/model_zoo/mvit/"
TIMM_URL = (
    "https://github.com/huggingface/pytorch-image-models/releases/download/"
    "v0.1-weights/"
)
FF_ONLY_URL = (
    "https://github.com/lukemelas/do-you-even-need-attention/releases/download/"
    "v0.0.1/"
)
CYCLE_MLP_URL = "https://github.com/ShoufaChen/CycleMLP/releases/download/v0.1/"
EANET_URL = "https://github.com/MenghaoGuo/EANet/raw/main/EAMLP/"
DEIT_URL = "https://dl.fbaipublicfiles.com/deit/"
CONV_MLP_URL = "https://shi-labs.com/projects/convmlp/checkpoints/"
HIRE_MLP_URL = (
    "https://github.com/ggjy/Hire-Wave-MLP.pytorch/releases/download/log/"
)
# The released architectures of BiT.
_BIT = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")
# Published accuracies on ImageNet of BiT-M after fine-tuning.
_BIT_TOP1 = {"R50x1": 80.68, "R152x2": 85.15, "R152x4": 85.39}
_BIT_NAME = re.compile(
    r"(?P<data>BiT-[SM])-(?P<model>R\d+x\d)"
    r"(?P<tuned>-ILSVRC2012|-run[0-2]-(?P<task>[a-z][\w-]*))?"
)


CLASSES = {
    "imagenet21k": 21_843,
    "imagenet2012": 1_000,
    "cifar10": 10,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "oxford-iiit-pet": 37,
    "resisc45": 45,
    "kitti": 4,
    "kinetics400": 400,
    "kinetics600": 600,
}

# Recommended by Steiner et al. 2021 (2106.10270) for each model and
# pre-training: the file, and the learning rate, resolution and top-1 of its
# fine-tuning on ImageNet.
_AUGREG = {
    "ViTTi16": (
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        *("0.03", 384, 78.22),
    ),
    "ViTS32": (
        "S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0",
        *("0.01", 384, 79.58),
    ),
    "ViTS16": (
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
        *("0.03", 384, 83.73),
    ),
    "ViTB32": (
        "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        *("0.01", 384, 83.59),
    ),
    "ViTB16": (
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
        *("0.03", 384, 85.49),
    ),
    # Not in the table of recommendations: the file that timm uses.
    "ViTB8": (
        "B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
        *("0.01", 224, None),
    ),
    "ViTL16": (
        "L_16-i21k-300ep-lr_0.001-aug_strong1-wd_0.1-do_0.0-sd_0.0",
        *("0.01", 384, 85.59),
    ),
    "RViTTi16": (
        "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        *("0.03", 384, 75.40),
    ),
    "R26ViTS32": (
        "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        *("0.03", 384, 83.85),
    ),
    "R50ViTL32": (
        "R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1",
        *("0.01", 384, 85.99),
    ),
}
_AUGREG_PAPER = "2106.10270"
_FILE_OF_2020 = {
    "ViTB16": "ViT-B_16",
    "ViTB32": "ViT-B_32",
    "ViTL16": "ViT-L_16",
    "ViTL32": "ViT-L_32",
    "ViTH14": "ViT-H_14",
    "R50ViTB16": "R50+ViT-B_16",
}
_FINE_TUNED = "imagenet21k+imagenet2012"


def _vit():
    """Yield the files of 2020, the recommended ones of augreg, and SAM."""
    for variant, file in _FILE_OF_2020.items():
        yield dict(
            name="imagenet21k",
            variant=variant,
            file=f"imagenet21k/{file}.npz",
            data="imagenet21k",
            zero_head=True,
        )
    for variant, file in _FILE_OF_2020.items():
        if variant != "ViTH14":
            yield dict(
                name=_FINE_TUNED,
                variant=variant,
                file=f"{_FINE_TUNED}/{file}.npz",
                image_size=384,
            )
    for variant in ("ViTB16", "ViTL16"):
        yield dict(
            name=f"{_FINE_TUNED}-224",
            variant=variant,
            file=f"{_FINE_TUNED}/{_FILE_OF_2020[variant]}-224.npz",
        )
    for variant, (file, rate, size, top1) in _AUGREG.items():
        yield dict(
            name="augreg",
            variant=variant,
            file=f"augreg/{file}.npz",
            data="imagenet21k",
            source=_AUGREG_PAPER,
        )
        tuned = f"--imagenet2012-steps_20k-lr_{rate}-res_{size}"
        yield dict(
            name="augreg+imagenet2012",
            variant=variant,
            file=f"augreg/{file}{tuned}.npz",
            image_size=size,
            source=_AUGREG_PAPER,
            top1=top1,
        )
    for variant in ("ViTB16", "ViTB32"):
        yield dict(
            name="sam",
            variant=variant,
            file=f"sam/{_FILE_OF_2020[variant]}.npz",
            source="2106.01548",
        )
    for variant, file in (("ViTS16", "ViT-S_16"), ("ViTB16", "ViT-B_16")):
        yield dict(
            name="gsam",
            variant=variant,
            file=f"gsam/{file}.npz",
            source="2203.08065",
        )


# A file name of augreg: model, data, training, and fine-tuning if any.
_AUGREG_NAME = re.compile(
    r"(?P<model>Ti_16|S_32|S_16|B_32|B_16|B_8|L_16|R_Ti_16|R26_S_32|R50_L_32)"
    r"-(?P<data>i21k_30|i21k|i1k)-\d+ep-lr_[\d.]+"
    r"-aug_(none|light0|light1|medium1|medium2|strong1|strong2)"
    r"-wd_[\d.]+-do_[\d.]+-sd_[\d.]+"
    r"(--(?P<tuned>[a-z][\w-]*?)-steps_[\d.]+k-lr_[\d.]+-res_(?P<size>\d+))?"
)
_AUGREG_VARIANTS = {
    file.split("-")[0]: variant for variant, (file, *_) in _AUGREG.items()
}


def augreg_file(file: str) -> dict:
    """Return the row of any of the 50,000 augreg checkpoints.

    Args:
        file: Its name in augreg/index.csv, without ".npz".

    Raises:
        ValueError: If it is no such name.
    """
    match = _AUGREG_NAME.fullmatch(file.removesuffix(".npz"))
    if not match:
        raise ValueError(
            "`weights='augreg:FILE'` must be a file name of augreg's "
            "index.csv, such as 'augreg:"
            f"{_AUGREG['ViTB16'][0]}'. Received: {file!r}"
        )
    data = match["tuned"] or (
        "imagenet2012" if match["data"] == "i1k" else "imagenet21k"
    )
    if data not in CLASSES:
        raise ValueError(
            f"`weights='augreg:FILE'` must be fine-tuned on one of "
            f"{tuple(CLASSES)}. Received: {data!r}"
        )
    return dict(
        name=f"augreg:{match[0]}",
        variant=_AUGREG_VARIANTS[match["model"]],
        file=f"augreg/{match[0]}.npz",
        data=data,
        image_size=int(match["size"] or 224),
        source=_AUGREG_PAPER,
    )


def _mixer() -> Iterator[dict]:
    """Yield the checkpoints of MLP-Mixer; sam: Chen et al. 2021."""
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


def _bit() -> Iterator[dict]:
    """Yield BiT-S, BiT-M, and BiT-M fine-tuned on ImageNet."""
    for model in _BIT:
        for file in ("BiT-S-{}", "BiT-M-{}", "BiT-M-{}-ILSVRC2012"):
            name = {
                "BiT-S-{}": "imagenet2012",
                "BiT-M-{}": "imagenet21k",
                "BiT-M-{}-ILSVRC2012": "imagenet21k+imagenet2012",
            }[file]
            yield dict(bit_file(file.format(model)), name=name)


def bit_file(name: str) -> dict:
    """Return the row of any file of BiT, including those fine-tuned on VTAB.

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
    if tuned and not task:  # from the HyperRule, smaller for larger models
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


def _mvit() -> Iterator[dict]:
    """Yield the checkpoints of MViT on Kinetics: torchvision's copy, and the
    authors'."""
    common = dict(source="2104.11227")
    yield dict(
        common,
        name="kinetics400",
        variant="MViTB16x4",
        file="mvit_v1_b-dbeb1030.pth",
        base_url=TORCHVISION_URL,
        data="kinetics400",
        license="BSD-3-Clause",
    )
    for data, file in (("kinetics400", "k400"), ("kinetics600", "k600")):
        yield dict(
            common,
            name=data,
            variant="MViTB24_32x3",
            file=f"{file}.pyth",
            base_url=MVIT_URL,
            data=data,
        )


def _res_mlp() -> Iterator[dict]:
    """Yield ResMLP trained on ImageNet, with and without a teacher."""
    names = {
        "no_dist": "imagenet2012",
        "dist": "imagenet2012-distilled",
        "22k": "imagenet21k+imagenet2012",
    }
    for variant, file, accuracies in (
        ("ResMLPS12", "resmlp_12", dict(no_dist=76.6, dist=77.8)),
        ("ResMLPS24", "resmlp_24", dict(no_dist=79.4, dist=80.8)),
        ("ResMLPS36", "resmlp_36", dict(no_dist=79.7, dist=81.1)),
        (
            "ResMLPB24",
            "resmlpB_24",
            {"no_dist": 81.0, "dist": 83.6, "22k": 84.4},
        ),
    ):
        for training, top1 in accuracies.items():
            yield dict(
                name=names[training],
                variant=variant,
                file=f"{file}_{training}.pth",
                base_url=DEIT_URL,
                source="2105.03404",
                top1=top1,
            )


def _ff_only() -> Iterator[dict]:
    """Yield the feed-forward-only ViTs; that of FF-large is not published."""
    for variant, size, top1 in (
        ("FFOnlyTi16", "tiny", 61.4),
        ("FFOnlyB16", "base", 74.9),
    ):
        yield dict(
            name="imagenet2012",
            variant=variant,
            file=f"linear-{size}-checkpoint.pth",
            base_url=FF_ONLY_URL,
            source="2105.02723",
            top1=top1,
            license="none, not to be redistributed",
        )


def _pyramid_mlps() -> Iterator[dict]:
    """Yield the checkpoints of ConvMLP and Hire-MLP."""
    for size, top1 in (("S", 76.8), ("M", 79.0), ("L", 80.2)):
        yield dict(
            name="imagenet2012",
            variant=f"ConvMLP{size}",
            file=f"convmlp_{size.lower()}_imagenet.pth",
            base_url=CONV_MLP_URL,
            source="2109.04454",
            top1=top1,
        )
    for size, top1 in (("Tiny", 79.7), ("Small", 82.1), ("Base", 83.2)):
        yield dict(
            name="imagenet2012",
            variant=f"HireMLP{size}",
            file=f"hire_mlp_{size.lower()}.pth",
            base_url=HIRE_MLP_URL,
            source="2108.13341",
            top1=top1,
            license="MIT",
        )


def rows() -> Iterator[dict]:
    """Yield the fields of `registry.Released` for each checkpoint."""
    yield from _vit()
    yield from _mixer()
    yield from _bit()
    yield from _mvit()
    yield from _res_mlp()
    yield from _pyramid_mlps()
    yield from _ff_only()
    yield dict(
        name="imagenet2012",
        variant="EAMLP7",
        file="EAMLP_7_384/model_best.pth.tar",
        base_url=EANET_URL,
        image_size=384,
        source="2105.02358",
        top1=71.7,
        license="MIT",
    )
    accuracies = (78.9, 81.6, 82.4, 83.0, 83.2)
    for number, top1 in enumerate(accuracies, 1):
        yield dict(
            name="imagenet2012",
            variant=f"CycleMLPB{number}",
            file=f"CycleMLP_B{number}.pth",
            base_url=CYCLE_MLP_URL,
            source="2107.10224",
            top1=top1,
            license="MIT",
        )
    yield dict(  # of timm; the authors published none
        name="imagenet2012",
        variant="GMLPS16",
        file="gmlp_s16_224_raa-10536d42.pth",
        base_url=TIMM_URL,
        source="2105.08050",
        top1=79.6,
    )
    yield dict(  # a state dict of PyTorch
        name="imagenet2012",
        variant="AxialResNet26S",
        file="axial26s.pth",
        base_url=AXIAL_URL,
        source="2003.07853",
        top1=75.8,
    )


# Files without a name in the registry: "augreg:FILE", "bit:FILE".
FILES = {"augreg": augreg_file, "bit": bit_file}
