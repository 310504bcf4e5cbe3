"""Names of released checkpoints, and what else `weights` may be."""

import dataclasses
import difflib
import hashlib
import os
import re
import urllib.parse

from keras_vit.weights import (
    checkpoint,
    class_names,
    download,
    formats,
    released,
)
from keras_vit.weights.download import hub
from keras_vit.weights.download.cache import without_query
from keras_vit.weights.released import Released

CHECKPOINTS: tuple[Released, ...] = (*released.files(), *released.of_hub())
# Prefix of names of files that are not in the list -> their entry.
_COLLECTIONS = {"augreg": released.augreg_file, "bit": released.bit_file}


def find(weights: str, variant: str | None = None) -> Released | None:
    """Return the entry of a name, or None if there is no such name.

    Args:
        weights: A name of `CHECKPOINTS`, "augreg:FILE" or "bit:FILE".
        variant: The constructor. Without it, "ViTB16/imagenet21k" names both,
            and a name that only one constructor has is enough.

    Raises:
        ValueError: If several constructors have the name, if a file of augreg
            or BiT, or a repository, belongs to another variant, or if the file
            does not exist.
    """
    first, _, rest = weights.partition("/")
    if variant is None and first in {e.variant for e in CHECKPOINTS}:
        variant, weights = first, rest
    kind, _, file = weights.partition(":")
    if kind in _COLLECTIONS and file:
        found = [_COLLECTIONS[kind](file)]
    else:
        found = [entry for entry in CHECKPOINTS if entry.name == weights]
    fitting = [entry for entry in found if variant in (None, entry.variant)]
    if len(fitting) > 1:
        full = [f"{entry.variant}/{weights}" for entry in fitting]
        raise ValueError(
            f"`weights` must name one checkpoint. Received: {weights!r}, which "
            f"is the name of {full}"
        )
    if found and not fitting and ":" in weights:
        raise ValueError(
            f"`weights` must be of {variant}. Received: {weights!r}, which "
            f"is of {found[0].variant}"
        )
    return fitting[0] if fitting else None


def names(variant: str) -> list[str]:
    """Return the names of a variant's weights."""
    return [entry.name for entry in CHECKPOINTS if entry.variant == variant]


def default(variant: str) -> Released | None:
    """Return the weights that recipes start from, or None without any.

    They are those of ImageNet-21k, which the paper fine-tunes, or of AugReg, or
    the first of the Hub.
    """
    known = {e.name: e for e in CHECKPOINTS if e.variant == variant}
    of_hub = [name for name in known if name.startswith("hf://")]
    names = [n for n in ("imagenet21k", "augreg", *of_hub) if n in known]
    return known[names[0]] if names else None


def resolve(weights, variant: str | None = None, download: bool = True):
    """Return the path of a checkpoint, downloading it if necessary.

    A string is, in this order: a name in the list (so that a folder may have
    the same name), a path, a repository of the Hub, another URL.

    Args:
        weights: A name of `CHECKPOINTS`, "augreg:FILE", "bit:FILE", a path,
            "hf://owner/name", or a URL (https, http, file, gs). Any other
            object is returned unchanged.
        variant: The constructor, such as "ViTB16"; see `find`.
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
    path = os.path.expanduser(text)
    entry = find(text, variant) if isinstance(weights, str) else None
    if not download and (entry is not None or "://" in text):
        return weights
    if entry is not None:
        return entry.fetch()
    if os.path.exists(path):
        return path
    if text.startswith("hf://"):
        return hub.fetch(text)
    if "://" in text:
        return _fetch_url(text)
    known = names(variant) if variant else []
    nearest = difflib.get_close_matches(path, known, n=3, cutoff=0.4) or known
    names_too = f" or a name of {variant}'s weights, such as {nearest}"
    raise ValueError(
        f"`weights` must be the path of a checkpoint{names_too * bool(known)}. "
        f"Received: weights={text!r}, and no such file exists"
    )


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
    arrays, _ = formats.read(path)
    for array in arrays.values():
        array.read()


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
    path = resolve(weights, variant)
    source = checkpoint.open_checkpoint(path, position_grid)
    if isinstance(weights, os.PathLike):
        return dataclasses.replace(source, provenance=os.fspath(weights))
    if not isinstance(weights, str):
        return source
    if "://" in weights:
        weights = without_query(weights)
    entry = find(weights, variant)
    if entry is None:
        return dataclasses.replace(source, provenance=weights)
    source.metadata.pop("patch_counts", None)  # its images are square
    if "grid" not in source.metadata:  # the file does not specify it
        source.metadata["image_size"] = (entry.image_size,) * 2
    names = entry.data and class_names.of_dataset(entry.data)
    if names and len(names) == source.metadata["classes"]:
        source.metadata["class_names"] = names
    provenance = f"{entry.variant}/{entry.name}"
    return dataclasses.replace(
        source, provenance=provenance, variant=entry.variant
    )


class Table(list):
    """Entries that print as a table."""

    def __repr__(self):  # noqa: D105
        rows = [
            (
                *("model", "weights", "parameters", "pixels", "mean and std"),
                *("classes", "top-1", "paper", "licence", "file"),
            )
        ]
        rows += [
            (
                *(e.variant, e.name),
                f"{e.parameters:,}" if e.parameters else "",
                *(str(e.image_size), e.scaling),
                f"{e.classes or ''}{' (zeros)' if e.zero_head else ''}",
                f"{e.top1:.2f}" if e.top1 else "",
                *(e.source, e.license, e.file),
            )
            for e in self
        ]
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
