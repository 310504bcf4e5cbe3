"""Ranges of examples in TFRecord files."""

from collections.abc import Callable, Sequence

import numpy as np

from keras_vit.data.cache import ByteCache
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import shuffled_index


def read_shards(
    paths: Sequence[str],
    skips: Sequence[int],
    takes: Sequence[int],
    seed=None,
    cache: bool = False,
):
    """Read a range of records of each file, one file after another.

    Args:
        paths: TFRecord files.
        skips: Records to skip at the start of each file.
        takes: Records to read from each file after those.
        seed: Two integers (also a tensor within a `tf.data` function) that
            determine the order of the files; None keeps the given order.
        cache: Whether to keep the records in memory after a file has been read
            to its end; order and content do not change.

    Returns:
        A tf.data.Dataset of serialized records, scalar strings.
    """
    tf = tensorflow()
    if not len(paths) == len(skips) == len(takes) or not len(paths):
        raise ValueError(
            "`paths`, `skips` and `takes` must be of one length, at least 1. "
            f"Received: {len(paths)}, {len(skips)} and {len(takes)}"
        )
    paths = tf.constant([str(path) for path in paths])
    skips = np.array(skips, "int64")
    takes = np.array(takes, "int64")
    firsts = np.cumsum(takes) - takes
    stored = ByteCache() if cache else None

    def read(position):
        shard = (
            position if seed is None else shuffled_index(position, seed, count)
        )
        skip, take, first = (
            tf.gather(x, shard) for x in (skips, takes, firsts)
        )
        if stored is None:
            return tf.data.TFRecordDataset(paths[shard]).skip(skip).take(take)
        # The last record shows that the file has been read to its end.
        there = stored.has(first + take - 1)
        none = tf.zeros_like(take)
        from_file = (
            tf.data.TFRecordDataset(paths[shard])
            .skip(skip)
            .take(tf.where(there, none, take))
            .enumerate(first)
            .map(stored.put)
        )
        from_memory = tf.data.Dataset.range(
            first, first + tf.where(there, take, none)
        ).map(stored.get)
        return from_file.concatenate(from_memory)

    count = len(takes)
    return tf.data.Dataset.range(count).flat_map(read)


def stream_of(
    paths: Sequence[str],
    skips: Sequence[int],
    takes: Sequence[int],
    parse: Callable,
) -> Callable:
    """Return the `stream` of a `Source` that reads ranges of records.

    `parse` is a function from a serialized record to (encoded image, label).
    """
    tf = tensorflow()
    skips = np.array(skips, "int64")
    ends = np.cumsum(takes)
    firsts = ends - takes

    def stream(start, stop, seed=None, cache=False):
        lows, highs = np.maximum(firsts, start), np.minimum(ends, stop)
        used = np.flatnonzero(lows < highs)
        records = read_shards(
            # An empty range still needs a data set of the right type.
            [paths[int(i)] for i in used] or paths[:1],
            (skips + lows - firsts)[used] if len(used) else [0],
            (highs - lows)[used] if len(used) else [0],
            seed,
            cache,
        )
        return records.map(
            parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )

    return stream


def multi_hot(labels, num_classes: int):
    """Return 0 or 1 for each class, uint8 `[K]`.

    `labels` are those of an image, which may have none, or the same one twice.
    """
    tf = tensorflow()
    hot = tf.one_hot(labels, num_classes, dtype="int32")
    return tf.cast(tf.reduce_sum(hot, axis=0) > 0, "uint8")


def cut_ranges(
    ranges: tuple[tuple[str, int, int], ...], start: int, stop: int
) -> tuple[tuple[str, int, int], ...]:
    """Return the part of `Source.ranges` from an example up to another."""
    found = []
    for name, first, last in ranges:
        low, high = first + max(start, 0), min(first + stop, last)
        if low < high:
            found.append((name, low, high))
        start -= last - first
        stop -= last - first
    return tuple(found)
