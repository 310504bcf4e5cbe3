"""Sources of labelled images and videos."""

import dataclasses
import difflib
import os
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from keras_vit._arguments import Count, Share, checked
from keras_vit.data import (
    arrays,
    folder,
    label_files,
    moving_digits,
    named,
    records,
    tfds,
    video_lists,
    vtab,
)
from keras_vit.data.optional_imports import optional


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Source:
    """A data set of labelled images or videos, not yet decoded.

    Exactly one of `paths`, `images` and `stream` is given; otherwise, or where
    numbers of examples differ, a ValueError is raised.

    Attributes:
        name: Its name in messages.
        class_names: Class names by index.
        num_examples: Number of images or videos.
        image_shape: (height, width, channels) in pixels if all images, or all
            frames of videos, share it, else None.
        is_video: Whether the examples are videos.
        num_frames: Frames of each video if all have the same number, else None.
        labels: Class of each image, `[N]`, for `paths` and `images`.
        multi_label: Whether an image may have any number of labels: labels are
            then 0 or 1 for each class, `[N, K]`, in a stream `[K]`.
        paths: Files of images or videos.
        images: Pixels, `[N, H, W, C]`, or for videos `[N, F, H, W, C]`.
        stream: A function of (start, stop, seed=None, cache=False) that
            returns a tf.data.Dataset of (encoded image, label), the examples
            from `start` up to `stop`; for a video all its encoded frames.
            `seed`, a tensor of two int64, determines the order of the files;
            None is the original order. `cache` keeps the bytes in memory.
            AutoGraph does not convert the functions of this data set.
            `shards.stream_of` makes such a function.
        ranges: The stored examples of a stream, in its order: (identity of a
            stored split, first, last + 1).
        skipped: Files skipped because they do not decode, with the decoder's
            reason.
        ignored: Number of files of a folder that were not read, by reason and
            extension, such as {("unsupported", ".heic"): 33}.
    """

    name: str
    class_names: tuple[str, ...]
    num_examples: int
    image_shape: tuple[int, int, int] | None = None
    is_video: bool = False
    num_frames: int | None = None
    labels: np.ndarray | None = dataclasses.field(default=None, repr=False)
    multi_label: bool = False
    paths: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)
    images: np.ndarray | None = dataclasses.field(default=None, repr=False)
    stream: Callable | None = None
    ranges: tuple[tuple[str, int, int], ...] = ()
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)
    ignored: dict[tuple[str, str], int] = dataclasses.field(
        default_factory=dict
    )

    def __post_init__(self):
        """Refuse examples of which there are several numbers."""
        every: list[Any] = [self.paths, self.images, self.stream]
        given = [each for each in every if each is not None]
        if len(given) != 1:
            raise ValueError(
                "Exactly one of `paths`, `images` and `stream` must be given. "
                f"Received: {len(given)} for {self.name!r}"
            )
        if self.stream is not None:
            return
        if self.labels is None or not (
            self.num_examples == len(given[0]) == len(self.labels)
        ):
            raise ValueError(
                "`num_examples` must be the number of `paths` or `images`, "
                f"and of `labels`. Received: num_examples={self.num_examples}, "
                f"{len(given[0])} and "
                f"{None if self.labels is None else len(self.labels)} for "
                f"{self.name!r}"
            )


@checked
def load(
    dataset: str,
    *,
    train_split: str = "",
    eval_split: str = "",
    eval_fraction: Share = 0.2,
    seed: int = 0,
    data_dir: str | os.PathLike = "",
    manual_dir: str | os.PathLike = "",
    try_gcs: bool = False,
    broken: Literal["error", "skip"] = "error",
) -> tuple[Source, Source]:
    """Find a data set and returns its training and its evaluation part.

    Args:
        dataset: "digits" (scikit-learn's handwritten digits, 8x8x1),
            "moving_digits" (clips of them, see
            `keras_vit.data.moving_digits.find`), a folder of images or of
            videos (see `keras_vit.data.folder.find`; with several labels each
            `keras_vit.data.label_files.find`; with the lists of Kinetics,
            Something-Something v2 or Charades `keras_vit.data.video_lists`) or
            of TFRecords
            (`keras_vit.data.records`), an npz file, a name of TensorFlow
            Datasets, or "vtab/" and a task of VTAB-1k
            (`keras_vit.data.vtab.TASKS`). "my_module:function" is a function
            of your own, perhaps with literal arguments,
            "my_module:function(size=64)": it returns two `Source`.
        train_split: TFDS split to train on; "" is "train", for VTAB-1k
            "train800val200".
        eval_split: TFDS split to evaluate on; "" is "test" or, where that is
            absent or has no labels, "validation". Of a folder with `test` and
            `val` which of the two. Other data sets have no splits by name.
        eval_fraction: Share of each class held out for evaluation if the data
            set has no such part.
        seed: Seed of that choice.
        data_dir: Directory of TFDS for prepared data; "" is its default.
        manual_dir: Directory of archives that are downloaded by hand for TFDS.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: "error", or "skip" to skip the files of a folder that do not
            decode (`Source.skipped` lists them).

    Returns:
        Training and evaluation source.

    Raises:
        ValueError: If there is no such data set (with the nearest names) or
            split, or it is empty, has fewer than two classes, or wrong labels.
    """
    path = os.path.expanduser(dataset)
    splits, held_out = (train_split, eval_split), (eval_fraction, seed)
    _check_splits(dataset, path, *splits)
    if _is_function(dataset):
        return _of_the_user(dataset)
    places: dict[str, Any] = dict(
        data_dir=os.fspath(data_dir),
        manual_dir=os.fspath(manual_dir),
        try_gcs=try_gcs,
    )
    if dataset == "digits":
        parts = arrays.digits(*held_out)
    elif dataset == "moving_digits":
        parts = moving_digits.find(*held_out)
    elif dataset.startswith(vtab.PREFIX):
        parts = vtab.find(dataset, *splits, **places)
    elif records.exists(path):
        parts = records.find(path, *splits)
    elif form := video_lists.form_of(path):
        parts = video_lists.find(path, form, broken)
    elif label_files.exists(path):
        parts = label_files.find(path, *held_out, broken, eval_split)
    elif os.path.isdir(path):
        parts = folder.find(path, *held_out, broken, eval_split)
    elif os.path.exists(path):
        parts = arrays.read_npz(path, *held_out)
    else:
        _check_of_tfds(dataset, path)
        parts = tfds.find(dataset, *splits, **places)
    train, evaluation = (Source(**part) for part in parts)
    return train, evaluation


def has_splits(dataset: str) -> bool:
    """Return whether `load` takes names of splits: of TFDS or TFRecords."""
    if dataset in ("digits", "moving_digits") or _is_function(dataset):
        return False
    path = os.path.expanduser(dataset)
    is_vtab = dataset.startswith(vtab.PREFIX)
    return is_vtab or not os.path.exists(path) or records.exists(path)


def is_of_tfds(dataset: str) -> bool:
    """Return whether `load` takes it for a name of TFDS."""
    is_vtab = dataset.startswith(vtab.PREFIX)
    there = os.path.exists(os.path.expanduser(dataset))
    return has_splits(dataset) and not is_vtab and not there


def _is_function(dataset):
    # A version of TFDS begins with a digit: "cifar10:3.*.*".
    has_name = re.match(r"[\w.]+:[^\W\d]", dataset)
    return has_name and not os.path.exists(os.path.expanduser(dataset))


def _check_splits(dataset, path, train_split, eval_split):
    """Refuse names of splits that would be ignored."""
    if has_splits(dataset):
        return
    # Those of evaluation a folder may have.
    is_folder = os.path.isdir(path) and not video_lists.form_of(path)
    if train_split or (eval_split and not is_folder):
        raise ValueError(
            "`train_split` and `eval_split` must be '' for a data set that is "
            "neither of TFDS nor of TFRecords, and has no splits by name; of a "
            "folder `eval_split` may be one beside `train`. Received: "
            f"train_split={train_split!r}, eval_split={eval_split!r} for "
            f"dataset={dataset!r}"
        )


def _check_of_tfds(dataset, path):
    """Raise ValueError for what is no name of TFDS."""
    is_path = os.path.isabs(path) or path != dataset
    if is_path or dataset.startswith(".") or dataset.endswith(".npz"):
        raise ValueError(
            "`dataset` must be an existing folder or npz file. "
            f"Received: dataset={dataset!r}, which is not there"
        )
    if not tfds.exists(dataset):
        names = ["digits", "moving_digits"]
        names += optional("tensorflow_datasets").list_builders()
        nearest = difflib.get_close_matches(dataset, names, n=5, cutoff=0.5)
        raise ValueError(
            "`dataset` must be 'digits', a folder of images, an npz file or a "
            f"name of TFDS. Received: dataset={dataset!r}, which is no path "
            f"that is there and no such name. Nearest names: "
            f"{nearest or names[:5]}"
        )


def _of_the_user(dataset):
    """Return what a function of the user's own returns, checked."""
    name, positional, keywords = named.parse(dataset)
    found = named.imported(name, "dataset")(*positional, **keywords)
    if not (
        isinstance(found, tuple)
        and len(found) == 2
        and all(isinstance(part, Source) for part in found)
    ):
        raise ValueError(
            "`dataset` must name a function that returns two "
            "`keras_vit.data.Source`, of training and of evaluation. "
            f"Received: dataset={dataset!r}, which returns {type(found)}"
        )
    return found


@checked
def sample(source: Source, count: Count) -> Source:
    """Return about `count` examples, spread evenly over a source.

    Of a stream the first ones are returned.
    """
    if source.stream is not None or source.num_examples <= count:
        return source
    chosen = np.linspace(0, source.num_examples - 1, count).astype(int)
    return take(source, chosen)


def take(source: Source, indices: np.ndarray) -> Source:
    """Return some examples of a source of files or arrays, by index."""
    return dataclasses.replace(
        source,
        num_examples=len(indices),
        labels=None if source.labels is None else source.labels[indices],
        paths=source.paths and tuple(source.paths[i] for i in indices),
        images=None if source.images is None else source.images[indices],
    )
