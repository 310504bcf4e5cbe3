"""Writes the TFRecord files of a data set; see `records.write`."""

import contextlib
import errno
import hashlib
import os
import re

from keras_vit.data.optional_imports import tensorflow

# Suffix of files that are not shuffled yet.
_SPREAD = ".spread"
# File descriptors that a process needs besides the files of a data set.
_OTHER_FILES = 256


def check_arguments(path, incomplete, num_shards):
    """Raise ValueError for arguments of `records.write`."""
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
    _allow_open_files(sum(num_shards.values()) + _OTHER_FILES)


def _allow_open_files(count):
    """Raise the process' limit of open files if necessary."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ValueError(
            f"`num_shards` must leave {_OTHER_FILES} of the {hard} files that "
            "the system lets a process open (ulimit -Hn). Received: "
            f"{count - _OTHER_FILES} shards"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@contextlib.contextmanager
def errors_of_disk(path):
    """Convert TensorFlow's errors of writing to those of Python."""
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
def spreading(folder, files, classes, closed):
    """Yield the function that adds an image to the file its name hashes to.

    Unless the classes are closed, those that occur are added.
    """
    tf = tensorflow()
    with contextlib.ExitStack() as stack:
        writers = {
            split: [
                stack.enter_context(
                    tf.io.TFRecordWriter(f"{folder / file}{_SPREAD}")
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
            if not closed:
                for class_name in class_names:
                    classes.setdefault(class_name, len(classes))
            unknown = [each for each in class_names if each not in classes]
            if unknown:
                raise ValueError(
                    f"The class of {name!r} must be one of the {len(classes)} "
                    f"`class_names`. Received: {unknown[0]!r}"
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


def of_one_class(add):
    """Return the function that adds an image of one class."""

    def add_one(split, name, class_name, image):
        add(split, name, (class_name,), image)

    return add_one


def shuffle(file, labels):
    """Sort a file by hash, with the final labels; return its examples."""
    tf = tensorflow()
    examples = []
    spread = f"{file}{_SPREAD}"
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


def hash_of(name: str) -> int:
    """Return a 64-bit hash of a name, the same on every machine."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
