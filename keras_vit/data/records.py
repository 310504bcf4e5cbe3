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
import errno
import hashlib
import json
import os
import pathlib
import re
import shutil

from keras_vit._paths import require_file, why_no_file
from keras_vit.data import shards
from keras_vit.data.optional_imports import tensorflow

INDEX = "dataset.json"
EVALUATION_SPLITS = ("test", "validation")
# Suffix of files that are not shuffled yet.
SPREAD = ".spread"
# File descriptors that a process needs besides the files of a data set.
OTHER_FILES = 256


def exists(path: str) -> bool:
    """Returns whether a folder, local or in a bucket, is such a data set."""
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
    """Finds the two parts of a data set.

    Args:
        path: The folder of dataset.json.
        train_split: Split to train on; "" is "train".
        eval_split: Split to evaluate on; "" is "test" or, without it,
            "validation".

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If dataset.json is not as above, or a split or a file is
            missing.
    """
    index = _read_index(path)
    splits = index["splits"]
    multi_label = index["multi_label"]
    parse = _several_labels(len(index["class_names"]))
    eval_split = eval_split or evaluation_split(path)
    there = set(tensorflow().io.gfile.listdir(path))
    parts = []
    for argument, split in (
        ("train_split", train_split or "train"),
        ("eval_split", eval_split),
    ):
        if not sum(splits.get(split, {}).values()):
            raise ValueError(
                f"`{argument}` must be a split of {path!r} that has examples: "
                f"{sorted(splits)}. Received: {argument}={split!r}"
            )
        missing = sorted(set(splits[split]) - there)
        if missing:
            raise ValueError(
                f"{path!r} must hold the files that its {INDEX} names. "
                f"Received: {len(missing)} are missing, such as {missing[0]!r}"
            )
        if "://" not in path:
            for file in splits[split]:
                require_file(os.path.join(path, file))
        parts.append(
            dict(
                name=f"{path} {split}",
                class_names=tuple(index["class_names"]),
                num_examples=sum(splits[split].values()),
                image_shape=index["image_shape"]
                and tuple(index["image_shape"]),
                multi_label=multi_label,
                ranges=(
                    (
                        f"{os.path.abspath(path)} {split}",
                        0,
                        sum(splits[split].values()),
                    ),
                ),
                stream=_stream(
                    path,
                    splits[split],
                    parse if multi_label else _image_and_label,
                ),
            )
        )
    return tuple(parts)


def evaluation_split(path: str) -> str:
    """Returns the default split for evaluation.

    Args:
        path: The folder of dataset.json.

    Raises:
        ValueError: If dataset.json is not as above.
    """
    splits = _read_index(path)["splits"]
    known = [name for name in EVALUATION_SPLITS if name in splits]
    return known[0] if known else EVALUATION_SPLITS[0]


def read(path: str, split: str):
    """Reads a split with the names of its images, in order.

    Args:
        path: The folder of dataset.json.
        split: One of its splits.

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
    """Writes a data set, which appears at `path` only when it is complete.

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
        image_shape: (height, width, channels) in pixels if all images share
            it.
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
    _check_arguments(path, incomplete, num_shards)
    files = {
        split: [f"{split}-{i:05d}-of-{n:05d}.tfrecord" for i in range(n)]
        for split, n in num_shards.items()
    }
    incomplete.mkdir(parents=True)
    try:
        with _errors_of_disk(path):
            classes = {name: i for i, name in enumerate(class_names or ())}
            closed = class_names is not None
            with _spreading(incomplete, files, classes, closed) as spread:
                yield spread if multi_label else _of_one_class(spread)
            order = sorted(classes) if class_names is None else class_names
            positions = {name: i for i, name in enumerate(order)}
            labels = {i: positions[name] for name, i in classes.items()}
            index = dict(
                class_names=list(order),
                splits={
                    split: {
                        file: _shuffle(incomplete / file, labels)
                        for file in names
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


def hash_of(name: str) -> int:
    """Returns a 64-bit hash of a name, the same on every machine."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _why_no_file(path):
    if "://" not in path:
        return why_no_file(path)
    return None if tensorflow().io.gfile.exists(path) else "is not there"


def _read_index(path):
    gfile = tensorflow().io.gfile
    file = os.path.join(path, INDEX)
    reason = _why_no_file(file)
    if reason:
        raise ValueError(f"{path!r} must hold {INDEX}, which {reason}.")
    try:
        with gfile.GFile(file) as opened:
            index = json.loads(opened.read())
        names, splits = index["class_names"], index["splits"]
        shape = index.setdefault("image_shape", None)
        index.setdefault("multi_label", False)  # of sets of earlier versions
        valid = (
            len(names) >= 2
            and len(set(names)) == len(names)
            and all(isinstance(name, str) for name in names)
            and all(
                isinstance(count, int) and count >= 0
                for counts in splits.values()
                for count in counts.values()
            )
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


def _image_and_label(record):
    tf = tensorflow()
    example = tf.io.parse_single_example(
        record,
        {
            "image": tf.io.FixedLenFeature((), "string"),
            "label": tf.io.FixedLenFeature((), "int64"),
        },
    )
    return example["image"], example["label"]


def _several_labels(num_classes):
    """Returns a function of a record: the image, and 0 or 1 for each class."""
    tf = tensorflow()

    def parse(record):
        example = tf.io.parse_single_example(
            record,
            {
                "image": tf.io.FixedLenFeature((), "string"),
                "label": tf.io.RaggedFeature("int64"),
            },
        )
        labels = example["label"]
        valid = tf.debugging.Assert(
            tf.reduce_all((labels >= 0) & (labels < num_classes)),
            [f"`label` must be 0 to {num_classes - 1}. Received:", labels],
        )
        with tf.control_dependencies([valid]):
            # An image may have no label, and one twice.
            hot = tf.one_hot(labels, num_classes, dtype="int32")
        return example["image"], tf.cast(tf.reduce_sum(hot, 0) > 0, "uint8")

    return parse


def _name_and_image(record):
    tf = tensorflow()
    feature = tf.io.FixedLenFeature((), "string")
    example = tf.io.parse_single_example(
        record, {"name": feature, "image": feature}
    )
    return example["name"], example["image"]


def _check_arguments(path, incomplete, num_shards):
    if path.exists():
        raise ValueError(
            f"`path` must not be there yet. Received: {str(path)!r}"
        )
    if incomplete.exists():
        raise ValueError(
            "`path` must not be written already. Received: "
            f"{str(incomplete)!r}, which another run writes, or one that was "
            "killed may have left: then remove it"
        )
    for split, count in num_shards.items():
        if not re.fullmatch(r"\w+", split) or not 1 <= count < 100_000:
            raise ValueError(
                "`num_shards` must be numbers from 1 to 99999 by names of "
                f"splits. Received: {num_shards}"
            )
    _allow_open_files(sum(num_shards.values()) + OTHER_FILES)


def _allow_open_files(count):
    """Raises the process' limit of open files if necessary."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ValueError(
            f"`num_shards` must leave {OTHER_FILES} of the {hard} files that "
            "the system lets a process open (ulimit -Hn). Received: "
            f"{count - OTHER_FILES} shards"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@contextlib.contextmanager
def _errors_of_disk(path):
    """Converts TensorFlow's errors of writing to those of Python."""
    tf = tensorflow()
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(
            errno.ENOSPC, f"The disk has no room for the set: {error.message}"
        ) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message, str(path)) from error


@contextlib.contextmanager
def _spreading(folder, files, classes, closed):
    """Yields the function that adds an image to the file its name hashes to.

    Unless the classes are closed, they receive those that occur.
    """
    tf = tensorflow()
    with contextlib.ExitStack() as stack:
        writers = {
            split: [
                stack.enter_context(
                    tf.io.TFRecordWriter(f"{folder / file}{SPREAD}")
                )
                for file in names
            ]
            for split, names in files.items()
        }

        def add(split, name, class_names, image):
            if split not in writers:
                raise ValueError(
                    f"`split` must be one of {list(writers)}. "
                    f"Received: {split!r} for {name!r}"
                )
            if isinstance(class_names, str):
                raise ValueError(
                    "With `multi_label` the class names must be a sequence. "
                    f"Received: {class_names!r} for {name!r}"
                )
            for class_name in class_names:
                if not closed:
                    classes.setdefault(class_name, len(classes))
                elif class_name not in classes:
                    raise ValueError(
                        f"The class of {name!r} must be one of the "
                        f"{len(classes)} `class_names`. Received: "
                        f"{class_name!r}"
                    )
            example = tf.train.Example()
            feature = example.features.feature
            feature["image"].bytes_list.value.append(image)
            labels = [classes[class_name] for class_name in class_names]
            feature["label"].int64_list.value.extend(labels)
            feature["name"].bytes_list.value.append(name.encode())
            chosen = writers[split][hash_of(name) % len(writers[split])]
            chosen.write(example.SerializeToString(deterministic=True))

        yield add


def _of_one_class(add):
    def add_one(split, name, class_name, image):
        add(split, name, (class_name,), image)

    return add_one


def _shuffle(file, labels):
    """Sorts the examples of a file by hash, and writes their final labels.

    Returns:
        The number of examples.
    """
    tf = tensorflow()
    examples = []
    spread = f"{file}{SPREAD}"
    for record in tf.data.TFRecordDataset(spread).as_numpy_iterator():
        example = tf.train.Example.FromString(record)
        feature = example.features.feature
        label = feature["label"].int64_list
        label.value[:] = [labels[i] for i in label.value]
        name = feature["name"].bytes_list.value[0].decode()
        examples.append(
            (hash_of(name), example.SerializeToString(deterministic=True))
        )
    os.remove(spread)
    examples.sort()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for _, record in examples:
            writer.write(record)
    return len(examples)
