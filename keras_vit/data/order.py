"""Examples of a source, one by one, shuffled or in their own order."""

import dataclasses

import numpy as np

from keras_vit.data.cache import ByteCache
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold, shuffled_index
from keras_vit.data.sources import Source

# Number of encoded images in the shuffle buffer of a stream: about 1 GB for
# ImageNet.
SHUFFLE_BUFFER = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The examples that a process reads in training, and the first step.

    Attributes:
        batch_size: Number of examples in each batch of all processes together.
        shard_index: Index of the shard of this process.
        num_shards: Number of shards.
        repeats: Number of times that each example appears in succession.
        start_step: Number of batches to skip.
        seed: Seed of the order.
        cache: Whether to keep the encoded images in memory.
    """

    batch_size: int
    shard_index: int
    num_shards: int
    repeats: int
    start_step: int
    seed: int
    cache: bool

    @property
    def shard_size(self) -> int:
        """Number of examples of a batch that this process reads."""
        return self.batch_size // self.num_shards


def shard_range(
    source: Source, shard_index: int, num_shards: int
) -> tuple[int, int]:
    """Returns the start and the stop of a shard; sizes differ by at most 1.

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
        start, stop: Positions in the source's own order.

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


def shuffled(source: Source, reading: Reading):
    """Returns an infinite sequence of examples, shuffled anew in each epoch.

    Args:
        source: A source of `load`.
        reading: The examples that this process reads.

    Returns:
        A tf.data.Dataset of (epoch, index, repeat, file's bytes or pixels,
        label). The index is that of the example; for a stream it is the
        position in the order in which the epoch reads the files.
    """
    by_kind = _random_access if source.stream is None else _stream
    return by_kind(source, reading)


def _reader(source, cache=False):
    """Returns a function from an index to (file's bytes or pixels, label).

    For a video file it returns the path in place of the bytes.
    """
    tf = tensorflow()
    with tf.device("CPU"):
        kind = "uint8" if source.multi_label else "int64"
        labels = tf.constant(source.labels, kind)
        if source.paths is None:
            images = tf.constant(source.images)
            return lambda i: (images[i], labels[i])
        paths = tf.constant(source.paths)
    if source.is_video:  # decoding reads only the needed parts of a file
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


def _random_access(source, reading):
    tf = tensorflow()
    read = _reader(source, reading.cache)
    num_examples = source.num_examples
    shard_size, repeats = reading.shard_size, reading.repeats

    def positions_in(step):
        first = step * reading.batch_size + reading.shard_index * shard_size
        return tf.data.Dataset.range(first, first + shard_size)

    def at(position):
        position, repeat = position // repeats, position % repeats
        epoch, offset = position // num_examples, position % num_examples
        index = shuffled_index(
            offset,
            tf.stack([tf.constant(reading.seed, "int64"), epoch]),
            num_examples,
        )
        return epoch, index, repeat, *read(index)

    steps = tf.data.Dataset.counter(start=reading.start_step)
    positions = steps.flat_map(positions_in)
    return positions.map(
        at, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _stream(source, reading):
    """Returns the examples of a stream, shuffled by file and in a buffer."""
    tf = tensorflow()
    num_shards = reading.num_shards
    start, stop = shard_range(source, reading.shard_index, num_shards)
    count = stop - start
    if not count:
        raise ValueError(
            "`num_shards` must leave each process an example to train on. "
            f"Received: num_shards={num_shards} for {source.name!r} of "
            f"{source.num_examples} examples"
        )

    def epoch_of(epoch):
        epoch_seed = fold((reading.seed, 0), epoch)
        examples = source.stream(
            start, stop, seed=epoch_seed, cache=reading.cache
        )
        # `shuffle` also uses the graph's seed, which would otherwise be the
        # global seed of the process. Here it is set for this function's graph
        # alone. A shuffle that reshuffles itself would continue where the last
        # iterator stopped.
        tf.compat.v1.set_random_seed(1)
        shuffled = examples.enumerate(start).shuffle(
            min(SHUFFLE_BUFFER, count),
            # After one fold, the first number is the same in every epoch.
            seed=fold(epoch_seed, np.int64(0))[0],
            reshuffle_each_iteration=False,
        )
        return shuffled.map(lambda index, example: (epoch, index, *example))

    def repeated(epoch, index, image, label):
        return tf.data.Dataset.range(reading.repeats).map(
            lambda repeat: (epoch, index, repeat, image, label)
        )

    # `repeats` divides the shard of a batch.
    first = reading.start_step * reading.shard_size // reading.repeats
    epochs = tf.data.Dataset.counter(start=first // count)
    examples = epochs.flat_map(epoch_of).skip(first % count)
    return examples.flat_map(repeated)
