"""Data sets of images with their captions.

A table of captions is a CSV file with the columns `image`, a path relative to
the file, and `caption`; an image with several captions has a row for each. A
folder holds `train.csv` and `validation.csv` or `test.csv`; of a single file a
share of the images is held out.

Larger sets are TFRecord files that a pairs.json describes,

    {"splits": {"train": {"train-00000.tfrecord": 10000, ...}, "test": {...}}}

each with its number of examples. An example is a tf.train.Example of `image`,
the bytes of a file, and `captions`, one or more texts.
"""

import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from keras_vit._arguments import Share, checked
from keras_vit._paths import require_file
from keras_vit.data import digit_sentences, records, tables
from keras_vit.data import tfds as classification
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.sources import Source
from keras_vit.data.split import hold_out

INDEX = "pairs.json"
_EVAL = ("validation", "val", "test")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairSource:
    """Images with one or more captions each.

    Attributes:
        name: Its name in messages.
        images: The images. The "label" of a stream is the captions, strings
            `[n]`; that of files and arrays is the index of the example.
        texts: The captions of files and arrays: example i has `counts[i]` of
            them, from `starts[i]` on.
        starts, counts: Integers, `[N]`.
        labels: Class of each image, `[N]`, or None.
        class_names: Class names by index, or ().
        class_texts: For each class sentences that describe it, by which images
            are classified.
        digest: A text that changes if the examples do.
    """

    name: str
    images: Source
    texts: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    starts: np.ndarray | None = dataclasses.field(default=None, repr=False)
    counts: np.ndarray | None = dataclasses.field(default=None, repr=False)
    labels: np.ndarray | None = dataclasses.field(default=None, repr=False)
    class_names: tuple[str, ...] = ()
    class_texts: tuple[tuple[str, ...], ...] = ()
    digest: str = ""

    @property
    def num_examples(self) -> int:
        """Number of images."""
        return self.images.num_examples

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(height, width, channels) if all images share it, or None."""
        return self.images.image_shape

    def captions(self, index: int) -> tuple[str, ...]:
        """Return the captions of an example of files or arrays."""
        start = int(self.starts[index])  # type: ignore[index]
        count = int(self.counts[index])  # type: ignore[index]
        return self.texts[start : start + count]


@checked
def load_pairs(
    dataset: str,
    *,
    train_split: str = "",
    eval_split: str = "",
    eval_fraction: Share = 0.2,
    seed: int = 0,
    data_dir: str | os.PathLike = "",
    manual_dir: str | os.PathLike = "",
    try_gcs: bool = False,
) -> tuple[PairSource, PairSource]:
    """Find images with captions; return their training and evaluation part.

    Args:
        dataset: "digit_sentences" (`keras_vit.data.digit_sentences`); a CSV
            file, a folder of CSV files or of TFRecords (`keras_vit.data.pairs`)
            or a name of TensorFlow Datasets, such as "coco_captions".
        train_split: Split to train on; "" is "train".
        eval_split: Split to evaluate on; "" is "validation", "val" or "test".
        eval_fraction: Share of the images held out if the data set has no such
            part.
        seed: Seed of that choice.
        data_dir, manual_dir, try_gcs: See `load`.

    Raises:
        ValueError: If there is no such data set, or a file is missing or wrong;
            the message names file and line.
    """
    path = os.path.expanduser(dataset)
    splits = (train_split, eval_split)
    is_whole = dataset == "digit_sentences" or os.path.isfile(path)
    if is_whole and any(splits):
        raise ValueError(
            "`train_split` and `eval_split` must be left out for a data set "
            f"without parts. Received: train_split={train_split!r}, "
            f"eval_split={eval_split!r} for dataset={dataset!r}"
        )
    if dataset == "digit_sentences":
        parts = digit_sentences.find(eval_fraction, seed)
    elif os.path.isfile(path):
        parts = _of_one_table(path, eval_fraction, seed)
    elif os.path.isfile(os.path.join(path, INDEX)):
        parts = _of_records(path, *splits)
    elif os.path.isdir(path):
        parts = _of_tables(path, *splits)
    elif os.path.isabs(path) or dataset.startswith(".") or path != dataset:
        raise ValueError(
            "`dataset` must be a CSV file, or a folder of them or of "
            f"TFRecords. Received: dataset={dataset!r}, which is not there"
        )
    else:
        places = dict(
            data_dir=os.fspath(data_dir),
            manual_dir=os.fspath(manual_dir),
            try_gcs=try_gcs,
        )
        parts = _of_tfds(dataset, splits, places)
    train, evaluation = (_made(dataset, part) for part in parts)
    return train, evaluation


def _made(name, part):
    """Return the `PairSource` of its fields."""
    fields = part.pop("images")
    if "stream" not in fields:
        count = len(part["starts"])
        fields |= dict(num_examples=count, labels=np.arange(count))
    images = Source(**(dict(name=name, class_names=()) | fields))
    content = repr((part.get("texts"), images.paths, images.ranges))
    digest = hashlib.blake2b(content.encode(), digest_size=16)
    for array in (images.images, part.get("starts"), part.get("counts")):
        digest.update(b"" if array is None else array.tobytes())
    return PairSource(
        **part, name=images.name, images=images, digest=digest.hexdigest()
    )


def read_captions(path: str | os.PathLike) -> dict[str, list[str]]:
    """Read a table of captions: path of the image -> its captions.

    Raises:
        ValueError: If a line has no caption, or names a file that is missing.
    """
    folder = pathlib.Path(path).parent
    found: dict[str, list[str]] = {}
    splits: set[str | None] = set()
    for line, row in tables.read_rows(
        path,
        ("image", "caption"),
        'A caption with commas must stand between quotes, "a cat, a dog".',
    ):
        file, caption = str(folder / row["image"]), row["caption"].strip()
        if not caption:
            raise ValueError(
                f"Each line of {os.fspath(path)!r} must have a caption. "
                f"Received: none in line {line}, for {row['image']!r}"
            )
        if file not in found:
            try:
                require_file(file)
            except ValueError as error:
                raise ValueError(
                    f"{os.fspath(path)!r}, line {line}: {error}"
                ) from None
        found.setdefault(file, []).append(caption)
        splits.add(row.get("split"))
    tables.warn_of_splits(path, splits)
    if not found:
        raise ValueError(
            f"{os.fspath(path)!r} must have a line after its header. Received: "
            "none"
        )
    return found


def _of_one_table(path, eval_fraction, seed):
    captions = read_captions(path)
    if len(captions) < 2:
        raise ValueError(
            f"{path!r} must name at least 2 images, of which one is held out. "
            f"Received: {len(captions)}"
        )
    files = list(captions)
    no_classes = np.zeros((len(files), 0))
    parts = hold_out(no_classes, eval_fraction, seed, name=path, class_names=())
    return tuple(
        _table_fields(path, {files[i]: captions[files[i]] for i in part})
        for part in parts
    )


def _of_tables(path, train_split, eval_split):
    there = {file.stem: file for file in pathlib.Path(path).glob("*.csv")}
    train = train_split or "train"
    others = [name for name in _EVAL if name in there]
    evaluation = eval_split or (others or _EVAL)[0]
    for argument, split in (("train_split", train), ("eval_split", evaluation)):
        if split not in there:
            raise ValueError(
                f"`dataset` must be a folder with {split}.csv ({argument}), "
                "image and caption in each line, or with pairs.json. Received: "
                f"{path!r} with {sorted(there) or 'no CSV file'}"
            )
    return tuple(
        _table_fields(str(there[split]), read_captions(there[split]))
        for split in (train, evaluation)
    )


def _table_fields(name, captions):
    counts = np.array([len(texts) for texts in captions.values()])
    return dict(
        images=dict(name=str(name), paths=tuple(captions)),
        texts=tuple(text for texts in captions.values() for text in texts),
        starts=np.cumsum(counts) - counts,
        counts=counts,
    )


def _of_records(path, train_split, eval_split):
    file = os.path.join(path, INDEX)
    try:
        splits = json.loads(tables.read_text(file))["splits"]
        counts = [n for files in splits.values() for n in files.values()]
        valid = all(isinstance(n, int) and n >= 0 for n in counts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file!r} must be JSON of `splits`. Received: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not valid:
        raise ValueError(
            f"{file!r} must give each file's number of examples. Received: "
            f"{splits}"
        )
    others = [name for name in _EVAL if name in splits]
    found = []
    for split in (train_split or "train", eval_split or (others or _EVAL)[0]):
        files = splits.get(split, {})
        if not sum(files.values()):
            raise ValueError(
                f"{file!r} must have examples of the split {split!r}. "
                f"Received: {sorted(splits)}"
            )
        for name in files:
            require_file(os.path.join(path, name))
        images = records.stored(path, split, files, _image_and_captions)
        found.append(dict(images=images))
    return tuple(found)


def _image_and_captions(record):
    captions = tensorflow().io.RaggedFeature("string")
    return records.parse(record, "image", "captions", captions)


def _of_tfds(name, splits, places):
    if not classification.exists(name):
        raise ValueError(
            "`dataset` must be 'digit_sentences', a CSV file, a folder or a "
            f"name of TFDS. Received: dataset={name!r}"
        )
    builder = classification.prepare(name, **places)
    features = builder.info.features
    texts = _text_feature(features)
    if "image" not in features or texts is None:
        raise ValueError(
            "`dataset` must have the feature `image`, and captions. Received: "
            f"dataset={name!r} with {sorted(features)}"
        )
    top, inner = texts

    def captions(example):
        found = example[top][inner] if inner else example[top]
        return tensorflow().reshape(found, [-1])

    train, evaluation = splits
    there = builder.info.splits or ()
    others = [split for split in _EVAL if split in there]
    parts = classification.parts(
        builder,
        name,
        train_split=train or "train",
        eval_split=evaluation or (others or _EVAL)[0],
        keys=("image", captions),
        class_names=(),
        reads={top: [inner] if inner else True},
    )
    return tuple(dict(images=part) for part in parts)


def _text_feature(features):
    """Return (feature, name within it or None) of the captions, or None."""

    def is_text(feature):
        return getattr(feature, "dtype", None) in ("str", str, np.str_) or (
            getattr(feature, "dtype", None) == tensorflow().string
        )

    for name, feature in features.items():
        if "caption" not in name and name != "text":
            continue
        inner = getattr(feature, "feature", feature)
        if is_text(inner):
            return name, None
        for key, value in getattr(inner, "items", dict)():
            if is_text(value):
                return name, key
    return None
