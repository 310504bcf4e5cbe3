"""Makes batches {"images", "labels"} of a source, or of a shard of it."""

import numpy as np

from keras_vit._arguments import checked
from keras_vit.data import augment as augmentation
from keras_vit.data import clips, crops, order
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold
from keras_vit.data.sources import Source
from keras_vit.data.views import Crop, Views, check_crop, check_resize, is_count


@checked
def train_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
    num_frames: int = 0,
    frame_step: int = 1,
    frame_rate: float = 0.0,
    crop: Crop = "inception",
    min_area: float = crops.MIN_AREA,
    pad: int = 0,
    resize: int = 0,
    flip: bool = True,
    augment: tuple[str, ...] = (),
    repeats: int = 1,
    cache: bool = False,
    seed: int = 0,
    start_step: int = 0,
    shard_index: int = 0,
    num_shards: int = 1,
    num_replicas: int = 1,
):
    """Returns an infinite data set of training batches.

    Order and augmentation depend only on (seed, epoch, example), and the mixing
    of a batch only on (seed, step, shard), so that a run that starts at any
    step sees the same batches as an uninterrupted one. Examples are shuffled as
    indices, or in a stream as files and then as encoded bytes, never decoded.

    With several processes, each reads only its shard of every batch. For files
    and arrays the shards are consecutive parts of the batch that a single
    process would have; of a stream each process reads and shuffles its own
    range of examples.

    Args:
        source: The training source of `load`.
        batch_size: Examples in each batch, over all processes.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        num_frames: Frames T of a clip; 0 for images. A clip has a random start,
            and is cropped, flipped and augmented as a unit.
        frame_step: Frames of the video from one frame of a clip to the next. If
            a video is too short, its last frame is repeated.
        frame_rate: Frames per second at which `frame_step` counts frames of
            video files; 0 uses the rate of each file.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop), "resize" (resized directly to somewhat more, then
            a random crop) or "none" (resized directly).
        min_area: Smallest share of the area for "inception".
        pad: Pixels on each side for "pad".
        resize: Pixels of the shorter side for "resize".
        flip: Whether to flip left to right, with probability one half.
        augment: Layers of Keras by name and arguments, or settings
            of the augreg models by name: see `augment.find_layers`.
        repeats: Number of consecutive copies of each example, augmented
            differently (repeated augmentation); divides the batch of a process.
        cache: Whether to keep encoded images, or video files, in memory after
            the first read; the batches are the same.
        seed: Seed of order and augmentation.
        start_step: Number of batches to skip.
        shard_index: Index of the shard of this process.
        num_shards: Number of shards, one for each process.
        num_replicas: Replicas of this process; the shard's batch is split
            into as many consecutive elements.

    Returns:
        A tf.data.Dataset of {"images": `[B, H, W, C]`, or for videos
        `[B, T, H, W, C]`, float32 or, if nothing needs floats, uint8, in
        [0, 255], "labels": one-hot float32 `[B, K]`, or 1 for each label of an
        image that may have several}, where B is batch_size / num_shards /
        num_replicas.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    sampling = _sampling(num_frames, frame_step, frame_rate)
    views = Views(source, image_size, channels, sampling, cache)
    _check_shard(batch_size, shard_index, num_shards, num_replicas)
    check_crop(crop, pad, resize, image_size)
    _check_repeats(repeats, batch_size // num_shards)
    if start_step < 0:
        raise ValueError(
            "`start_step` must be at least 0. "
            f"Received: start_step={start_step}"
        )
    of_image, of_batch = augmentation.find_layers(
        augment, len(source.class_names)
    )

    def prepare(example_seed, image, label):
        image = views.drawn(
            image,
            example_seed,
            crop=crop,
            pad=pad,
            resize=resize,
            min_area=min_area,
        )
        if flip:
            image = crops.flip(image, fold(example_seed, 1))
        image = augmentation.augment_image(
            of_image, image, fold(example_seed, 2)
        )
        return image, label

    reading = order.Reading(
        batch_size=batch_size,
        shard_index=shard_index,
        num_shards=num_shards,
        repeats=repeats,
        start_step=start_step,
        seed=seed,
        cache=cache,
    )

    def encode(images, labels):
        return {"images": images, "labels": _encode(source, labels)}

    shard_size = reading.shard_size
    batches = (
        order.shuffled(source, reading, prepare)
        .batch(
            shard_size // (1 if of_batch else num_replicas), drop_remainder=True
        )
        .map(encode)
    )
    if of_batch:

        def mix(step, batch):
            # A number from which no example's seed is derived.
            batch_seed = fold((seed, 1), step, shard_index)
            return augmentation.augment_batch(of_batch, batch, batch_seed)

        batches = (
            batches.enumerate(start_step)
            .map(mix, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            # Mixing does not depend on the number of replicas.
            .rebatch(shard_size // num_replicas, drop_remainder=True)
        )
    return batches.prefetch(tf.data.AUTOTUNE)


@checked
def eval_batches(
    source: Source,
    *,
    batch_size: int,
    image_size: tuple[int, int],
    channels: int = 3,
    num_frames: int = 0,
    frame_step: int = 1,
    frame_rate: float = 0.0,
    num_clips: int = 1,
    num_crops: int = 1,
    resize: int = 0,
    shard_index: int = 0,
    num_shards: int = 1,
    num_replicas: int = 1,
):
    """Returns every example once, in order, in batches of one size.

    Images are resized directly to `image_size`, as the authors evaluate, or
    resized in proportion and cropped to their centre. Process i of several
    reads the i-th range of examples. Every process yields the same number of
    batches, padded with zeros of weight 0.

    Args:
        source: A source of `load`.
        batch_size: Examples in each batch, those of all processes together.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        num_frames, frame_step, frame_rate: See `train_batches`.
        num_clips: Clips of each video, spread evenly over it; a single clip is
            from its middle.
        num_crops: Crops of each clip, spread evenly over the longer side.
        resize: Pixels of the shorter side before the central crop; 0 resizes
            directly.
        shard_index: Index of the shard of this process.
        num_shards: Number of shards, one for each process.
        num_replicas: Replicas of this process; the shard's batch is split
            into as many consecutive elements.

    Returns:
        A tf.data.Dataset of elements like those of `train_batches`, with
        "images" `[B, V, T, H, W, C]` for more than one clip or crop, and
        "weights": float32 `[B]`, 0 for padding. The mean of the weights over
        all processes is 1, so that the mean over all entries, with which Keras
        computes the loss, is the mean over the examples.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    sampling = _sampling(num_frames, frame_step, frame_rate)
    views = Views(source, image_size, channels, sampling)
    _check_shard(batch_size, shard_index, num_shards, num_replicas)
    if resize:
        check_resize(resize, max(image_size))
    _check_num_views(source, num_clips, num_crops, resize)
    start, stop = order.shard_range(source, shard_index, num_shards)
    steps = -(-source.num_examples // batch_size)
    # Keras divides a batch's weighted loss by its entries, not its weights,
    # and a weighted metric by its weights, whatever their scale.
    weight = steps * batch_size / source.num_examples

    def prepare(image, label):
        image = views.fixed(
            image, resize=resize, num_clips=num_clips, num_crops=num_crops
        )
        return {
            "images": image,
            "labels": _encode(source, label),
            "weights": tf.constant(weight, "float32"),
        }

    examples = order.in_order(source, start, stop, prepare)
    shard_size = batch_size // num_shards
    missing = steps * shard_size - (stop - start)
    return (
        examples.concatenate(_zeros(examples.element_spec).repeat(missing))
        .batch(shard_size // num_replicas, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def as_pairs(dataset):
    """Converts batches to the tuples that `fit` and `evaluate` take.

    The weights of `eval_batches` are 0 for what fills the last batch. Pass
    `weighted_metrics` to `compile`: Keras does not weight `metrics`.

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


def _check_shard(batch_size, shard_index, num_shards, num_replicas):
    if not is_count(batch_size):
        raise ValueError(
            "`batch_size` must be an integer of at least 1. "
            f"Received: {batch_size}"
        )
    if (
        not isinstance(shard_index, int | np.integer)
        or not is_count(num_shards)
        or not 0 <= shard_index < num_shards
    ):
        raise ValueError(
            "`shard_index` must be an integer from 0 to `num_shards` - 1. "
            f"Received: shard_index={shard_index}, num_shards={num_shards}"
        )
    if not is_count(num_replicas):
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


def _sampling(num_frames, frame_step, frame_rate):
    """Returns the sampling of frames of a clip; None for images."""
    if not num_frames:
        return None
    return clips.Sampling(
        num_frames=num_frames, step=frame_step, rate=frame_rate
    )


def _check_repeats(repeats, shard_size):
    if not is_count(repeats) or shard_size % repeats:
        raise ValueError(
            f"`repeats` must divide the {shard_size} examples of a process in "
            f"a batch. Received: repeats={repeats}"
        )


def _check_num_views(source, num_clips, num_crops, resize):
    if not is_count(num_clips) or not is_count(num_crops):
        raise ValueError(
            "`num_clips` and `num_crops` must be integers of at least 1. "
            f"Received: num_clips={num_clips}, num_crops={num_crops}"
        )
    if num_clips * num_crops > 1 and not source.is_video:
        raise ValueError(
            "`num_clips` and `num_crops` must be 1 for images. Received: "
            f"num_clips={num_clips}, num_crops={num_crops} for {source.name!r}"
        )
    if num_crops > 1 and not resize:
        raise ValueError(
            "`num_crops` above 1 needs `resize`, the shorter side that is "
            f"cropped. Received: num_crops={num_crops}, resize=0"
        )


def _zeros(element_spec):
    """Returns a data set of one element, all zeros."""
    tf = tensorflow()
    with tf.device("CPU"):
        return tf.data.Dataset.from_tensors(
            {
                key: tf.zeros(spec.shape, spec.dtype)
                for key, spec in element_spec.items()
            }
        )


def _encode(source, labels):
    """Returns labels as float32, one-hot unless an image may have several.

    Args:
        source: Their source.
        labels: Classes, `[...]`, or 0 or 1 for each class, `[..., K]`.
    """
    tf = tensorflow()
    classes = len(source.class_names)
    if source.multi_label:
        labels = tf.cast(labels, "float32")
        return tf.ensure_shape(labels, (*labels.shape[:-1], classes))
    least, most = tf.reduce_min(labels), tf.reduce_max(labels)
    valid = tf.debugging.Assert(
        (least >= 0) & (most < classes),
        [
            f"The labels of {source.name!r} must be 0 to {classes - 1}. "
            "Received labels from",
            least,
            "to",
            most,
        ],
    )
    with tf.control_dependencies([valid]):
        return tf.one_hot(labels, classes)
