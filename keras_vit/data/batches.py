"""From a source to batches {"images", "labels"}, all of them or a shard."""

import numpy as np

from keras_vit.data import augment as augmentation
from keras_vit.data import crops, decode, order
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold
from keras_vit.data.sources import Source

CROPS = ("inception", "pad", "resize", "none")


def train_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
    crop: str = "inception",
    pad: int = 0,
    resize: int = 0,
    flip: bool = True,
    augment: tuple[str, ...] = (),
    cache: bool = False,
    seed: int = 0,
    start_step: int = 0,
    shard_index: int = 0,
    num_shards: int = 1,
    num_replicas: int = 1,
):
    """Returns training batches without end.

    Order and augmentation are a function of (seed, epoch, example) alone, and
    what mixes a batch of (seed, step, shard), so a run can start at any step
    and see what it would have seen. Examples are shuffled as indices, or as
    files and then as encoded bytes in a stream, never decoded.

    Where several processes train together, each reads only its shard of
    every batch: of files and arrays the shards are consecutive pieces of the
    batch that one process would have; of a stream each process reads, and
    shuffles, its own run of the examples.

    Args:
        source: The training source of `load`.
        batch_size: Images in each batch, those of all processes together.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop), "resize" (resized directly to somewhat more, then
            a random crop) or "none" (resized directly).
        pad: Pixels on each side for "pad".
        resize: Pixels of the shorter side for "resize".
        flip: Whether to flip left to right, half of the time.
        augment: Layers of Keras or KerasCV by name and arguments, or settings
            of the augreg models by name: see `augment.find_layers`.
        cache: Whether to keep the encoded images in memory once they were
            read; it changes no number.
        seed: Seed of order and augmentation.
        start_step: Number of batches to pass over.
        shard_index: Index of the shard of this process.
        num_shards: Number of shards, one for each process.
        num_replicas: Replicas of this process; the shard's batch is split
            into as many consecutive elements.

    Returns:
        A tf.data.Dataset of {"images": `[B, H, W, C]`, float32 or, where
        nothing needs float, uint8, in [0, 255], "labels": one-hot float32
        `[B, K]`}, B being batch_size / num_shards / num_replicas.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    _check(source, image_size, channels)
    _check_shard(batch_size, shard_index, num_shards, num_replicas)
    _check_crop(crop, pad, resize, image_size)
    if start_step < 0:
        raise ValueError(
            "`start_step` must be at least 0. "
            f"Received: start_step={start_step}"
        )
    of_image, of_batch = augmentation.find_layers(
        augment, len(source.class_names)
    )

    def prepare(epoch, index, image, label):
        example_seed = fold((seed, 0), epoch, index)
        if crop != "inception" or image.dtype != tf.string:
            image = _pixels(source, image, channels)
        if crop == "inception":
            image = crops.inception_crop(
                image, image_size, channels, example_seed
            )
        elif crop == "pad":
            image = crops.pad_crop(image, image_size, pad, example_seed)
        elif crop == "resize":
            image = crops.resize_crop(image, image_size, resize, example_seed)
        else:
            image = decode.resize(image, image_size)
        if flip:
            image = crops.flip(image, fold(example_seed, 1))
        image = augmentation.augment_image(
            of_image, image, fold(example_seed, 2)
        )
        return _element(source, image, label)

    shard_size = batch_size // num_shards
    batches = (
        order.shuffled(
            source,
            seed=seed,
            batch_size=batch_size,
            start_step=start_step,
            shard_index=shard_index,
            num_shards=num_shards,
            cache=cache,
        )
        .map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .batch(
            shard_size // (1 if of_batch else num_replicas), drop_remainder=True
        )
    )
    if of_batch:

        def mix(step, batch):
            # Another number than any example's seed is folded from.
            batch_seed = fold((seed, 1), step, shard_index)
            return augmentation.augment_batch(of_batch, batch, batch_seed)

        batches = (
            batches.enumerate(start_step)
            .map(mix, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            # What is mixed does not depend on the number of replicas.
            .rebatch(shard_size // num_replicas, drop_remainder=True)
        )
    return batches.prefetch(tf.data.AUTOTUNE)


def eval_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
    resize: int = 0,
    shard_index: int = 0,
    num_shards: int = 1,
    num_replicas: int = 1,
):
    """Returns every example once, in order, in batches of one size.

    Images are resized directly to `image_size`, as the authors evaluate, or
    in proportion and then cut to their middle.
    Process i of several reads the i-th run of the examples. Every process
    yields the same number of batches, filled up with zeros of weight 0.

    Args:
        source: A source of `load`.
        batch_size: Images in each batch, those of all processes together.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        resize: Pixels of the shorter side before the central crop; 0 resizes
            directly.
        shard_index: Index of the shard of this process.
        num_shards: Number of shards, one for each process.
        num_replicas: Replicas of this process; the shard's batch is split
            into as many consecutive elements.

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
    _check_shard(batch_size, shard_index, num_shards, num_replicas)
    if resize:
        _check_resize(resize, max(image_size))
    start, stop = order.shard_range(source, shard_index, num_shards)
    steps = -(-source.num_examples // batch_size)
    # Keras divides a batch's weighted loss by its entries, not its weights,
    # and a weighted metric by its weights, whatever their scale.
    weight = steps * batch_size / source.num_examples

    def prepare(image, label):
        image = _pixels(source, image, channels)
        image = (
            crops.central_crop(image, image_size, resize)
            if resize
            else decode.resize(image, image_size)
        )
        return {
            **_element(source, image, label),
            "weights": tf.constant(weight, "float32"),
        }

    examples = order.in_order(source, start, stop).map(
        prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    shard_size = batch_size // num_shards
    missing = steps * shard_size - (stop - start)
    return (
        examples.concatenate(_zeros(examples.element_spec).repeat(missing))
        .batch(shard_size // num_replicas, drop_remainder=True)
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
    native = source.images.shape[-1] if source.images is not None else None
    if channels not in (1, 3, native) or (
        native not in (None, 1, 3) and channels != native
    ):
        raise ValueError(
            "`channels` must be 1 or 3, or the channels of arrays. Received: "
            f"channels={channels} for {source.name!r}"
            + (f" of {native} channels" if native else "")
        )


def _check_crop(crop, pad, resize, image_size):
    if crop not in CROPS:
        raise ValueError(f"`crop` must be one of {CROPS}. Received: {crop!r}")
    if pad < 0:
        raise ValueError(f"`pad` must be at least 0. Received: pad={pad}")
    if crop == "resize":
        _check_resize(resize, min(image_size))


def _check_resize(resize, least):
    if not _is_count(resize) or resize < least:
        raise ValueError(
            f"`resize` must be at least the {least} pixels that are cropped "
            f"of it. Received: resize={resize}"
        )


def _check_shard(batch_size, shard_index, num_shards, num_replicas):
    if not _is_count(batch_size):
        raise ValueError(
            "`batch_size` must be an integer of at least 1. "
            f"Received: {batch_size}"
        )
    if (
        not isinstance(shard_index, int | np.integer)
        or not _is_count(num_shards)
        or not 0 <= shard_index < num_shards
    ):
        raise ValueError(
            "`shard_index` must be an integer from 0 to `num_shards` - 1. "
            f"Received: shard_index={shard_index}, num_shards={num_shards}"
        )
    if not _is_count(num_replicas):
        raise ValueError(
            "`num_replicas` must be an integer of at least 1. "
            f"Received: num_replicas={num_replicas}"
        )
    if batch_size % (num_shards * num_replicas):
        raise ValueError(
            "`batch_size` must be a multiple of `num_shards` times "
            f"`num_replicas`. Received: batch_size={batch_size}, "
            f"num_shards={num_shards}, num_replicas={num_replicas}"
        )


def _is_count(value):
    return isinstance(value, int | np.integer) and value >= 1


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


def _pixels(source, image, channels):
    """Pixels `[H, W, channels]` of a file's bytes or of an array."""
    tf = tensorflow()
    if image.dtype == tf.string:
        image = decode.decode_image(image, channels)
        if source.image_shape is None:
            return image
        return tf.ensure_shape(image, (*source.image_shape[:2], channels))
    if image.shape[-1] == channels:
        return image
    shape = (*image.shape[:2], channels)
    image = decode.recolour(image, channels)
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
