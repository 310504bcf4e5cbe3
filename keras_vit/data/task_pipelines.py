"""Makes batches {"images", "labels"} of a `TaskSource`; labels are targets."""

from typing import TypedDict, Unpack

import numpy as np

from keras_vit._arguments import Count, Natural, Rate, checked
from keras_vit.data import decode, joint, order
from keras_vit.data.batches import ShardOptions
from keras_vit.data.coco import pad_objects
from keras_vit.data.optional_imports import tensorflow, unconverted
from keras_vit.data.sources import Source
from keras_vit.data.task_files import IGNORED
from keras_vit.data.task_sources import TaskSource

# What an example of a task holds beside its image: rank, and dtype.
_TARGETS: dict[str, dict[str, tuple[int, str]]] = {
    "detection": dict(boxes=(2, "float32"), labels=(1, "int64")),
    "instances": dict(
        boxes=(2, "float32"), labels=(1, "int64"), masks=(3, "uint8")
    ),
    "panoptic": dict(
        boxes=(2, "float32"), labels=(1, "int64"), masks=(3, "uint8")
    ),
    "segmentation": dict(classes=(2, "uint8")),
    "depth": dict(depth=(2, "float32")),
    "actions": dict(
        boxes=(2, "float32"), labels=(1, "int64"), actions=(2, "uint8")
    ),
}


class ViewOptions(TypedDict, total=False):
    """How training changes images, and what belongs to them.

    Attributes:
        scales: The least and the largest size relative to the output, which
            is cropped or padded; by default (1.0, 1.0).
        keep_ratio: Whether images keep the ratio of their sides, by default
            True, rather than being stretched to that of the output.
        flip: Whether half of the images are mirrored; by default True.
        colours: The largest relative change of brightness, contrast and
            saturation, and ten times that of hue; by default 0.
        fill: Value of the padding; by default 128.
    """

    scales: tuple[float, float]
    keep_ratio: bool
    flip: bool
    colours: Rate
    fill: Natural


class FormOptions(ShardOptions, total=False):
    """The form of targets, and the part of a batch.

    Attributes:
        as_masks: Whether classes of pixels become "masks" and "labels", one of
            each class in the image, as a loss of sets takes them.
    """

    as_masks: bool


class TaskOptions(ViewOptions, FormOptions, total=False):
    """Further arguments of `task_batches`."""


@checked
@unconverted
def task_batches(
    source: TaskSource,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    max_objects: Count = 100,
    seed: int = 0,
    start_step: Natural = 0,
    **options: Unpack[TaskOptions],
):
    """Return an infinite data set of training batches.

    Order and views depend only on (seed, epoch, example), so that a run that
    starts at any step sees the same batches as an uninterrupted one. Crowds are
    left out.

    Args:
        source: The training part of `load_task`.
        batch_size: Examples in each batch, over all processes.
        image_size: (height, width) in pixels.
        channels: 1 or 3.
        max_objects: M, at most the number of a model's queries.
        seed: Seed of order and views.
        start_step: Number of batches to skip.
        **options: `scales`, `keep_ratio`, `flip`, `colours` and `fill`
            (`ViewOptions`); `as_masks` (`FormOptions`); `shard_index`,
            `num_shards` and `num_replicas` (`ShardOptions`).

    Returns:
        A tf.data.Dataset of {"images": float32 `[B, H, W, C]` in [0, 255],
        "labels": targets}: "boxes", `[B, M, 4]`, and "labels", `[B, M]`, -1 for
        padding; "masks", `[B, M, H, W]`; "classes" or "depth", `[B, H, W]`. Of
        "actions", "images" is {"videos": `[B, T, H, W, C]`, "boxes"}, and the
        targets are "actions", `[B, M, K]`, and "labels".

    Raises:
        ValueError: If an argument is out of range, or an image has more
            objects than `max_objects`: when it is read, if the source does not
            know it.
    """
    tf = tensorflow()
    shard = order.Shard.of(batch_size, options)
    reading = order.Reading(shard=shard, start_step=start_step, seed=seed)
    read = _reader(source, channels, max_objects)
    form = _former(source, max_objects, options)

    def prepare(example_seed, index, _):
        example = joint.jitter_scale(
            read(index),
            image_size,
            example_seed,
            options.get("scales", (1.0, 1.0)),
            options.get("flip", True),
            options.get("fill", 128),
            options.get("keep_ratio", True),
        )
        colours = options.get("colours", 0.0)
        images = example.pop("images")
        # The frames of a clip are one wide image.
        wide = tf.reshape(images, (image_size[0], -1, channels))
        wide = joint.jitter_colours(
            wide, example_seed, colours, hue=colours / 10
        )
        images = tf.reshape(wide, images.shape)
        return _inputs(source, images, form(example))

    examples = order.shuffled(_indices(source), reading, prepare)
    batches = examples.batch(shard.element_size, drop_remainder=True)
    return batches.prefetch(tf.data.AUTOTUNE)


@checked
@unconverted
def task_eval_batches(
    source: TaskSource,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    max_objects: Count = 100,
    padded: bool = False,
    **options: Unpack[FormOptions],
):
    """Return every example once, in order, in batches of one size.

    Images are resized to `image_size`. Every process yields the same number of
    batches, padded with examples whose targets do not count.

    Args:
        source: The evaluation part of `load_task`.
        batch_size, image_size, channels, max_objects: See `task_batches`.
        padded: Whether images keep their ratio, and are padded at the right or
            below with black, rather than stretched.
        **options: `as_masks`, `shard_index`, `num_shards` and `num_replicas`.

    Returns:
        A tf.data.Dataset of elements like those of `task_batches`, with
        "index", int64 `[B]`, -1 for padding, and "sizes", int32 `[B, 2]`,
        (height, width) of the images before. The targets have "weights",
        float32 `[B]`, 0 for padding and 1 on average.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    shard = order.Shard.of(batch_size, options)
    start, stop = shard.range_of(source.num_examples)
    read = _reader(source, channels, max_objects)
    form = _former(source, max_objects, options)

    def prepare(index):
        example = read(tf.maximum(index, 0))
        size = tf.shape(example["images"])[:2]
        if padded:
            example = joint.jitter_scale(
                example, image_size, (0, 0), (1.0, 1.0), flip=False, fill=0
            )
        image = example.pop("images")
        resized = {
            key: _resized(example[key], image_size)
            if key in ("classes", "depth", "masks")
            else example[key]
            for key in example
        }
        counts = index >= 0
        for key, empty in (("labels", -1), ("classes", IGNORED), ("depth", 0)):
            if key in resized:
                x = resized[key]
                resized[key] = tf.where(counts, x, tf.cast(empty, x.dtype))
        image = decode.resize(image, image_size)
        targets = form(resized)
        weight = shard.weight_of(source.num_examples)
        targets["weights"] = weight * tf.cast(counts, "float32")
        batch = _inputs(source, tf.cast(image, "float32"), targets)
        return batch | {"index": index, "sizes": size}

    padding = shard.steps_of(source.num_examples) * shard.size - (stop - start)
    indices = np.concatenate(
        [np.arange(start, stop), np.full(padding, -1)]
    ).astype("int64")
    examples = tf.data.Dataset.from_tensor_slices(indices).map(
        prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    return examples.batch(shard.element_size, drop_remainder=True).prefetch(
        tf.data.AUTOTUNE
    )


def _inputs(source, images, targets):
    """Return the elements of a batch; of clips boxes are an input as well."""
    if source.task != "actions":
        return {"images": images, "labels": targets}
    tf = tensorflow()
    height, width, depth = images.shape
    frames = (height, width, source.num_frames, depth // source.num_frames)
    clip = tf.transpose(tf.reshape(images, frames), (2, 0, 1, 3))
    boxes = targets.pop("boxes")
    return {"images": {"videos": clip, "boxes": boxes}, "labels": targets}


def _indices(source):
    """Return a source of numbers, which `order` shuffles."""
    numbers = np.arange(source.num_examples)
    return Source(
        name=source.name,
        class_names=source.class_names,
        num_examples=source.num_examples,
        images=numbers,
        labels=numbers,
    )


def _reader(source, channels, max_objects):
    """Return a function from an index to an example of tensors."""
    tf = tensorflow()
    kinds = _TARGETS[source.task]
    if "labels" in kinds and source.most_objects > max_objects:
        # Not after hours, when the image is read.
        raise ValueError(
            "`max_objects` must be at least the number of objects of each "
            f"image. Received: max_objects={max_objects} for "
            f"{source.most_objects} objects of an image of {source.name!r}"
        )
    channels *= source.num_frames or 1

    def load(index):
        found = dict(source.load(int(index)))
        if "labels" in kinds:
            crowd = found.get("crowd")
            kept = slice(None) if crowd is None else ~np.asarray(crowd, bool)
            found |= pad_objects(
                found["boxes"][kept],
                found["labels"][kept],
                max_objects,
                found["masks"][kept] if "masks" in kinds else None,
                name_of(source, int(index), found),
            )
        if "actions" in kinds:
            missing = max_objects - len(found["actions"])
            found["actions"] = np.pad(found["actions"], [(0, missing), (0, 0)])
        image = pixels_of(source, int(index), found, channels)
        for key in ("masks", "classes", "depth"):
            if key in kinds and found[key].shape[-2:] != image.shape[:2]:
                raise ValueError(
                    f"The {key} of an image must have its size. Received: "
                    f"{found[key].shape[-2:]} for "
                    f"{name_of(source, int(index), found)!r} of "
                    f"{image.shape[:2]}"
                )
        return (
            image,
            *(np.asarray(found[k], kind) for k, (_, kind) in kinds.items()),
        )

    def read(index):
        image, *values = tf.numpy_function(
            load, [index], ["uint8", *(k for _, k in kinds.values())]
        )
        image.set_shape([None, None, None])
        if not source.num_frames:  # a clip has the colours asked for
            image = decode.recolour(image, channels)
        image.set_shape([None, None, channels])
        found = {"images": image}
        for (key, (rank, _)), value in zip(kinds.items(), values, strict=True):
            value.set_shape([None] * rank)
            found[key] = value
        if "labels" in kinds:
            found["boxes"].set_shape([max_objects, 4])
            found["labels"].set_shape([max_objects])
        if "actions" in kinds:
            found["actions"].set_shape([max_objects, len(source.class_names)])
        return found

    return read


def pixels_of(source: TaskSource, index: int, example: dict, channels: int):
    """Return the image of an example, uint8 `[H, W, C]`.

    Not turned by EXIF: the targets are those of the stored pixels.

    Raises:
        ValueError: If it is a file that does not decode; the message names it.
    """
    image = example["images"]
    if not isinstance(image, bytes):
        return image
    name = name_of(source, index, example)
    return decode.stored_pixels(image, channels, name)


def name_of(source: TaskSource, index: int, example: dict) -> str:
    """Return the file of an example, or its number."""
    return example.get("path", f"example {index} of {source.name}")


def _former(source, max_objects, options):
    """Return the function that gives the targets of an example their form."""
    tf = tensorflow()

    def as_masks(example):
        classes = example.pop("classes")
        present, _ = tf.unique(tf.reshape(classes, [-1]))
        present = tf.sort(present[present != IGNORED])
        count = tf.size(present)
        message = "`max_objects` must be at least the classes of each image "
        message += f"of {source.name!r}. Received:"
        fits = tf.debugging.Assert(
            count <= max_objects, [message, max_objects, "for", count]
        )
        with tf.control_dependencies([fits]):
            padding = [[0, max_objects - count]]
        labels = tf.pad(tf.cast(present, "int64"), padding, constant_values=-1)
        labels = tf.ensure_shape(labels, [max_objects])
        masks = tf.cast(classes, "int64") == labels[:, None, None]
        return example | {"masks": tf.cast(masks, "uint8"), "labels": labels}

    if options.get("as_masks") and source.task == "segmentation":
        return as_masks
    return lambda example: example


def _resized(x, image_size):
    """Return classes, depth or masks at another size, by nearest pixels."""
    tf = tensorflow()
    maps = x if x.shape.rank == 3 else x[None]
    maps = tf.image.resize(maps[..., None], image_size, "nearest")[..., 0]
    return maps if x.shape.rank == 3 else maps[0]
