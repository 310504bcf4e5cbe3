"""Data sets of TensorFlow Datasets."""

import textwrap
from collections.abc import Callable

import numpy as np

from keras_vit.data import shards
from keras_vit.data.optional_imports import optional, tensorflow


def exists(name: str) -> bool:
    """Return whether TFDS has a data set of this name, config and version."""
    tfds = optional("tensorflow_datasets")
    return name.split("/")[0].split(":")[0] in tfds.list_builders()


def find(
    name: str, train_split: str, eval_split: str, **places
) -> tuple[dict, ...]:
    """Prepare a data set and return its two splits, images still encoded.

    All frames of a video are read, each encoded separately; only those of a
    clip are decoded.

    Args:
        name: TFDS name, such as "oxford_iiit_pet" or "eurosat/rgb:2.0.0".
        train_split, eval_split: Split names, slices allowed; "" the default.
        **places: `data_dir`, `manual_dir` and `try_gcs`, see `sources.load`.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the data set has no labelled images or videos, or no such
            split, config or version, or a split to evaluate on without labels.
    """
    tfds = optional("tensorflow_datasets")
    builder = prepare(name, **places)
    features = builder.info.features
    keys = builder.info.supervised_keys or _keys(features)
    kinds = (tfds.features.Image, tfds.features.Video)
    if not keys or not isinstance(features[keys[0]], kinds):
        raise ValueError(
            "`dataset` must be a set of labelled images or videos. Received: "
            f"dataset={name!r} with the supervised keys {keys}"
        )
    label = features[keys[1]]
    multi_label = isinstance(label, tfds.features.Sequence)
    label = label.feature if multi_label else label
    if not isinstance(label, tfds.features.ClassLabel):
        raise ValueError(
            f"The label of {name!r} must be a class, or a sequence of classes. "
            f"Received: {features[keys[1]]}"
        )

    def classes(example):
        return shards.multi_hot(example[keys[1]], label.num_classes)

    splits = builder.info.splits
    if not eval_split:
        # ImageNet's test images have no labels, and are left out by many.
        has_test = "test" in splits and not builder.name.startswith("imagenet")
        if has_test and "validation" in splits:
            has_test = _has_labels(builder, "test", keys[1])
        has_test = has_test or "validation" not in splits
        eval_split = "test" if has_test else "validation"
    found = parts(
        builder,
        name,
        train_split=train_split or "train",
        eval_split=eval_split,
        keys=(keys[0], classes) if multi_label else keys,
        class_names=tuple(label.names),
        reads={keys[1]: True} if multi_label else None,
        multi_label=multi_label,
    )
    # Before a training of hours; a mocked set does not state its splits.
    if splits and not _has_labels(builder, eval_split, keys[1]):
        raise ValueError(
            f"`eval_split` of {name!r} must have labels. Received: eval_split="
            f"{eval_split!r}, whose first examples have none; the splits are "
            f"{sorted(splits)}"
        )
    return found


def _has_labels(builder, split, key):
    """Return whether one of the first examples has a label, which is no -1."""
    decode = optional("tensorflow_datasets").decode
    decoding = decode.PartialDecoding({key: True})
    # Of several labels an image may have none.
    examples = builder.as_dataset(split=split, decoders=decoding).take(100)
    labels = (example[key] for example in examples.as_numpy_iterator())
    return any((np.asarray(x) >= 0).any() for x in labels)


def _keys(features):
    """Return the names of video and class, or of image and classes.

    The sets of videos, and some of several labels, have no supervised keys.
    """
    kinds = optional("tensorflow_datasets").features

    def names(kind, inner=object):
        return [
            name
            for name, feature in features.items()
            if isinstance(feature, kind)
            and isinstance(getattr(feature, "feature", None), inner)
        ]

    classes = names(kinds.Sequence, kinds.ClassLabel)
    if "labels" in classes:  # VOC has them without the difficult ones, too
        classes = ["labels"]
    for found in (
        (names(kinds.Video), names(kinds.ClassLabel)),
        (names(kinds.Image), classes),
    ):
        if all(len(each) == 1 for each in found):
            return tuple(name for (name,) in found)
    return None


def prepare(name: str, *, data_dir: str, manual_dir: str, try_gcs: bool):
    """Return the builder of a data set that is prepared.

    Raises:
        ValueError: If TFDS has no such config or version, or archives that
            are downloaded by hand are missing.
    """
    tfds = optional("tensorflow_datasets")
    try:
        builder = tfds.builder(name, data_dir=data_dir or None, try_gcs=try_gcs)
    except (AssertionError, ValueError) as error:
        # TFDS checks the version with an assertion.
        raise ValueError(
            "`dataset` must name a config and version that TFDS has. "
            f"Received: dataset={name!r}: {error}"
        ) from error
    config = tfds.download.DownloadConfig(manual_dir=manual_dir or None)
    try:
        builder.download_and_prepare(download_config=config)
    except (
        AssertionError,
        OSError,
        tensorflow().errors.NotFoundError,
    ) as error:
        steps = builder.MANUAL_DOWNLOAD_INSTRUCTIONS
        if not steps:
            raise
        # TFDS' own error may have dozens of lines.
        raise ValueError(
            f"`dataset` {name!r} must be downloaded by hand into a folder, "
            "which is given as `manual_dir` (--config.data.manual_dir=FOLDER "
            f"of a recipe). Received: manual_dir={manual_dir!r}. "
            f"{textwrap.shorten(str(error), 200, placeholder=' ...')}\n"
            f"{textwrap.shorten(steps, 400, placeholder=' ...')}"
        ) from error
    return builder


def parts(
    builder,
    name: str,
    *,
    train_split: str,
    eval_split: str,
    keys: tuple[str, str | Callable],
    class_names: tuple[str, ...],
    reads: dict | None = None,
    multi_label: bool = False,
) -> tuple[dict, ...]:
    """Return two splits of a data set.

    Other features are not read, since decoding them may cost more than decoding
    the image.

    Args:
        builder: The result of `prepare`.
        name: Name of the data set in messages.
        train_split, eval_split: Split names, slices allowed.
        keys: Feature of the image, and feature of the class or a function of
            an example that returns it.
        class_names: Class names.
        reads: Features that the function of an example reads, as
            `tfds.decode.PartialDecoding` takes it, such as {"objects":
            ["size"]}.
        multi_label: Whether that function returns 0 or 1 for each class.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If there is no such split.
    """
    decode = optional("tensorflow_datasets").decode
    image, label = keys
    decoding = decode.PartialDecoding(
        {image: True, **({label: True} if reads is None else reads)},
        decoders={image: decode.SkipDecoding()},
    )
    splits = builder.info.splits
    found = []
    for argument, split in (
        ("train_split", train_split),
        ("eval_split", eval_split),
    ):
        read = _reader(builder, keys, decoding)
        try:
            # Some data sets, such as mocked ones, do not state their sizes.
            num_examples = (
                splits[split].num_examples
                if splits
                else int(read(split).reduce(0, lambda count, _: count + 1))
            )
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"`{argument}` must be a split of {name!r}: {sorted(splits)}. "
                f"Received: {argument}={split!r}"
            ) from error
        shape = builder.info.features[image].shape
        found.append(
            dict(
                name=f"{name} {split}",
                class_names=class_names,
                num_examples=num_examples,
                multi_label=multi_label,
                image_shape=None if None in shape[-3:] else shape[-3:],
                is_video=len(shape) == 4,
                num_frames=shape[0] if len(shape) == 4 else None,
                stream=_stream(builder, keys, decoding, split),
                ranges=_ranges(builder, split, num_examples),
            )
        )
    return tuple(found)


def _reader(builder, keys, decoding):
    """Return a function from a split to its (encoded image, label)."""
    tfds = optional("tensorflow_datasets")

    def read(split):
        return builder.as_dataset(
            split=split,
            decoders=decoding,
            read_config=tfds.ReadConfig(
                interleave_cycle_length=1, try_autocache=False
            ),
        ).map(lambda example: _image_and_label(example, keys))

    return read


def _image_and_label(example, keys):
    image, label = keys
    label = label(example) if callable(label) else example[label]
    if label.shape.rank:  # 0 or 1 for each class
        return example[image], label
    return example[image], tensorflow().cast(label, "int64")


def _stream(builder, keys, decoding, split):
    """Read the files of a data set, or lets TFDS read it if it has none."""
    tfds, tf = optional("tensorflow_datasets"), tensorflow()
    splits = builder.info.splits
    files = splits[split].file_instructions if splits else []
    records = builder.info.file_format is tfds.core.FileFormat.TFRECORD
    # Mocked data sets state files that do not exist.
    if files and records and tf.io.gfile.exists(files[0].filename):
        features = decoding.extract_features(builder.info.features)
        return shards.stream_of(
            [file.filename for file in files],
            [file.skip for file in files],
            [
                file.examples_in_shard - file.skip
                if file.take < 0
                else file.take
                for file in files
            ],
            lambda record: _image_and_label(
                features.deserialize_example(
                    record, decoders=decoding.decoders
                ),
                keys,
            ),
        )
    read = _reader(builder, keys, decoding)

    def stream(start, stop, seed=None, cache=False):
        # Outside of the function of a data set, so that the cache persists.
        with tf.init_scope():
            # TFDS can only slice splits that state their size, and returns no
            # empty ones.
            if not splits or start == stop:
                examples = read(split).skip(start).take(stop - start)
            else:
                # The even splits of TFDS would divide each term separately.
                terms = shards.cut_ranges(_terms(split, splits), start, stop)
                terms = [f"{part}[{low}:{high}]" for part, low, high in terms]
                examples = read("+".join(terms))
            return examples.cache() if cache else examples

    return stream


def _ranges(builder, split, num_examples):
    """Return the stored examples of a split, as `Source.ranges`."""
    name, splits = builder.info.full_name, builder.info.splits
    if not splits:
        return ((f"{name} {split}", 0, num_examples),)
    return tuple(
        (f"{name} {part}", start, stop)
        for part, start, stop in _terms(split, splits)
    )


def _terms(split, splits):
    """Return (name, start, stop) of each term of a split such as "a+b"."""
    instruction = optional("tensorflow_datasets").core.ReadInstruction
    return tuple(
        (
            term.splitname,
            term.from_ or 0,
            splits[term.splitname].num_examples if term.to is None else term.to,
        )
        for term in instruction.from_spec(split).to_absolute(splits)
    )
