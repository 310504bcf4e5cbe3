"""Examples to exclude, such as near-duplicates of test images."""

import csv
import os
from collections.abc import Collection

import numpy as np

from keras_vit._arguments import checked
from keras_vit._paths import why_no_file
from keras_vit.data.sources import Source, take
from keras_vit.data.tables import read_rows, read_text

# Header of the column of a CSV file that lists the examples to exclude.
COLUMN = "pretrain"


def read(path: str) -> frozenset[str]:
    """Read a list of examples.

    Args:
        path: The CSV file of `python -m tools.near_duplicates`, or a text
            file of one name a line.

    Returns:
        Their names.

    Raises:
        ValueError: If there is no such file, it is not in UTF-8, or a line of
            the CSV file has more or fewer cells than the first.
    """
    reason = why_no_file(path)
    if reason:
        raise ValueError(
            "`exclude` must be a file of names. "
            f"Received: {path!r}, which {reason}"
        )
    lines = read_text(path).splitlines()
    if lines and COLUMN in next(csv.reader(lines[:1])):
        return frozenset(row[COLUMN] for _, row in read_rows(path, (COLUMN,)))
    return frozenset(filter(None, lines))


def names_of(source: Source) -> list[str]:
    """Return the name of each example of files or arrays in such a list.

    The name of a file is its path relative to the folder of classes,
    "class/file.jpg" on every system; the name of an array is its index.

    Raises:
        ValueError: If the source is a stream, which has no names.
    """
    if source.stream is not None:
        raise ValueError(
            "Only examples of a folder of images or of arrays have names. "
            f"Received: {source.name!r}, a stream"
        )
    if source.paths is None:
        return [str(i) for i in range(source.num_examples)]
    return [
        os.path.relpath(path, source.name).replace(os.sep, "/")
        for path in source.paths
    ]


@checked
def leave_out(source: Source, names: Collection[str]) -> Source:
    """Return a source of files or arrays without the examples of some names.

    TFRecords must be written again without the excluded examples.

    Raises:
        ValueError: If the source is a stream, a name is unknown, or no example
            would remain.
    """
    own, names = names_of(source), frozenset(names)
    unknown = sorted(names - set(own))
    if unknown:
        raise ValueError(
            f"`names` must be of examples of {source.name!r}. Received also "
            f"{len(unknown)} others, such as {unknown[0]!r}"
        )
    kept = np.array([i for i, n in enumerate(own) if n not in names], int)
    if not len(kept):
        raise ValueError(
            f"`names` must leave an example of {source.name!r}. Received: "
            f"all {len(own)}"
        )
    return take(source, kept)
