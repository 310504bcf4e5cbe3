"""Labelled images in TFRecord files that a dataset.json describes.

    {
      "class_names": ["n00004475", "n00005787", ...],
      "splits": {
        "train": {"train-00000-of-01024.tfrecord": 13835, ...},
        "validation": {"validation-00000-of-00004.tfrecord": 12801, ...}
      },
      "image_shape": null,
      "multi_label": false,
      "about": {...}
    }

gives each file's number of examples. An example is a tf.train.Example of
`image` (the bytes of a JPEG, PNG, BMP, GIF or WebP file), `label` (int64, an
index into `class_names`, or with `multi_label` any number of them) and `name`
(anything that distinguishes images). Files that lie in a bucket are read as
well, "gs://bucket/folder".
"""

import contextlib
import json
import os
import pathlib
import shutil

from keras_vit._paths import require_file, why_no_file
from keras_vit.data import record_files, shards
from keras_vit.data.optional_imports import tensorflow

INDEX = "dataset.json"
EVALUATION_SPLITS = ("test", "validation")


def exists(path: str) -> bool:
    """Return whether a folder, local or in a bucket, is such a data set."""
    if "://" not in path:
        return os.path.exists(os.path.join(path, INDEX))
    tf = tensorflow()
    try:
        return tf.io.gfile.exists(os.path.join(path, INDEX))
    except tf.errors.UnimplementedError:  # No such file system.
        return False


def find(
    path: str, train_split: str = "", eval_split: str = ""
) -> tuple[dict, ...]:
    """Return the fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If dataset.json is not as above, or a split or a file is
            missing.
    """
    index = _read_index(path)
    there = set(tensorflow().io.gfile.listdir(path))
    eval_split = eval_split or evaluation_split(path)
    return (
        _part(path, index, there, "train_split", train_split or "train"),
        _part(path, index, there, "eval_split", eval_split),
    )


def _part(path, index, there, argument, split):
    """Return the fields of the `Source` of a split."""
    splits, names = index["splits"], tuple(index["class_names"])
    files = splits.get(split, {})
    if not sum(files.values()):
        raise ValueError(
            f"`{argument}` must be a split of {path!r} that has examples: "
            f"{sorted(splits)}. Received: {argument}={split!r}"
        )
    missing = sorted(set(files) - there)
    if missing:
        raise ValueError(
            f"{path!r} must hold the files that its {INDEX} names. "
            f"Received: {len(missing)} are missing, such as {missing[0]!r}"
        )
    if "://" not in path:
        for file in files:
            require_file(os.path.join(path, file))
    several = index["multi_label"]
    read = _several_labels(len(names)) if several else _image_and_label
    return dict(
        class_names=names,
        image_shape=index["image_shape"] and tuple(index["image_shape"]),
        multi_label=several,
        **stored(path, split, files, read),
    )


def stored(path: str, split: str, files: dict[str, int], read) -> dict:
    """Return the fields of a `Source` that depend on its files alone.

    Args:
        path: Folder of the files.
        split: Name of the split.
        files: Name of each file -> its number of examples.
        read: Function of a record, which returns (encoded image, label).
    """
    count = sum(files.values())
    return dict(
        name=f"{path} {split}",
        num_examples=count,
        ranges=((f"{os.path.abspath(path)} {split}", 0, count),),
        stream=_stream(path, files, read),
    )


def evaluation_split(path: str) -> str:
    """Return the default split for evaluation."""
    splits = _read_index(path)["splits"]
    known = [name for name in EVALUATION_SPLITS if name in splits]
    return known[0] if known else EVALUATION_SPLITS[0]


def read(path: str, split: str):
    """Read a split with the names of its images, in order.

    Returns:
        A function of (start, stop) that returns a tf.data.Dataset of (name,
        encoded image), the examples from `start` up to `stop`.

    Raises:
        ValueError: If dataset.json is not as above or has no such split.
    """
    splits = _read_index(path)["splits"]
    if split not in splits:
        raise ValueError(
            f"`split` must be one of {sorted(splits)}. Received: {split!r}"
        )
    return _stream(path, splits[split], _name_and_image)


@contextlib.contextmanager
def write(
    path: str | os.PathLike,
    num_shards: dict[str, int],
    *,
    class_names: tuple[str, ...] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    multi_label: bool = False,
    about: dict | None = None,
):
    """Write a data set, which appears at `path` only when it is complete.

    Images may be added in any order. A hash of its name determines the file of
    an image and its position there, so that each file is a random sample of its
    split. Images are first distributed over the files, which are then shuffled
    one after another: memory contains at most one file, the disk the data set
    and a copy of its largest file.

    Args:
        path: A local folder that does not exist yet. The data set is written to
            `path`.incomplete, which is removed after an error.
        num_shards: Number of files of each split, such as
            `{"train": 1024, "validation": 4}`.
        class_names: Class names by index; None takes all that occur, sorted.
        image_shape: (height, width, channels) if all images share it.
        multi_label: Whether an image has any number of classes.
        about: Other metadata for dataset.json, added to until the end.

    Yields:
        A function of (split, name, class name, encoded image) that adds an
        image; with `multi_label` it takes a sequence of class names.

    Raises:
        ValueError: If an argument is wrong, the data set or an incomplete one
            exists, or an image has an unknown split or class.
        OSError: If the disk is full.

    Example:
        with records.write("flowers", {"train": 8, "test": 1}) as add:
            for file in pathlib.Path("photographs").glob("*/*.jpg"):
                add("train", str(file), file.parent.name, file.read_bytes())
            add("test", "42", "daisy", pathlib.Path("42.jpg").read_bytes())
    """
    path = pathlib.Path(path)
    incomplete = path.with_name(path.name + ".incomplete")
    record_files.check_arguments(path, incomplete, num_shards)
    files = {
        split: [f"{split}-{i:05d}-of-{n:05d}.tfrecord" for i in range(n)]
        for split, n in num_shards.items()
    }
    incomplete.mkdir(parents=True)
    try:
        with record_files.errors_of_disk(path):
            classes = {name: i for i, name in enumerate(class_names or ())}
            closed = class_names is not None
            with record_files.spreading(
                incomplete, files, classes, closed
            ) as spread:
                yield (
                    spread if multi_label else record_files.of_one_class(spread)
                )
            order = sorted(classes) if class_names is None else class_names
            positions = {name: i for i, name in enumerate(order)}
            labels = {i: positions[name] for name, i in classes.items()}
            index = dict(
                class_names=list(order),
                splits={
                    split: {
                        n: record_files.shuffle(incomplete / n, labels)
                        for n in names
                    }
                    for split, names in files.items()
                },
                image_shape=image_shape,
                multi_label=multi_label,
                about=about or {},
            )
            (incomplete / INDEX).write_text(json.dumps(index, indent=1))
            incomplete.rename(path)
    except BaseException:
        shutil.rmtree(incomplete, ignore_errors=True)
        raise


def _read_index(path):
    gfile = tensorflow().io.gfile
    file = os.path.join(path, INDEX)
    reason = why_no_file(file) if "://" not in path else ""
    if reason or not gfile.exists(file):
        reason = reason or "is not there"
        raise ValueError(f"{path!r} must hold {INDEX}, which {reason}.")
    try:
        with gfile.GFile(file) as opened:
            index = json.loads(opened.read())
        names, splits = index["class_names"], index["splits"]
        shape = index.setdefault("image_shape", None)
        index.setdefault("multi_label", False)  # of sets of earlier versions
        counts = [n for files in splits.values() for n in files.values()]
        valid = (
            len({n for n in names if isinstance(n, str)}) == len(names) >= 2
            and all(isinstance(n, int) and n >= 0 for n in counts)
            and (shape is None or len(shape) == 3)
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file!r} must be JSON of `class_names` and `splits`. Received: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not valid:
        raise ValueError(
            f"{file!r} must name at least 2 different `class_names`, for each "
            "of `splits` each file's number of examples, and as `image_shape` "
            "null or 3 numbers. Received: something else"
        )
    return index


def _stream(path, counts, parse):
    return shards.stream_of(
        [os.path.join(path, file) for file in counts],
        [0] * len(counts),
        list(counts.values()),
        parse,
    )


def parse(record, name: str, other: str, feature):
    """Return the bytes of the feature `name`, and another feature."""
    io = tensorflow().io
    features = {name: io.FixedLenFeature((), "string"), other: feature}
    example = io.parse_single_example(record, features)
    return example[name], example[other]


def _image_and_label(record):
    label = tensorflow().io.FixedLenFeature((), "int64")
    return parse(record, "image", "label", label)


def _several_labels(num_classes):
    """Return a function of a record: the image, and 0 or 1 for each class."""
    tf = tensorflow()

    def read(record):
        feature = tf.io.RaggedFeature("int64")
        image, labels = parse(record, "image", "label", feature)
        valid = tf.debugging.Assert(
            tf.reduce_all((labels >= 0) & (labels < num_classes)),
            [f"`label` must be 0 to {num_classes - 1}. Received:", labels],
        )
        with tf.control_dependencies([valid]):
            return image, shards.multi_hot(labels, num_classes)

    return read


def _name_and_image(record):
    image = tensorflow().io.FixedLenFeature((), "string")
    return parse(record, "name", "image", image)
