"""The released checkpoints: their names, files and properties."""

import dataclasses
import difflib
import hashlib
import os
import re
import urllib.parse
from typing import ClassVar

from keras_vit.weights import (
    checkpoint,
    class_names,
    contents,
    download,
    load,
    released,
    repositories,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Released:
    """A released checkpoint.

    Attributes:
        name: Its name as a value of `weights`.
        variant: The constructor that it belongs to.
        file: Its file under `base_url`.
        base_url: URL of the directory.
        data: The data set of its head, a key of `released.CLASSES`.
        image_size: Pixels per side.
        zero_head: Whether its head is all zeros, for fine-tuning.
        source: The paper.
        top1: Published accuracy on ImageNet, in percent, or None.
        license: License of the weights. The package contains none of them;
            files are fetched from the URL.
    """

    name: str
    variant: str
    file: str
    base_url: str = released.VIT_URL
    data: str = "imagenet2012"
    image_size: int = 224
    zero_head: bool = False
    source: str = "2010.11929"
    top1: float | None = None
    license: str = "Apache-2.0"
    # As `repositories.Repository` has them; not known for these files.
    parameters: ClassVar[None] = None
    scaling: ClassVar[str] = ""

    @property
    def classes(self) -> int | None:
        """Number of classes of its head, or None if unknown."""
        return released.CLASSES.get(self.data)

    @property
    def url(self) -> str:
        """URL of the file; KERAS_VIT_WEIGHTS_URL selects another server.

        That URL may have a query, such as a token, which is preserved.
        """
        base = os.environ.get("KERAS_VIT_WEIGHTS_URL") or self.base_url
        parts = urllib.parse.urlsplit(base)
        file = urllib.parse.quote(self.file, safe="/+")
        return parts._replace(path=f"{parts.path.rstrip('/')}/{file}").geturl()

    @property
    def path(self) -> str:
        """Path of the file in the cache, whether or not it is there."""
        return os.path.join(download.cache_dir(), *self.file.split("/"))

    def fetch(self) -> str:
        """Return the path of its file, downloaded and verified.

        An existing file is compared with the digest of its download, and
        downloaded again if it differs.
        """
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
    load.check_names(source, source.rules)
    for array in source.arrays.values():
        array.read()


CHECKPOINTS: tuple[Released | repositories.Repository, ...] = (
    *(Released(**row) for row in released.rows()),
    *repositories.rows(),
)


def released_file(kind: str, file: str) -> Released:
    """Return the entry of a file of a collection.

    Args:
        kind: "augreg" or "bit".
        file: Name of the file.

    Raises:
        ValueError: If the collection has no such file.
    """
    return Released(**released.FILES[kind](file))


def find(
    weights: str, variant: str | None
) -> Released | repositories.Repository | None:
    """Return the entry of a name, or None if the variant has no such name.

    Raises:
        ValueError: If a file of augreg or BiT, or a repository, belongs to
            another variant, or if the file does not exist.
    """
    kind, _, file = weights.partition(":")
    if kind in released.FILES and file:
        entry = released_file(kind, file)
        _require_variant(entry, weights, variant)
        return entry
    for entry in CHECKPOINTS:
        if entry.name == weights and entry.variant == variant:
            return entry
        if entry.name == weights and isinstance(entry, repositories.Repository):
            _require_variant(entry, weights, variant)
    return None


def _require_variant(entry, weights, variant):
    if variant not in (None, entry.variant):
        raise ValueError(
            f"`weights` must be of {variant}. Received: {weights!r}, which is "
            f"of {entry.variant}"
        )


def split_name(source: str) -> tuple[str | None, str]:
    """Return the constructor and the name of "ViTB16/imagenet21k".

    A name that only one constructor has is enough. Any other string is returned
    with None.

    Raises:
        ValueError: If several constructors have the name.
    """
    variant, _, name = source.partition("/")
    if find(name, variant):
        return variant, name
    entry = find(source, None)
    if entry:
        return entry.variant, source
    variants = [e.variant for e in CHECKPOINTS if e.name == source]
    if len(variants) > 1:
        full = [f"{variant}/{source}" for variant in variants]
        raise ValueError(
            f"`source` must name one checkpoint. Received: {source!r}, which "
            f"is the name of {full}"
        )
    return (variants[0] if variants else None), source


def names(variant: str) -> list[str]:
    """Return the names of a variant's weights."""
    return [entry.name for entry in CHECKPOINTS if entry.variant == variant]


def default(variant: str) -> Released | repositories.Repository | None:
    """Return the weights that recipes start from, or None without any.

    They are those of ImageNet-21k, which the paper fine-tunes, or of AugReg, or
    the first of the Hub.

    Args:
        variant: The constructor.
    """
    known = {e.name: e for e in CHECKPOINTS if e.variant == variant}
    of_hub = [name for name in known if name.startswith("hf://")]
    names = [n for n in ("imagenet21k", "augreg", *of_hub) if n in known]
    return known[names[0]] if names else None


def resolve(weights, variant: str | None = None, download: bool = True):
    """Return the path of a checkpoint, downloading it if necessary.

    Args:
        weights: A path, a name of `CHECKPOINTS`, "augreg:FILE", "bit:FILE",
            "hf://owner/name", or a URL (https, http, file, gs). Any other
            object is returned unchanged.
        variant: The constructor, such as "ViTB16"; without it the only names
            are "augreg:FILE" and "bit:FILE".
        download: If False, names and paths are only checked.

    Returns:
        The path of a file or directory; a downloaded one is in the cache.
        Without `download`, `weights`.

    Raises:
        ValueError: If there is neither such a file nor such weights for the
            variant, with the nearest names; also as `download.fetch`.
        ConnectionError: If the network fails.
    """
    if not isinstance(weights, (str, os.PathLike)):
        return weights
    text = os.fspath(weights)
    # Names take precedence over folders that happen to have the same name.
    entry = find(text, variant)
    if not download and (entry is not None or "://" in text):
        return weights
    if entry is not None:
        return entry.fetch()
    path = os.path.expanduser(text)
    if os.path.exists(path):
        return path
    if text.startswith("hf://"):
        return repositories.fetch(text.removeprefix("hf://"))
    if "://" in text:
        return _fetch_url(text)
    if not variant and text in {entry.name for entry in CHECKPOINTS}:
        raise ValueError(
            f"`weights={text!r}` is a name of "
            f"{[e.variant for e in CHECKPOINTS if e.name == text]}: call that "
            "constructor."
        )
    known = names(variant) if variant else []
    nearest = difflib.get_close_matches(path, known, n=3, cutoff=0.4) or known
    raise ValueError(
        "`weights` must be the path of a checkpoint"
        + (
            f" or a name of {variant}'s weights, such as {nearest}"
            if known
            else ""
        )
        + f". Received: weights={text!r}, and no such file exists"
    )


def open_weights(
    weights,
    variant: str | None = None,
    position_grid: tuple[int, ...] | None = None,
) -> checkpoint.Checkpoint:
    """Open weights of any kind, and add class names to released ones.

    Args:
        weights, variant: See `resolve`; an open checkpoint is returned
            unchanged.
        position_grid: See `checkpoint.open_checkpoint`.

    Raises:
        ValueError, ConnectionError: As `resolve` and `open_checkpoint` do.
    """
    if isinstance(weights, checkpoint.Checkpoint):
        return weights
    source = checkpoint.open_checkpoint(
        resolve(weights, variant), position_grid
    )
    if isinstance(weights, (str, os.PathLike)):
        entry = find(os.fspath(weights), variant)
        provenance = f"{entry.variant}/{entry.name}" if entry else weights
        source = dataclasses.replace(source, provenance=os.fspath(provenance))
        if (
            entry and "grid" not in source.metadata
        ):  # the file does not specify it
            source.metadata["image_size"] = (entry.image_size,) * 2
        names = entry and entry.data and class_names.of_dataset(entry.data)
        if names and len(names) == source.metadata["classes"]:
            source.metadata["class_names"] = names
    return source


def _fetch_url(url):
    """Download a URL to the cache, under the last part of its path."""
    name = os.path.basename(urllib.parse.urlsplit(url).path)
    if not re.fullmatch(r"[\w+-][\w.+-]*", name):
        raise ValueError(
            "`weights`, where it is a URL, must end in a file's name. "
            f"Received: {url!r}"
        )
    folder = hashlib.sha256(url.encode()).hexdigest()[:16]
    path = os.path.join(download.cache_dir(), "urls", folder, name)
    return download.fetch(url, path, check=_check_file)


def _check_file(path):
    """Check that a file is undamaged and of the kind that its name implies."""
    arrays, _ = contents.read(path)
    for array in arrays.values():
        array.read()


class Table(list):
    """Entries that print as a table."""

    def __repr__(self):  # noqa: D105
        rows = [
            [
                *("model", "weights", "parameters", "pixels", "mean and std"),
                *("classes", "top-1", "paper", "licence", "file"),
            ]
        ]
        for entry in self:
            zeros = " (zeros)" if entry.zero_head else ""
            rows.append(
                [
                    entry.variant,
                    entry.name,
                    f"{entry.parameters:,}" if entry.parameters else "",
                    str(entry.image_size),
                    entry.scaling,
                    f"{entry.classes or ''}{zeros}",
                    f"{entry.top1:.2f}" if entry.top1 else "",
                    entry.source,
                    entry.license,
                    entry.file,
                ]
            )
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = (
            "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows
        )
        return "\n".join(lines)


def list_weights(variant: str | None = None) -> Table:
    """List the released checkpoints and well-known repositories of the Hub.

    Args:
        variant: A constructor, such as "ViTB16"; None lists all.

    Returns:
        A list of entries that prints as a table; "(zeros)" marks zero heads,
        which are made for fine-tuning. Those of the Hub, whose names begin
        with "hf://", have `parameters`, `pixel_mean` and `pixel_std`.

    Raises:
        ValueError: If no weights are known for the variant.

    Example:
        print(keras_vit.list_weights("ViTB16"))
    """
    found = Table(
        entry for entry in CHECKPOINTS if variant in (None, entry.variant)
    )
    if not found:
        known = sorted({entry.variant for entry in CHECKPOINTS})
        nearest = difflib.get_close_matches(variant or "", known) or known
        raise ValueError(
            "`variant` must be one with released weights. Received: "
            f"{variant!r}. Nearest names: {nearest}"
        )
    return found
