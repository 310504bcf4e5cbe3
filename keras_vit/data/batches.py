"""From a source to batches {"images", "labels"}, whole or a process' share."""

import numpy as np

from keras_vit.data import crops
from keras_vit.data.decode import decode_image, recolour, resize
from keras_vit.data.lazy import tensorflow
from keras_vit.data.sources import Source

CROPS = ("inception", "pad", "none")
# Encoded images held back to shuffle a stream: some 1 GB of ImageNet's.
SHUFFLE_BUFFER = 10_000


def train_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
    crop: str = "inception",
    pad: int = 0,
    flip: bool = True,
    seed: int = 0,
    start_step: int = 0,
    share: tuple[int, int] = (0, 1),
    parts: int = 1,
):
    """Returns training batches without end.

    Order and augmentation are a function of (seed, epoch, example) alone, so
    a run can start at any step and see what it would have seen. Examples are
    shuffled as indices, or as encoded bytes in a stream, never decoded.

    Where several processes train together, each reads only its `share` of
    every batch: of files and arrays the shares are consecutive pieces of the
    batch that one process would have; of a stream each process reads, and
    shuffles, its own run of the examples.

    Args:
        source: The training part of `load`.
        batch_size: Images in each batch, those of all processes together.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop) or "none" (resized directly).
        pad: Pixels on each side for "pad".
        flip: Whether to flip left to right, half of the time.
        seed: Seed of order and augmentation.
        start_step: Number of batches to pass over.
        share: (index, count) of this process.
        parts: Number of consecutive elements that a share is cut into, such
            as one for each replica of a process.

    Returns:
        A tf.data.Dataset of {"images": `[B, H, W, C]`, float32 or, where
        nothing needs float, uint8, in [0, 255], "labels": one-hot float32
        `[B, K]`}, B being batch_size / count / parts.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    _check(source, image_size, channels)
    _check_share(batch_size, share, parts)
    if crop not in CROPS:
        raise ValueError(f"`crop` must be one of {CROPS}. Received: {crop!r}")
    if pad < 0 or start_step < 0:
        raise ValueError(
            "`pad` and `start_step` must be at least 0. "
            f"Received: pad={pad}, start_step={start_step}"
        )

    def prepare(epoch, index, image, label):
        example_seed = _fold(_fold((seed, 0), epoch), index)
        if crop == "inception":
            if image.dtype != tf.string:
                image = _pixels(source, image, channels)
            image = crops.inception_crop(
                image, image_size, channels, example_seed
            )
        else:
            image = _pixels(source, image, channels)
            image = (
                crops.pad_crop(image, image_size, pad, example_seed)
                if crop == "pad"
                else resize(image, image_size)
            )
        if flip:
            image = crops.flip(image, _fold(example_seed, 1))
        return _element(source, image, label)

    shuffled = _shuffled if source.stream is None else _shuffled_stream
    return (
        shuffled(source, seed, batch_size, start_step, share)
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .batch(batch_size // share[1] // parts, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def eval_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
    share: tuple[int, int] = (0, 1),
    parts: int = 1,
):
    """Returns every example once, in order, in batches of one size.

    Images are resized directly to `image_size`, as the authors evaluate.
    Process i of several reads the i-th run of the examples. Every process
    yields the same number of batches, filled up with zeros of weight 0.

    Args:
        source: A part of `load`.
        batch_size: Images in each batch, those of all processes together.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        share: (index, count) of this process.
        parts: Number of consecutive elements that a share is cut into.

    Returns:
        A tf.data.Dataset of elements as those of `train_batches` and
        "weights": float32 `[B]`, 0 where there is no example. The weights of
        all processes are 1 on average, so that a mean over all entries, which
        is how Keras forms the loss, is the mean over the examples.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    _check(source, image_size, channels)
    _check_share(batch_size, share, parts)
    start, stop = _run_of(source, share)
    steps = -(-source.num_examples // batch_size)
    # Keras divides a batch's weighted loss by its entries, not its weights,
    # and a weighted metric by its weights, whatever their scale.
    weight = steps * batch_size / source.num_examples

    def prepare(image, label):
        image = resize(_pixels(source, image, channels), image_size)
        return {
            **_element(source, image, label),
            "weights": tf.constant(weight, "float32"),
        }

    if source.stream is None:
        examples = tf.data.Dataset.range(start, stop).map(
            _reader(source),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
    else:
        examples = source.stream(start, stop).apply(
            tf.data.experimental.assert_cardinality(stop - start)
        )
    examples = examples.map(
        prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    share_size = batch_size // share[1]
    missing = steps * share_size - (stop - start)
    return (
        examples.concatenate(_zeros(examples.element_spec).repeat(missing))
        .batch(share_size // parts, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def as_pairs(dataset):
    """Turns batches into the tuples that `fit` and `evaluate` take.

    Args:
        dataset: A tf.data.Dataset of {"images", "labels"}, with "weights" or
            without.

    Returns:
        A tf.data.Dataset of (images, labels) or (images, labels, weights).
    """
    keys = ["images", "labels"]
    if "weights" in dataset.element_spec:
        keys.append("weights")
    return dataset.map(lambda batch: tuple(batch[key] for key in keys))


def _check(source, image_size, channels):
    if (
        not isinstance(image_size, tuple | list)
        or len(image_size) != 2
        or not all(map(_is_count, image_size))
    ):
        raise ValueError(
            "`image_size` must be (height, width) in pixels. "
            f"Received: {image_size}"
        )
    own = source.images.shape[-1] if source.images is not None else None
    if channels not in (1, 3, own) or (
        own not in (None, 1, 3) and channels != own
    ):
        raise ValueError(
            "`channels` must be 1 or 3, or the channels of arrays. Received: "
            f"channels={channels} for {source.name!r}"
            + (f" of {own} channels" if own else "")
        )


def _check_share(batch_size, share, parts):
    if not _is_count(batch_size):
        raise ValueError(
            "`batch_size` must be at least 1 and a whole number. "
            f"Received: {batch_size}"
        )
    if (
        not isinstance(share, tuple | list)
        or len(share) != 2
        or not all(isinstance(n, int | np.integer) for n in share)
        or not 0 <= share[0] < share[1]
    ):
        raise ValueError(
            "`share` must be (index, count) with an index from 0 to "
            f"count - 1. Received: share={share}"
        )
    if not _is_count(parts):
        raise ValueError(
            "`parts` must be at least 1 and a whole number. "
            f"Received: parts={parts}"
        )
    if batch_size % (share[1] * parts):
        raise ValueError(
            "`batch_size` must be a multiple of the number of processes times "
            f"`parts`. Received: batch_size={batch_size} for {share[1]} "
            f"processes of {parts} parts"
        )


def _is_count(value):
    return isinstance(value, int | np.integer) and value >= 1


def _run_of(source, share):
    """First and end of one of `count` consecutive runs, as even as can be."""
    index, count = share
    size, longer = divmod(source.num_examples, count)
    start = index * size + min(index, longer)
    return start, start + size + (index < longer)


def _zeros(element_spec):
    """A data set of one element, all zeros."""
    tf = tensorflow()
    with tf.device("CPU"):
        return tf.data.Dataset.from_tensors(
            {
                key: tf.zeros(spec.shape, spec.dtype)
                for key, spec in element_spec.items()
            }
        )


def _reader(source):
    """Returns a function from an index to (file's bytes or pixels, label)."""
    tf = tensorflow()
    with tf.device("CPU"):
        labels = tf.constant(source.labels, "int64")
        if source.paths is not None:
            paths = tf.constant(source.paths)
            return lambda i: (tf.io.read_file(paths[i]), labels[i])
        images = tf.constant(source.images)
    return lambda i: (images[i], labels[i])


def _shuffled(source, seed, batch_size, start_step, share):
    """Yields (epoch, index, image, label) of a random-access source."""
    tf = tensorflow()
    read = _reader(source)
    num_examples = source.num_examples
    share_size = batch_size // share[1]

    def positions_in(step):
        first = step * batch_size + share[0] * share_size
        return tf.data.Dataset.range(first, first + share_size)

    def at(position):
        epoch, offset = position // num_examples, position % num_examples
        index = tf.random.experimental.index_shuffle(
            offset,
            tf.stack([tf.constant(seed, "int64"), epoch]),
            num_examples - 1,
        )
        return epoch, index, *read(index)

    steps = tf.data.Dataset.counter(start=start_step)
    positions = steps.flat_map(positions_in)
    return positions.map(
        at, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _shuffled_stream(source, seed, batch_size, start_step, share):
    """The same of a stream, shuffled anew in each epoch within a buffer."""
    tf = tensorflow()
    start, stop = _run_of(source, share)
    count = stop - start
    if not count:
        raise ValueError(
            "`share` must leave each process an example to train on. "
            f"Received: share={share} for {source.name!r} of "
            f"{source.num_examples} examples"
        )
    examples = source.stream(start, stop).enumerate(start)

    def epoch_of(epoch):
        # `shuffle` mixes in the seed of the graph, here that of this function
        # alone, which would else be the process' global seed. A shuffle that
        # reshuffles itself would go on where the last iterator stopped.
        tf.compat.v1.set_random_seed(1)
        shuffled = examples.shuffle(
            min(SHUFFLE_BUFFER, count),
            # Folding once leaves the first number the same in each epoch.
            seed=_fold(_fold((seed, 0), epoch), np.int64(0))[0],
            reshuffle_each_iteration=False,
        )
        return shuffled.map(lambda index, example: (epoch, index, *example))

    first = start_step * (batch_size // share[1])
    epochs = tf.data.Dataset.counter(start=first // count)
    return epochs.flat_map(epoch_of).skip(first % count)


def _fold(seed, value):
    tf = tensorflow()
    return tf.random.experimental.stateless_fold_in(
        tf.cast(seed, "int64"), value
    )


def _pixels(source, image, channels):
    """Pixels `[H, W, channels]` of a file's bytes or of an array."""
    tf = tensorflow()
    if image.dtype == tf.string:
        image = decode_image(image, channels)
        if source.image_shape is None:
            return image
        return tf.ensure_shape(image, (*source.image_shape[:2], channels))
    if image.shape[-1] == channels:
        return image
    shape = (*image.shape[:2], channels)
    image = recolour(image, channels)
    image.set_shape(shape)
    return image


def _element(source, image, label):
    tf = tensorflow()
    classes = len(source.class_names)
    with tf.control_dependencies(
        [
            tf.debugging.Assert(
                (label >= 0) & (label < classes),
                [
                    f"The labels of {source.name!r} must be 0 to "
                    f"{classes - 1}. Received:",
                    label,
                ],
            )
        ]
    ):
        label = tf.identity(label)
    return {"images": image, "labels": tf.one_hot(label, classes)}
