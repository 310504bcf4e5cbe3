"""Examples of a source, one by one, shuffled or in their own order."""

import dataclasses
import os

import numpy as np

from keras_vit.data.cache import ByteCache
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold, fold_each, shuffled_index
from keras_vit.data.sources import Source

# Number of encoded images in the shuffle buffer of a stream: about 1 GB for
# ImageNet.
SHUFFLE_BUFFER = 10_000
# Number of indices of files or arrays that are shuffled in one step.
_INDICES_AT_ONCE = 1024
# Images begun beyond one per core, so that no core waits for the one whose turn
# it is. On two cores, AUTOTUNE begins two and yields 3 to 5 % fewer images.
_MORE_CALLS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """The part of each batch that a process reads.

    Attributes:
        batch_size: Examples in each batch of all processes together.
        index: Index of the shard of this process.
        num_shards: Number of shards.
        num_replicas: Replicas of this process.
    """

    batch_size: int
    index: int = 0
    num_shards: int = 1
    num_replicas: int = 1

    @classmethod
    def of(cls, batch_size: int, options) -> "Shard":
        """Make the shard of `batches.ShardOptions`.

        Raises:
            ValueError: If the batch cannot be divided so.
        """
        index = options.get("shard_index", 0)
        num_shards = options.get("num_shards", 1)
        num_replicas = options.get("num_replicas", 1)
        if index >= num_shards:
            raise ValueError(
                "`shard_index` must be an integer from 0 to `num_shards` - 1. "
                f"Received: shard_index={index}, num_shards={num_shards}"
            )
        if batch_size % (num_shards * num_replicas):
            raise ValueError(
                "`batch_size` must be a multiple of `num_shards` times "
                f"`num_replicas`. Received: batch_size={batch_size}, "
                f"num_shards={num_shards}, num_replicas={num_replicas}"
            )
        return cls(batch_size, index, num_shards, num_replicas)

    @property
    def size(self) -> int:
        """Examples of a batch that this process reads."""
        return self.batch_size // self.num_shards

    @property
    def element_size(self) -> int:
        """Examples of a batch for one replica."""
        return self.size // self.num_replicas

    def range_of(self, num_examples: int) -> tuple[int, int]:
        """Return the start and the stop of the shard of a whole source.

        The sizes of shards differ by at most 1.
        """
        size, longer = divmod(num_examples, self.num_shards)
        start = self.index * size + min(self.index, longer)
        return start, start + size + (self.index < longer)

    def steps_of(self, num_examples: int) -> int:
        """Return the number of batches of a whole source."""
        return -(-num_examples // self.batch_size)

    def weight_of(self, num_examples: int) -> float:
        """Return the weight of an example, if that of padding is 0.

        Keras divides a batch's weighted loss by its entries, not its weights,
        and a weighted metric by its weights, whatever their scale.
        """
        return self.steps_of(num_examples) * self.batch_size / num_examples


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The examples that a process reads in training, and the first step.

    Attributes:
        shard: The part of each batch that it reads.
        repeats: Number of times that each example appears in succession;
            divides the shard's.
        start_step: Number of batches to skip.
        seed: Seed of the order.
        cache: Whether to keep the encoded images in memory.
    """

    shard: Shard
    repeats: int = 1
    start_step: int = 0
    seed: int = 0
    cache: bool = False


def in_order(source: Source, shard: Shard, prepare):
    """Return a tf.data.Dataset of a shard's range of examples, in order.

    Args:
        source: A source of `load`.
        shard: The shard.
        prepare: Function of (file's bytes or pixels, label), applied to each.
    """
    tf = tensorflow()
    start, stop = shard.range_of(source.num_examples)
    if source.stream is not None:
        examples = source.stream(start, stop).apply(
            tf.data.experimental.assert_cardinality(stop - start)
        )
        return _map(source, examples, prepare)
    read = _reader(source)
    indices = tf.data.Dataset.range(start, stop)
    return _map(source, indices, lambda i: prepare(*read(i)))


def padded_batches(examples, num_examples: int, shard: Shard):
    """Return the examples of `in_order` in batches of one size.

    Every process yields the same number of batches, padded with zeros.

    Args:
        examples: A tf.data.Dataset of the shard's range of examples.
        num_examples: Those of all shards.
        shard: The shard.
    """
    tf = tensorflow()
    start, stop = shard.range_of(num_examples)
    with tf.device("CPU"):
        zeros = tf.data.Dataset.from_tensors(
            tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype),
                examples.element_spec,
            )
        )
    missing = shard.steps_of(num_examples) * shard.size - (stop - start)
    return examples.concatenate(zeros.repeat(missing)).batch(
        shard.element_size, drop_remainder=True
    )


def shuffled(source: Source, reading: Reading, prepare):
    """Return an infinite tf.data.Dataset, shuffled anew in each epoch.

    Args:
        source: A source of `load`.
        reading: The examples that this process reads.
        prepare: Function of (seed, file's bytes or pixels, label), applied to
            each. The seed, int64 `[2]`, is derived from that of `reading`, the
            epoch and the index of the example (in a stream, its position in the
            order in which the epoch reads the files), and from the repeat if
            there are several.
    """
    size, repeats = reading.shard.size, reading.repeats
    if size % repeats:
        raise ValueError(
            f"`repeats` must divide the {size} examples of a process in a "
            f"batch. Received: repeats={repeats}"
        )
    by_kind = _random_access if source.stream is None else _stream
    return by_kind(source, reading, prepare)


def _map(source, examples, function):
    num_calls = (os.cpu_count() or 1) + _MORE_CALLS
    if source.is_video:  # clips are large
        num_calls = tensorflow().data.AUTOTUNE
    return examples.map(
        function, num_parallel_calls=num_calls, deterministic=True
    )


def _reader(source, cache=False):
    """Return a function from an index to (file's bytes or pixels, label).

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


def _random_access(source, reading, prepare):
    """Return the examples of files or arrays, shuffled as indices.

    Indices and seeds are computed for many examples at once, since TensorFlow
    takes nearly the same time for one number as for a thousand.
    """
    tf = tensorflow()
    read = _reader(source, reading.cache)
    num_examples, repeats = source.num_examples, reading.repeats
    shard = reading.shard
    # `repeats` divides both.
    batch_size, shard_size = shard.batch_size // repeats, shard.size // repeats
    steps_at_once = -(-_INDICES_AT_ONCE // shard_size)

    def from_step(step):
        steps = tf.range(step, step + steps_at_once)[:, None]
        first = shard.index * shard_size
        in_batch = tf.range(first, first + shard_size, dtype="int64")
        positions = tf.reshape(steps * batch_size + in_batch, [-1])
        epochs, offsets = positions // num_examples, positions % num_examples

        def in_epoch(epoch):
            order_seed = tf.stack([seed, epoch])
            indices = shuffled_index(
                offsets[epochs == epoch], order_seed, num_examples
            )
            return fold_each(fold((seed, 0), epoch), indices), indices

        different, _ = tf.unique(epochs)
        return tf.data.Dataset.from_tensor_slices(different).map(in_epoch)

    def work(example_seed, index):
        return prepare(example_seed, *read(index))

    seed = tf.constant(reading.seed, "int64")
    steps = tf.data.Dataset.counter(
        start=reading.start_step, step=steps_at_once
    )
    indices = steps.flat_map(from_step).unbatch()
    return _map(source, _repeated(indices, repeats), work)


def _stream(source, reading, prepare):
    """Return the examples of a stream, shuffled by file and in a buffer."""
    tf = tensorflow()
    start, stop = reading.shard.range_of(source.num_examples)
    count = stop - start
    if not count:
        raise ValueError(
            "`num_shards` must leave each process an example to train on. "
            f"Received: num_shards={reading.shard.num_shards} for "
            f"{source.name!r} of {source.num_examples} examples"
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
        return shuffled.map(
            lambda index, example: (fold(epoch_seed, index), *example)
        )

    # `repeats` divides the shard of a batch.
    first = reading.start_step * reading.shard.size // reading.repeats
    epochs = tf.data.Dataset.counter(start=first // count)
    examples = epochs.flat_map(epoch_of).skip(first % count)
    return _map(source, _repeated(examples, reading.repeats), prepare)


def _repeated(examples, repeats):
    """Return each example several times in succession, with its own seeds."""
    if repeats == 1:
        return examples

    def copies(seed, *example):
        return (
            tensorflow()
            .data.Dataset.range(repeats)
            .map(lambda repeat: (fold(seed, repeat), *example))
        )

    return examples.flat_map(copies)
