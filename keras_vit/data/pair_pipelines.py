"""Makes batches {"images": {"images", "ids"}, "labels"} of a `PairSource`."""

from collections.abc import Callable
from typing import Unpack

import numpy as np

from keras_vit._arguments import Count, Natural, checked
from keras_vit.data import augment as augmentation
from keras_vit.data import crops, order
from keras_vit.data.batches import CropOptions, ShardOptions
from keras_vit.data.optional_imports import tensorflow, unconverted
from keras_vit.data.pairs import PairSource
from keras_vit.data.seeds import fold
from keras_vit.data.views import Cropping, Views


class PairOptions(CropOptions, ShardOptions, total=False):
    """Further arguments of `pair_batches`."""


@checked
@unconverted
def pair_batches(
    source: PairSource,
    tokenize: Callable,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    flip: bool = False,
    augment: tuple[str, ...] = (),
    seed: int = 0,
    start_step: Natural = 0,
    **options: Unpack[PairOptions],
):
    """Return an infinite data set of training batches.

    Order, view and the one caption of several depend only on (seed, epoch,
    example), so that a run that starts at any step sees the same batches as an
    uninterrupted one.

    Args:
        source: The training part of `load_pairs`.
        tokenize: From a list of strings to token ids, int32 `[n, L]`, such as
            the tokenizer of a model of two towers.
        batch_size: Pairs in each batch, over all processes.
        image_size: (height, width) in pixels.
        channels: 1 or 3.
        flip: Whether to flip left to right, with probability one half; a
            caption may say "left".
        augment: Layers that change one image, see `train_batches`.
        seed: Seed of order, views and captions.
        start_step: Number of batches to skip.
        **options: `crop`, `min_area`, `pad` and `resize` (`CropOptions`);
            `shard_index`, `num_shards` and `num_replicas` (`ShardOptions`).

    Returns:
        A tf.data.Dataset of {"images": {"images": `[B, H, W, C]` in [0, 255],
        "ids": int32 `[B, L]`}, "labels": {"valid": ones `[B]`}}.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    shard = order.Shard.of(batch_size, options)
    views = Views(source.images, image_size, channels, {})
    cropping = Cropping.of(image_size, options)
    reading = order.Reading(shard=shard, start_step=start_step, seed=seed)
    of_image, of_batch = augmentation.find_layers(augment, 2)
    if of_batch:
        raise ValueError(
            "`augment` must change single images: captions cannot be mixed. "
            f"Received: augment={augment}"
        )
    choose = _chooser(source)

    def prepare(example_seed, image, label):
        image = views.drawn(image, example_seed, cropping)
        if flip:
            image = crops.flip(image, fold(example_seed, 1))
        image = augmentation.augment_image(
            of_image, image, fold(example_seed, 2)
        )
        place = tf.random.stateless_uniform([], fold(example_seed, 4))
        return image, choose(label, place), tf.ones([], "float32")

    examples = order.shuffled(source.images, reading, prepare)
    batches = examples.batch(shard.element_size, drop_remainder=True)
    return _tokenized(batches, tokenize)


@checked
@unconverted
def pair_eval_batches(
    source: PairSource,
    tokenize: Callable,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    resize: Natural = 0,
    **options: Unpack[ShardOptions],
):
    """Return every image once, in order, in batches of one size.

    Each has one of its captions, by its index. The last batch is filled with
    pairs that are not valid.

    Args:
        source: The evaluation part of `load_pairs`.
        tokenize, batch_size, image_size, channels: See `pair_batches`.
        resize: Pixels of the shorter side before the central crop; 0 resizes
            directly.
        **options: `shard_index`, `num_shards` and `num_replicas`.

    Returns:
        A tf.data.Dataset of elements like those of `pair_batches`, of which
        "valid" is 0 for padding.
    """
    tf = tensorflow()
    shard = order.Shard.of(batch_size, options)
    views = Views(source.images, image_size, channels, {})
    choose = _chooser(source)

    def prepare(image, label):
        image = tf.cast(views.fixed(image, resize), "float32")
        return image, label

    examples = order.in_order(source.images, shard, prepare)
    # A place in [0, 1) for each, evenly spread (the golden ratio).
    examples = examples.enumerate(shard.range_of(source.num_examples)[0]).map(
        lambda index, example: (
            example[0],
            choose(
                example[1], tf.cast(index, "float64") * 0.6180339887498949 % 1.0
            ),
            tf.ones([], "float32"),
        )
    )
    batches = order.padded_batches(examples, source.num_examples, shard)
    return _tokenized(batches, tokenize)


def _chooser(source):
    """Return a function of a label and a place in [0, 1): one caption."""
    tf = tensorflow()

    def one_of(count, place):
        # In float64 the product is below the count.
        found = tf.cast(place, "float64") * tf.cast(count, "float64")
        return tf.cast(found, "int64")

    if source.images.stream is not None:

        def of_stream(captions, place):
            count = tf.size(captions)
            message = f"Each image of {source.name!r} must have a caption."
            there = tf.debugging.Assert(count > 0, [message])
            with tf.control_dependencies([there]):
                return captions[one_of(count, place)]

        return of_stream
    with tf.device("CPU"):
        texts = tf.constant(source.texts)
        starts = tf.constant(source.starts, "int64")
        counts = tf.constant(source.counts, "int64")
    return lambda i, place: texts[starts[i] + one_of(counts[i], place)]


def _tokenized(batches, tokenize):
    """Return batches of (image, caption, valid) with token ids."""
    tf = tensorflow()
    length = np.shape(tokenize([""]))[1]

    def ids_of(captions):
        found = tokenize([caption.decode() for caption in captions])
        return np.asarray(found, "int32")

    def convert(images, captions, valid):
        ids = tf.numpy_function(ids_of, [captions], "int32")
        ids.set_shape((captions.shape[0], length))
        return {
            "images": {"images": images, "ids": ids},
            "labels": {"valid": valid},
        }

    return batches.map(
        convert, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    ).prefetch(tf.data.AUTOTUNE)
