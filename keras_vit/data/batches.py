"""Makes batches {"images", "labels"} of a source, or of a shard of it."""

from typing import TypedDict, Unpack

from keras_vit._arguments import Count, Natural, NotNegative, checked
from keras_vit.data import augment as augmentation
from keras_vit.data import crops, order
from keras_vit.data.optional_imports import tensorflow, unconverted
from keras_vit.data.seeds import fold
from keras_vit.data.sources import Source
from keras_vit.data.views import Crop, Cropping, Views, check_resize


class ClipOptions(TypedDict, total=False):
    """The frames of a clip.

    Attributes:
        num_frames: Frames T of a clip; 0, the default, for images.
        frame_step: Frames of the video from one frame of a clip to the next, by
            default 1. If a video is too short, its last frame is repeated. 0
            divides the whole video into as many segments as the clip has
            frames, and takes a random frame of each in training, the middle
            one in evaluation.
        frame_rate: Frames per second at which `frame_step` counts frames of
            video files; 0, the default, uses the rate of each file.
    """

    num_frames: Natural
    frame_step: Natural
    frame_rate: NotNegative


class ShardOptions(TypedDict, total=False):
    """The part of each batch that a process reads.

    Attributes:
        shard_index: Index of the shard of this process, by default 0.
        num_shards: Number of shards, one for each process, by default 1.
        num_replicas: Replicas of this process, by default 1; the shard's batch
            is split into as many consecutive elements.
    """

    shard_index: Natural
    num_shards: Count
    num_replicas: Count


class CropOptions(TypedDict, total=False):
    """How training crops an image.

    Attributes:
        crop: "inception" (5 to 100 % of the area, the default), "pad" (zeros
            around, then a random crop), "resize" (resized directly to somewhat
            more, then a random crop) or "none" (resized directly).
        min_area: Smallest share of the area for "inception".
        pad: Pixels on each side for "pad".
        resize: Pixels of the shorter side for "resize".
    """

    crop: Crop
    min_area: float
    pad: Natural
    resize: Natural


class TrainOptions(CropOptions, ClipOptions, ShardOptions, total=False):
    """Further arguments of `train_batches`."""


class EvalOptions(ClipOptions, ShardOptions, total=False):
    """Further arguments of `eval_batches`."""


@checked
@unconverted
def train_batches(
    source: Source,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    flip: bool = True,
    augment: tuple[str, ...] = (),
    repeats: Count = 1,
    cache: bool = False,
    seed: int = 0,
    start_step: Natural = 0,
    **options: Unpack[TrainOptions],
):
    """Return an infinite data set of training batches.

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
        flip: Whether to flip left to right, with probability one half. Clips
            are cropped, flipped and augmented as a unit.
        augment: Layers of Keras by name and arguments, or settings
            of the augreg models by name: see `augment.find_layers`.
        repeats: Number of consecutive copies of each example, augmented
            differently (repeated augmentation); divides the batch of a process.
        cache: Whether to keep encoded images, or video files, in memory after
            the first read; the batches are the same.
        seed: Seed of order and augmentation.
        start_step: Number of batches to skip.
        **options: `crop`, `min_area`, `pad` and `resize` (`CropOptions`);
            `num_frames`, `frame_step` and `frame_rate` (`ClipOptions`), of a
            clip with a random start; `shard_index`, `num_shards` and
            `num_replicas` (`ShardOptions`).

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
    shard = order.Shard.of(batch_size, options)
    views = Views(source, image_size, channels, options, cache)
    cropping = Cropping.of(image_size, options)
    reading = order.Reading(
        shard=shard,
        repeats=repeats,
        start_step=start_step,
        seed=seed,
        cache=cache,
    )
    of_image, of_batch = augmentation.find_layers(
        augment, len(source.class_names)
    )

    def prepare(example_seed, image, label):
        image = views.drawn(image, example_seed, cropping)
        if flip:
            image = crops.flip(image, fold(example_seed, 1))
        image = augmentation.augment_image(
            of_image, image, fold(example_seed, 2)
        )
        return image, label

    def encode(images, labels):
        return {"images": images, "labels": _encode(source, labels)}

    def mix(step, batch):
        # A number from which no example's seed is derived.
        batch_seed = fold((seed, 1), step, shard.index)
        return augmentation.augment_batch(of_batch, batch, batch_seed)

    examples = order.shuffled(source, reading, prepare)
    # Mixing does not depend on the number of replicas.
    size = shard.size if of_batch else shard.element_size
    batches = examples.batch(size, drop_remainder=True).map(encode)
    if of_batch:
        batches = (
            batches.enumerate(start_step)
            .map(mix, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .rebatch(shard.element_size, drop_remainder=True)
        )
    return batches.prefetch(tf.data.AUTOTUNE)


@checked
@unconverted
def eval_batches(
    source: Source,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    num_clips: Count = 1,
    num_crops: Count = 1,
    resize: Natural = 0,
    **options: Unpack[EvalOptions],
):
    """Return every example once, in order, in batches of one size.

    Images are resized directly to `image_size`, as the authors evaluate, or
    resized in proportion and cropped to their centre. Process i of several
    reads the i-th range of examples. Every process yields the same number of
    batches, padded with zeros of weight 0.

    Args:
        source: A source of `load`.
        batch_size: Examples in each batch, those of all processes together.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        num_clips: Clips of each video, spread evenly over it; a single clip is
            from its middle.
        num_crops: Crops of each clip, spread evenly over the longer side.
        resize: Pixels of the shorter side before the central crop; 0 resizes
            directly.
        **options: Clips and shards, as for `train_batches`.

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
    shard = order.Shard.of(batch_size, options)
    views = Views(source, image_size, channels, options)
    if resize:
        check_resize(resize, max(image_size))
    _check_views(source, num_clips, num_crops, resize)

    def prepare(image, label):
        return {
            "images": views.fixed(image, resize, num_clips, num_crops),
            "labels": _encode(source, label),
            "weights": tf.constant(
                shard.weight_of(source.num_examples), "float32"
            ),
        }

    examples = order.in_order(source, shard, prepare)
    batches = order.padded_batches(examples, source.num_examples, shard)
    return batches.prefetch(tf.data.AUTOTUNE)


@unconverted
def as_pairs(dataset):
    """Convert batches to the tuples that `fit` and `evaluate` take.

    The weights of `eval_batches` are 0 for what fills the last batch. Pass
    `weighted_metrics` to `compile`: Keras does not weight `metrics`.

    Args:
        dataset: A tf.data.Dataset of {"images", "labels"}, with "weights" or
            without.

    Returns:
        A tf.data.Dataset of (images, labels) or (images, labels, weights).

    Raises:
        ValueError: If it is no data set of such dictionaries.
    """
    spec = getattr(dataset, "element_spec", dataset)
    if not isinstance(spec, dict) or not {"images", "labels"} <= {*spec}:
        raise ValueError(
            "`dataset` must be a tf.data.Dataset of dictionaries with 'images' "
            f"and 'labels'. Received: elements {spec}"
        )
    keys = ["images", "labels"]
    if "weights" in spec:
        keys.append("weights")
    return dataset.map(lambda batch: tuple(batch[key] for key in keys))


def _check_views(source, num_clips, num_crops, resize):
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


def _encode(source, labels):
    """Return labels as float32, one-hot unless an image may have several.

    `labels` are classes, `[...]`, or 0 or 1 for each class, `[..., K]`.
    """
    tf = tensorflow()
    classes = len(source.class_names)
    if source.multi_label:
        labels = tf.cast(labels, "float32")
        return tf.ensure_shape(labels, (*labels.shape[:-1], classes))
    least, most = tf.reduce_min(labels), tf.reduce_max(labels)
    message = f"The labels of {source.name!r} must be 0 to {classes - 1}. "
    message += "Received labels from"
    valid = tf.debugging.Assert(
        (least >= 0) & (most < classes), [message, least, "to", most]
    )
    with tf.control_dependencies([valid]):
        return tf.one_hot(labels, classes)
