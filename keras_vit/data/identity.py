"""Which examples a source has: equal sets, and examples in two of them."""

import hashlib
import os

import numpy as np

from keras_vit.data.shards import cut_ranges
from keras_vit.data.sources import Source


def digest(source: Source) -> str:
    """Return a digest of the examples and their labels.

    It changes if an example is added, removed, renamed or labelled otherwise,
    and does not if a folder is moved. The contents of files are not read.
    """
    found = hashlib.blake2b(digest_size=16)
    if source.paths is not None:
        root = os.path.commonpath([os.path.dirname(p) for p in source.paths])
        names = (os.path.relpath(path, root) for path in source.paths)
        found.update("\0".join(names).encode(errors="surrogateescape"))
    elif source.images is not None:
        found.update(_bytes(source.images))
    else:
        found.update(
            repr(cut_ranges(source.ranges, 0, source.num_examples)).encode()
        )
    if source.labels is not None:
        found.update(_bytes(source.labels))
    found.update(repr((source.num_examples, source.class_names)).encode())
    return found.hexdigest()


def count_shared(source: Source, other: Source) -> int:
    """Return how many examples of a source the other one has, too.

    Files are the same if their paths are, arrays if their pixels are, and
    stored examples of TFDS and TFRecords if their positions are.
    """
    if source.paths is not None and other.paths is not None:
        known = set(_resolved(other.paths))
        return sum(path in known for path in _resolved(source.paths))
    if source.images is not None and other.images is not None:
        known = set(_pixels(other.images))
        return sum(pixels in known for pixels in _pixels(source.images))
    return sum(
        max(0, min(stop, other_stop) - max(start, other_start))
        for name, start, stop in cut_ranges(
            source.ranges, 0, source.num_examples
        )
        for other_name, other_start, other_stop in cut_ranges(
            other.ranges, 0, other.num_examples
        )
        if name == other_name
    )


def _resolved(paths):
    """Yield paths without links of folders, each of which is read once."""
    folders = {}
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        yield os.path.join(folders[folder], name)


def _pixels(images):
    for image in images:
        yield hashlib.blake2b(_bytes(image), digest_size=16).digest()


def _bytes(array):
    return np.ascontiguousarray(array).data.cast("B")
