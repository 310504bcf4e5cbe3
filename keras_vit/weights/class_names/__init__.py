"""Names of ImageNet's classes, in the order of the released checkpoints.

The classes are WordNet synsets in the order of their ids. The 1,000 are those
of ILSVRC 2012. The 21,843 are those of the authors' ImageNet-21k: the 21,841
of ImageNet's fall 2011 release, and n03931044 and n09859684, of which there are
no images (big_transfer, issues 7 and 18).
"""

import collections
import functools
import gzip
import importlib.resources
import typing
from collections.abc import Sequence
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked

Dataset = Literal["imagenet2012", "imagenet21k"]
DATASETS: tuple[Dataset, ...] = typing.get_args(Dataset)


@checked
def imagenet_classes(dataset: Dataset = "imagenet2012") -> tuple[str, ...]:
    """Return the names of ImageNet's classes by index.

    A name lists the lemmas of its synset, such as "tench, Tinca tinca". If
    several synsets have the same lemmas, the id is appended: "crane
    (n02012849)".

    Args:
        dataset: "imagenet2012", of 1,000 classes, or "imagenet21k", of
            21,843.

    Returns:
        The names. No two are equal.

    Raises:
        ValueError: If there is no such dataset.

    Example:
        keras_vit.imagenet_classes("imagenet21k")[2]
    """
    return _read(dataset)[1]


@checked
def imagenet_synsets(dataset: Dataset = "imagenet2012") -> tuple[str, ...]:
    """Return the WordNet ids of ImageNet's classes by index: "n01440764".

    Args:
        dataset: See `imagenet_classes`.

    Raises:
        ValueError: If there is no such dataset.
    """
    return _read(dataset)[0]


@checked
def decode_predictions(
    predictions,
    top: Count = 5,
    class_names: Sequence[str] | keras.Model | None = None,
) -> list[list[tuple[str, str, float]]]:
    """Name the classes of the highest scores, as keras.applications does.

    Args:
        predictions: `[B, K]`, the scores of a batch: logits or probabilities.
        top: Number of classes to return, highest score first.
        class_names: Names of the K classes, or a model whose head has them.
            None takes those of ImageNet if K is 1,000 or 21,843.

    Returns:
        For each image a list of (id, name, score). The id is the WordNet id
        if the names are those of ImageNet, otherwise the index as a string.

    Raises:
        ValueError: If `predictions` is not a batch of scores, or the number of
            names is not that of the classes.

    Example:
        predictions = model.predict(images)
        keras_vit.decode_predictions(predictions, top=3, class_names=model)
    """
    if ops.is_tensor(predictions):
        predictions = ops.convert_to_numpy(predictions)
    scores = np.asarray(predictions)
    if scores.ndim != 2 or scores.dtype.kind in "OSU":
        raise ValueError(
            "`predictions` of decode_predictions must be a batch of scores, "
            f"[images, classes]. Received: shape {scores.shape} of "
            f"{scores.dtype}"
        )
    if scores.dtype.kind != "f":  # the negative of unsigned ones is another
        scores = scores.astype("float64")
    count = scores.shape[1]
    names = _names(class_names, count)
    if len(names) != count:
        raise ValueError(
            f"`class_names` of decode_predictions must name each of the "
            f"{count} classes. Received: {len(names)} names"
        )
    ids = as_synsets(names)
    if ids == names:
        ids = tuple(map(str, range(count)))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return [
        [(ids[i], names[i], float(row[i])) for i in best]
        for row, best in zip(scores, order, strict=True)
    ]


def as_synsets(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return WordNet ids for the names of ImageNet's classes, others as given.

    Data sets name these classes by their ids, models by their lemmas.

    Args:
        names: Names by index, as `imagenet_classes` or without its ids.
    """
    names = tuple(names)
    for dataset in DATASETS:
        ids, ours = _read(dataset)
        if len(names) == len(ours) and all(
            name in (own, own.removesuffix(f" ({synset})"))
            for name, own, synset in zip(names, ours, ids, strict=True)
        ):
            return ids
    return names


def of_dataset(dataset: str) -> tuple[str, ...] | None:
    """Return the class names of a data set, None if they are not included."""
    return _read(dataset)[1] if dataset in DATASETS else None


def _names(given, count):
    """Return the names of so many classes, as given or those of ImageNet."""
    if given is None:
        known = [_read(dataset)[1] for dataset in DATASETS]
        found = [names for names in known if len(names) == count]
        if not found:
            raise ValueError(
                "`class_names` of decode_predictions must be given for "
                f"{count} classes: their names, or a model whose head has "
                "them. Received: class_names=None"
            )
        return found[0]
    if isinstance(given, (str, dict, set, frozenset)):
        raise ValueError(
            "`class_names` of decode_predictions must be names in the order of "
            f"the classes, or a model. Received: {given!r}"
        )
    if not hasattr(given, "layers"):
        return tuple(map(str, given))
    layers = (getattr(x, "class_names", None) for x in given.layers)
    found = [names for names in layers if names is not None]
    if len(found) != 1:
        raise ValueError(
            "`class_names` of decode_predictions, where it is a model, must "
            f"have a head with class names. Received: {given.name!r}, with "
            f"{len(found)} such layers"
        )
    return tuple(found[0])


@functools.cache
def _read(dataset):
    """Return the ids and the names of a dataset's classes."""
    file = importlib.resources.files(__package__) / f"{dataset}.txt.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    ids, lemmas = zip(*(line.split(" ", 1) for line in lines), strict=True)
    counts = collections.Counter(lemmas)
    names = tuple(
        name if counts[name] == 1 else f"{name} ({synset})"
        for synset, name in zip(ids, lemmas, strict=True)
    )
    return ids, names
