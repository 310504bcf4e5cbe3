"""Images or videos with several labels each, or none, in a CSV file."""

import os
import pathlib

import numpy as np

from keras_vit._paths import why_no_file
from keras_vit.data.folder import evaluation_folder, find_broken, unlisted
from keras_vit.data.split import split
from keras_vit.data.tables import read_cells, read_rows, warn_of_splits

NAME = "labels.csv"
SEPARATOR = ";"


def exists(path: str) -> bool:
    """Return whether a folder has a list of labels."""
    root = pathlib.Path(path)
    return any((part / NAME).exists() for part in (root, root / "train"))


def find(
    path: str,
    eval_fraction: float,
    seed: int,
    broken: str = "error",
    eval_split: str = "",
) -> tuple[dict, dict]:
    """Read `train/labels.csv` and `test/labels.csv`, or one to be split.

    A file has the columns `image` or `video`, a path relative to the folder of
    the file, and `labels`, class names separated by semicolons, empty for an
    image without labels. Other columns are ignored, `split` with a warning if
    its values differ; images that are not listed are counted. The classes are
    those of the training images, sorted.

    Args:
        path: The folder.
        eval_fraction, seed, broken, eval_split: See `sources.load`; a share is
            held out if no `test` (or `val`, `valid`, `validation`, `eval`) has
            a list.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If a file is not CSV in UTF-8 with these columns in each
            line, lists a missing image or one twice, or has fewer than two
            classes; or if evaluation has other classes.
    """
    root = pathlib.Path(path)
    train_root = root / "train" if (root / "train" / NAME).exists() else root
    kind = _kind_of(train_root / NAME)
    rows = _read(train_root / NAME, kind)
    names = tuple(sorted({name for _, labels in rows for name in labels}))
    if len(names) < 2:
        raise ValueError(
            f"`labels` in {str(train_root / NAME)!r} must name at least 2 "
            f"classes. Received: {list(names)}"
        )
    train = _fields(train_root, rows, names, broken, kind)
    eval_root = evaluation_folder(root, eval_split, NAME)
    if eval_root:
        others = _read(eval_root / NAME, kind)
        unknown = {name for _, labels in others for name in labels} - {*names}
        if unknown:
            raise ValueError(
                f"The classes in {str(eval_root / NAME)!r} must be among "
                f"those in {str(train_root / NAME)!r}. Received also: "
                f"{sorted(unknown)}"
            )
        held_out = _fields(eval_root, others, names, broken, kind)
        return _counted(root, (train, held_out))
    whole, *_ = _counted(root, (train,))
    return split(whole, eval_fraction, seed)


def _counted(root, parts):
    """Return the parts, the first with the count of files that none has."""
    first, *others = parts
    listed = [path for part in parts for path in part["paths"]]
    listed += [path for part in parts for path in part["skipped"]]
    ignored = unlisted(root, listed, first["is_video"])
    return first | dict(ignored=ignored), *others


def _kind_of(path):
    """Return the column of the files, "image" or "video"."""
    _, header = next(read_cells(path), (1, []))
    return "video" if "video" in header and "image" not in header else "image"


def _read(path, kind):
    """Return (path of an image, its class names) for each line of a file."""
    rows, splits = {}, set()
    remedy = f"Write {SEPARATOR!r} between class names."
    for line, row in read_rows(path, (kind, "labels"), remedy):
        image = os.path.join(path.parent, row[kind])
        # "0.png" and "./0.png" are one image.
        key = os.path.abspath(image)
        reason = why_no_file(image)
        if key in rows or reason:
            raise ValueError(
                f"`{kind}` in {str(path)!r} must name files, each once. "
                f"Received: line {line}, {row[kind]!r}, "
                + (f"which {reason}" if reason else "again")
            )
        names = map(str.strip, row["labels"].split(SEPARATOR))
        rows[key] = image, [name for name in names if name]
        splits.add(row.get("split"))
    warn_of_splits(path, splits)
    if not rows:
        raise ValueError(
            f"{str(path)!r} must list {kind}s. Received: no line after the "
            "first"
        )
    return list(rows.values())


def _fields(root, rows, names, broken, kind):
    skipped = {}
    if broken == "skip":
        skipped = find_broken([path for path, _ in rows], kind == "video")
        rows = [row for row in rows if row[0] not in skipped]
    index = {name: i for i, name in enumerate(names)}
    labels = np.zeros((len(rows), len(names)), "uint8")
    for row, (_, own) in zip(labels, rows, strict=True):
        row[[index[name] for name in own]] = 1
    return dict(
        name=str(root),
        class_names=names,
        num_examples=len(rows),
        is_video=kind == "video",
        paths=tuple(path for path, _ in rows),
        labels=labels,
        multi_label=True,
        skipped=skipped,
    )
