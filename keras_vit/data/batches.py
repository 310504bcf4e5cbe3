"""From a source to batches {"images", "labels"}."""

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
):
    """Returns training batches without end.

    Order and augmentation are a function of (seed, epoch, example) alone, so
    a run can start at any step and see what it would have seen. Examples are
    shuffled as indices, or as encoded bytes in a stream, never decoded.

    Args:
        source: The training part of `load`.
        batch_size: Images in each batch.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop) or "none" (resized directly).
        pad: Pixels on each side for "pad".
        flip: Whether to flip left to right, half of the time.
        seed: Seed of order and augmentation.
        start_step: Number of batches to pass over.

    Returns:
        A tf.data.Dataset of {"images": `[B, H, W, C]`, float32 or, where
        nothing needs float, uint8, in [0, 255], "labels": one-hot float32
        `[B, K]`}.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    _check(source, batch_size, image_size, channels)
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

    first = start_step * batch_size
    if source.stream is None:
        examples = _shuffled(source, seed, first)
    else:
        examples = _shuffled_stream(source, seed, first)
    return (
        examples.map(
            prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        .batch(batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def eval_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
):
    """Returns every example once, in order; the last batch may be smaller.

    Images are resized directly to `image_size`, as the authors evaluate.

    Args:
        source: A part of `load`.
        batch_size: Images in each batch.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.

    Returns:
        A tf.data.Dataset of elements as those of `train_batches`.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    _check(source, batch_size, image_size, channels)

    def prepare(image, label):
        image = resize(_pixels(source, image, channels), image_size)
        return _element(source, image, label)

    if source.stream is None:
        read = _reader(source)
        examples = tf.data.Dataset.range(source.num_examples).map(
            read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
    else:
        examples = source.stream()
    batches = (
        examples.map(
            prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )
    count = -(-source.num_examples // batch_size)
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def as_pairs(dataset):
    """Turns {"images", "labels"} into the pairs that `model.fit` takes.

    Args:
        dataset: A tf.data.Dataset of such dictionaries.
    """
    return dataset.map(lambda batch: (batch["images"], batch["labels"]))


def _check(source, batch_size, image_size, channels):
    if not _is_count(batch_size):
        raise ValueError(
            "`batch_size` must be at least 1 and a whole number. "
            f"Received: {batch_size}"
        )
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


def _is_count(value):
    return isinstance(value, int | np.integer) and value >= 1


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


def _shuffled(source, seed, first):
    """Yields (epoch, index, image, label) of a random-access source."""
    tf = tensorflow()
    read = _reader(source)
    count = source.num_examples

    def at(position):
        epoch, offset = position // count, position % count
        index = tf.random.experimental.index_shuffle(
            offset,
            tf.stack([tf.constant(seed, "int64"), epoch]),
            count - 1,
        )
        return epoch, index, *read(index)

    positions = tf.data.Dataset.counter(start=first)
    return positions.map(
        at, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _shuffled_stream(source, seed, first):
    """The same of a stream, shuffled anew in each epoch within a buffer."""
    tf = tensorflow()
    count = source.num_examples
    examples = source.stream().enumerate()

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
