"""The released checkpoints and well-known repositories of the Hub.

Their rows are in released.csv and repositories.csv. No digest of the Hub's
files is known here: a download is as the Hub's client receives it.
"""

import csv
import dataclasses
import importlib.resources
import os
import re
import urllib.parse
from collections.abc import Iterator

from keras_vit.weights import checkpoint, download
from keras_vit.weights.download import hub

_GITHUB = "https://github.com/{}/releases/download/"
# Column `server` of released.csv -> URL of the directory of its files.
SERVERS = {
    "vit": "https://storage.googleapis.com/vit_models/",
    "mixer": "https://storage.googleapis.com/mixer_models/",
    "bit": "https://storage.googleapis.com/bit_models/",
    "axial": "http://www.cs.jhu.edu/~hwang157/",
    "torchvision": "https://download.pytorch.org/models/",
    "mvit": "https://dl.fbaipublicfiles.com/pyslowfast/model_zoo/mvit/",
    "timm": _GITHUB.format("huggingface/pytorch-image-models")
    + "v0.1-weights/",
    "ff_only": _GITHUB.format("lukemelas/do-you-even-need-attention")
    + "v0.0.1/",
    "cycle_mlp": _GITHUB.format("ShoufaChen/CycleMLP") + "v0.1/",
    "eanet": "https://github.com/MenghaoGuo/EANet/raw/main/EAMLP/",
    "deit": "https://dl.fbaipublicfiles.com/deit/",
    "conv_mlp": "https://shi-labs.com/projects/convmlp/checkpoints/",
    "hire_mlp": _GITHUB.format("ggjy/Hire-Wave-MLP.pytorch") + "log/",
}
# Data set -> number of classes.
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
# Mean and std of pixels in [0, 1].
SCALINGS = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CLIP": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    "0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "SAT-493M": ((0.430, 0.411, 0.296), (0.213, 0.156, 0.143)),
}
_BIT = re.compile(
    r"(?P<data>BiT-[SM])-(?P<model>R50x[13]|R101x[13]|R152x[24])"
    r"(?P<tuned>-ILSVRC2012|-run[0-2]-(?P<task>[a-z][\w-]*))?"
)

# Model in a file's name -> constructor.
_AUGREG_VARIANTS = {
    "Ti_16": "ViTTi16",
    "S_32": "ViTS32",
    "S_16": "ViTS16",
    "B_32": "ViTB32",
    "B_16": "ViTB16",
    "B_8": "ViTB8",
    "L_16": "ViTL16",
    "R_Ti_16": "RViTTi16",
    "R26_S_32": "R26ViTS32",
    "R50_L_32": "R50ViTL32",
}
# A file's name: model, data, training, and fine-tuning if any.
_AUGREG = re.compile(
    rf"(?P<model>{'|'.join(_AUGREG_VARIANTS)})"
    r"-(?P<data>i21k_30|i21k|i1k)-\d+ep-lr_[\d.]+"
    r"-aug_(none|light0|light1|medium1|medium2|strong1|strong2)"
    r"-wd_[\d.]+-do_[\d.]+-sd_[\d.]+"
    r"(--(?P<tuned>[a-z][\w-]*?)-steps_[\d.]+k-lr_[\d.]+-res_(?P<size>\d+))?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Released:
    """A released checkpoint: a file, or a repository of the Hub.

    Attributes:
        variant: The constructor that it belongs to.
        name: Its name as a value of `weights`; "hf://owner/name" of the Hub.
        file: Its file under the server's URL; "" of the Hub.
        server: A key of `SERVERS`.
        data: The data set of its head, a key of `CLASSES`, or None if unknown.
        classes: Number of classes of its head, or None if it has none or they
            are unknown.
        image_size: Pixels per side.
        zero_head: Whether its head is all zeros, for fine-tuning.
        source: The paper.
        top1: Published accuracy on ImageNet, in percent, or None.
        license: License of the weights, as its owner states it. The package
            contains none of them; files are fetched from the URL.
        parameters: Of a repository's model, with the head of the files if they
            have one; 0 if unknown.
        scaling: How a repository's pixels are scaled, a key of `SCALINGS`.
    """

    variant: str
    name: str
    file: str = ""
    server: str = "vit"
    data: str | None = None
    classes: int | None = None
    image_size: int = 224
    zero_head: bool = False
    source: str = ""
    top1: float | None = None
    license: str = "Apache-2.0"
    parameters: int = 0
    scaling: str = ""

    @property
    def repository(self) -> str:
        """Its name on the Hub, "owner/name"; "" of a file."""
        return "" if self.file else self.name.removeprefix("hf://")

    @property
    def url(self) -> str:
        """URL of the file, or of the repository's page.

        KERAS_VIT_WEIGHTS_URL selects another server. That URL may have a query,
        such as a token, which is preserved.
        """
        if self.repository:
            return f"https://huggingface.co/{self.repository}"
        base = os.environ.get("KERAS_VIT_WEIGHTS_URL") or SERVERS[self.server]
        parts = urllib.parse.urlsplit(base)
        file = urllib.parse.quote(self.file, safe="/+")
        return parts._replace(path=f"{parts.path.rstrip('/')}/{file}").geturl()

    @property
    def path(self) -> str:
        """Path in the cache, or in that of the Hub, whether or not there."""
        if self.repository:
            return hub.cache_folder(self.repository)
        return os.path.join(download.cache_dir(), *self.file.split("/"))

    @property
    def pixel_mean(self) -> tuple[float, ...]:
        """Mean of each channel of a repository's pixels in [0, 255]."""
        return tuple(255 * number for number in SCALINGS[self.scaling][0])

    @property
    def pixel_std(self) -> tuple[float, ...]:
        """Divisor of each channel of a repository's pixels in [0, 255]."""
        return tuple(255 * number for number in SCALINGS[self.scaling][1])

    def fetch(self) -> str:
        """Return the path of its file or directory, downloaded and verified.

        An existing file is compared with the digest of its download, and
        downloaded again if it differs.
        """
        if self.repository:
            return hub.fetch(self.name)
        return download.fetch(self.url, self.path, check=check)


def check(path: str) -> None:
    """Check that a file is an authors' checkpoint, complete and undamaged.

    Args:
        path: The file; its name does not matter.

    Raises:
        ValueError: If it is something else, such as the error page of a proxy.
    """
    source = checkpoint.open_checkpoint(path)
    if source.format_name not in ("jax", "authors", "torchvision", "timm"):
        raise ValueError(
            f"{path!r} must be an authors' checkpoint, or torchvision's or "
            f"timm's. Received one of format {source.format_name!r}"
        )
    checkpoint.check_names(source, source.rules)
    for array in source.arrays.values():
        array.read()


def of_hub() -> list[Released]:
    """Return the repositories of repositories.csv."""
    return [
        Released(
            variant=row["variant"],
            name=f"hf://{row['repository']}",
            classes=int(row["classes"]) or None,
            image_size=int(row["image_size"]),
            source=row["source"],
            license=row["license"],
            parameters=int(row["parameters"]),
            scaling=row["scaling"],
        )
        for row in _table("repositories.csv")
    ]


def files() -> list[Released]:
    """Return the files of released.csv."""
    return [
        Released(
            variant=row["variant"],
            name=row["name"],
            file=row["file"],
            server=row["server"],
            data=row["data"],
            source=row["source"],
            license=row["license"],
            classes=CLASSES[row["data"]],
            image_size=int(row["image_size"]),
            zero_head=bool(row["zero_head"]),
            top1=float(row["top1"]) if row["top1"] else None,
        )
        for row in _table("released.csv")
    ]


def _table(name) -> Iterator[dict[str, str]]:
    file = importlib.resources.files(__package__) / name
    yield from csv.DictReader(file.read_text("utf-8").splitlines())


def bit_file(name: str) -> Released:
    """Return the entry of any file of BiT, including those tuned on VTAB.

    Args:
        name: Its name without the folder, such as "BiT-M-R50x1-run0-dtd".

    Raises:
        ValueError: If there is no such file.
    """
    name = name.removesuffix(".npz")
    match = _BIT.fullmatch(name)
    if not match:
        raise ValueError(
            "`weights='bit:FILE'` must be a file name of BiT's release, such "
            "as 'bit:BiT-M-R50x1-ILSVRC2012' or, fine-tuned on VTAB, "
            f"'bit:BiT-M-R50x1-run0-caltech101'. Received: {name!r}"
        )
    model, task = match["model"], match["task"]
    data = "imagenet21k" if match["data"] == "BiT-M" else "imagenet2012"
    size = 224
    if match["tuned"]:
        data = task or "imagenet2012"
    if match["tuned"] and not task:
        # From the HyperRule, smaller for larger models.
        size = {"R152x2": 448, "R152x4": 384}.get(model, 480)
    return Released(
        variant=f"BiT{model}",
        name=f"bit:{name}",
        file=f"vtab/{name}.npz" if task else f"{name}.npz",
        server="bit",
        data=data,
        classes=CLASSES.get(data),
        image_size=size,
        source="1912.11370",
    )


def augreg_file(name: str) -> Released:
    """Return the entry of any of the 50,000 files of AugReg.

    Raises:
        ValueError: If there is no such file, or its classes are unknown.
    """
    match = _AUGREG.fullmatch(name.removesuffix(".npz"))
    if not match:
        raise ValueError(
            "`weights='augreg:FILE'` must be a file name of augreg's "
            "index.csv, such as 'augreg:B_16-i21k-300ep-lr_0.001-aug_medium1-"
            f"wd_0.1-do_0.0-sd_0.0'. Received: {name!r}"
        )
    data = match["tuned"] or (
        "imagenet2012" if match["data"] == "i1k" else "imagenet21k"
    )
    if data not in CLASSES:
        raise ValueError(
            f"`weights='augreg:FILE'` must be fine-tuned on one of "
            f"{tuple(CLASSES)}. Received: {data!r}"
        )
    return Released(
        variant=_AUGREG_VARIANTS[match["model"]],
        name=f"augreg:{match[0]}",
        file=f"augreg/{match[0]}.npz",
        data=data,
        classes=CLASSES[data],
        image_size=int(match["size"] or 224),
        source="2106.10270",
    )
