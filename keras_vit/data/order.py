"""Examples of a source, one by one, in the order of training or their own."""

import numpy as np

from keras_vit.data.cache import ByteCache
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold, shuffled_index
from keras_vit.data.sources import Source

# Encoded images held back to shuffle a stream: some 1 GB of ImageNet's.
SHUFFLE_BUFFER = 10_000


def shard_range(
    source: Source, shard_index: int, num_shards: int
) -> tuple[int, int]:
    """Returns where a shard starts and stops; shards are as even as can be.

    Args:
        source: A source of `load`.
        shard_index: Index of the shard.
        num_shards: Number of shards.
    """
    size, longer = divmod(source.num_examples, num_shards)
    start = shard_index * size + min(shard_index, longer)
    return start, start + size + (shard_index < longer)


def in_order(source: Source, start: int, stop: int):
    """Returns the examples from `start` up to `stop`.

    Args:
        source: A source of `load`.
        start, stop: Places in its own order.

    Returns:
        A tf.data.Dataset of (file's bytes or pixels, label).
    """
    tf = tensorflow()
    if source.stream is not None:
        return source.stream(start, stop).apply(
            tf.data.experimental.assert_cardinality(stop - start)
        )
    return tf.data.Dataset.range(start, stop).map(
        _reader(source), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def shuffled(
    source: Source,
    *,
    seed: int,
    batch_size: int,
    start_step: int,
    shard_index: int,
    num_shards: int,
    repeats: int,
    cache: bool,
):
    """Returns examples without end, in an order of its own for each epoch.

    Args:
        source, seed, batch_size, start_step, shard_index, num_shards, repeats,
            cache: See `batches.train_batches`.

    Returns:
        A tf.data.Dataset of (epoch, index, repeat, file's bytes or pixels,
        label); the index is the example's own, but of a stream its place in
        the order in which the epoch reads the files.
    """
    by_kind = _random_access if source.stream is None else _stream
    return by_kind(
        source,
        seed,
        batch_size,
        start_step,
        shard_index,
        num_shards,
        repeats,
        cache,
    )


def _reader(source, cache=False):
    """Returns a function from an index to (file's bytes or pixels, label).

    Of a video's file to its path.
    """
    tf = tensorflow()
    with tf.device("CPU"):
        kind = "uint8" if source.multi_label else "int64"
        labels = tf.constant(source.labels, kind)
        if source.paths is None:
            images = tf.constant(source.images)
            return lambda i: (images[i], labels[i])
        paths = tf.constant(source.paths)
    if source.is_video:  # what is needed of a file is read with its decoding
        return lambda i: (paths[i], labels[i])
    if not cache:
        return lambda i: (tf.io.read_file(paths[i]), labels[i])
    stored = ByteCache()

    def read(i):
        encoded = tf.cond(
            stored.has(i),
            lambda: stored.get(i),
            lambda: stored.put(i, tf.io.read_file(paths[i])),
        )
        return encoded, labels[i]

    return read


def _random_access(
    source,
    seed,
    batch_size,
    start_step,
    shard_index,
    num_shards,
    repeats,
    cache,
):
    tf = tensorflow()
    read = _reader(source, cache)
    num_examples = source.num_examples
    shard_size = batch_size // num_shards

    def positions_in(step):
        first = step * batch_size + shard_index * shard_size
        return tf.data.Dataset.range(first, first + shard_size)

    def at(position):
        position, repeat = position // repeats, position % repeats
        epoch, offset = position // num_examples, position % num_examples
        index = shuffled_index(
            offset,
            tf.stack([tf.constant(seed, "int64"), epoch]),
            num_examples,
        )
        return epoch, index, repeat, *read(index)

    steps = tf.data.Dataset.counter(start=start_step)
    positions = steps.flat_map(positions_in)
    return positions.map(
        at, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _stream(
    source,
    seed,
    batch_size,
    start_step,
    shard_index,
    num_shards,
    repeats,
    cache,
):
    """Shuffled by files, and then within a buffer."""
    tf = tensorflow()
    start, stop = shard_range(source, shard_index, num_shards)
    count = stop - start
    if not count:
        raise ValueError(
            "`num_shards` must leave each process an example to train on. "
            f"Received: num_shards={num_shards} for {source.name!r} of "
            f"{source.num_examples} examples"
        )

    def epoch_of(epoch):
        epoch_seed = fold((seed, 0), epoch)
        examples = source.stream(start, stop, seed=epoch_seed, cache=cache)
        # `shuffle` mixes in the seed of the graph, here that of this function
        # alone, which would else be the process' global seed. A shuffle that
        # reshuffles itself would continue where the last iterator stopped.
        tf.compat.v1.set_random_seed(1)
        shuffled = examples.enumerate(start).shuffle(
            min(SHUFFLE_BUFFER, count),
            # Folding once leaves the first number the same in each epoch.
            seed=fold(epoch_seed, np.int64(0))[0],
            reshuffle_each_iteration=False,
        )
        return shuffled.map(lambda index, example: (epoch, index, *example))

    def repeated(epoch, index, image, label):
        return tf.data.Dataset.range(repeats).map(
            lambda repeat: (epoch, index, repeat, image, label)
        )

    # `repeats` divides a process' part of a batch.
    first = start_step * (batch_size // num_shards) // repeats
    epochs = tf.data.Dataset.counter(start=first // count)
    examples = epochs.flat_map(epoch_of).skip(first % count)
    return examples.flat_map(repeated)
