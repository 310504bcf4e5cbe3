"""Well-known repositories of the Hugging Face Hub, and their licences.

The rows are in repositories.csv. No digest of their files is known here: a
download is as the Hub's client receives it.
"""

import csv
import dataclasses
import fnmatch
import importlib.resources
import warnings
from typing import ClassVar

from keras_vit.weights import hub

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
FREE = ("Apache-2.0", "MIT")
# Names of repositories, listed or not -> a licence that restricts their use.
RESTRICTED = {
    "facebook/dinov3-*": "DINOv3 License",
    "timm/vit_*_dinov3*.eupe_*": "FAIR Noncommercial Research License",
    "timm/vit_*_dinov3*": "DINOv3 License",
    "facebook/vit-mae-*": "CC-BY-NC-4.0",
    "timm/vit_*.mae": "CC-BY-NC-4.0",
    "facebook/metaclip*": "CC-BY-NC-4.0",
    "timm/vit_*.metaclip*": "CC-BY-NC-4.0",
    "facebook/ijepa_*": "CC-BY-NC-4.0",
    "timm/vit_*_ijepa": "CC-BY-NC-4.0",
    "apple/DFN*": "Apple Sample Code License",
    "apple/*": "Apple ML Research License",
    "timm/vit_*.dfn*": "Apple Sample Code License",
    "timm/vit_*.apple_mclip*": "Apple ML Research License",
    "timm/vit_*_radio_*": "NVIDIA Open Model License",
    "timm/vit_*_sapiens2.*": "Sapiens2 License",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repository:
    """A well-known repository.

    Attributes:
        variant: The constructor that it belongs to.
        repository: Its name, "owner/name".
        parameters: Of the model, with the head of the files if they have one.
        image_size: Pixels per side.
        scaling: How pixels are scaled, a key of `SCALINGS`.
        classes: Outputs of its head, or None without one.
        source: The paper.
        license: License of the weights, as its owner states it.
    """

    variant: str
    repository: str
    parameters: int
    image_size: int
    scaling: str
    classes: int | None
    source: str
    license: str
    # As `registry.Released` has them.
    file: ClassVar[str] = ""
    data: ClassVar[None] = None
    top1: ClassVar[None] = None
    zero_head: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name as a value of `weights`, "hf://owner/name"."""
        return f"hf://{self.repository}"

    @property
    def url(self) -> str:
        """URL of its page."""
        return f"https://huggingface.co/{self.repository}"

    @property
    def path(self) -> str:
        """Path of the directory in the Hub's cache, whether or not there."""
        return hub.cache_folder(self.repository)

    @property
    def pixel_mean(self) -> tuple[float, ...]:
        """Mean of each channel of pixels in [0, 255]."""
        return tuple(255 * number for number in SCALINGS[self.scaling][0])

    @property
    def pixel_std(self) -> tuple[float, ...]:
        """Divisor of each channel of pixels in [0, 255]."""
        return tuple(255 * number for number in SCALINGS[self.scaling][1])

    def fetch(self) -> str:
        """Return the directory of its files, downloaded if necessary."""
        return fetch(self.repository)


def rows() -> list[Repository]:
    """Return the rows of repositories.csv."""
    file = importlib.resources.files(__package__) / "repositories.csv"
    return [
        Repository(
            variant=row["variant"],
            repository=row["repository"],
            parameters=int(row["parameters"]),
            image_size=int(row["image_size"]),
            scaling=row["scaling"],
            classes=int(row["classes"]) or None,
            source=row["source"],
            license=row["license"],
        )
        for row in csv.DictReader(file.read_text("utf-8").splitlines())
    ]


def restriction(repository: str) -> str | None:
    """Return the license that restricts the use of a repository, or None.

    Args:
        repository: "owner/name".
    """
    for pattern, license_name in RESTRICTED.items():
        if fnmatch.fnmatchcase(repository, pattern):
            return license_name
    return None


def fetch(name: str) -> str:
    """Download a repository, as `hub.fetch`, and warn of a restriction.

    Args:
        name: "owner/name", or "owner/name@revision".
    """
    repository = name.partition("@")[0]
    license_name = restriction(repository)
    if license_name:
        warnings.warn(
            f"The weights of 'hf://{repository}' are under the "
            f"{license_name}, which restricts their use. Read it at "
            f"https://huggingface.co/{repository}",
            stacklevel=2,
        )
    return hub.fetch(name)
