"""Measurements of a model during training, besides its loss."""

import contextlib
import inspect
import typing
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Natural, check, checked
from keras_vit.evaluation.features import (
    features,
    joined,
    labels_of,
    representation,
)
from keras_vit.evaluation.few_shot import L2, check_classes, few_shot
from keras_vit.evaluation.least_squares import LeastSquares, few_shot_subset
from keras_vit.evaluation.multi_label import (
    mean_average_precision,
    scores_and_targets,
)
from keras_vit.evaluation.neighbours import nearest_neighbours


class FewShot(keras.callbacks.Callback):
    """Adds few-shot accuracies to the logs of evaluations.

    The logs receive "{name}/{shots}-shot" for each of `shots`, NaN in epochs
    without a measurement, so that a CSV file has the column from its first
    line. Place this callback before those that write logs, and after one that
    swaps in averaged weights.

    It computes representations with a copy of the model on one device of each
    process, so that it changes neither training nor the state from which a run
    resumes. The copy needs the memory of the weights a second time, and runs at
    the speed of one device. With several processes each computes the same
    result. Each process must hold complete variables: variables that are
    divided among JAX processes ("fsdp" or "tensor" on several machines) are
    refused. Under TensorFlow's TPUStrategy the copy is on the host.

    Args:
        name: Name of the data set in the logs.
        train: Batches to draw the labelled images from, as `features` takes
            them; they are read at each measurement.
        test: Batches to measure on.
        layer: Layer to read, see `representation`.
        measured: The model to measure, which shares the trained variables; None
            measures the model on which `fit` is called.
        every: Epochs of `fit` between two measurements; the last epoch is
            measured too.
        **options: `num_classes`, `shots`, `l2`, `num_draws` and `seed` of
            `few_shot`; by default 5 shots and 3 draws, the same in each
            measurement.

    Raises:
        ValueError: If `every` or an option is out of range; when training
            begins, if a class has fewer images than `shots`, or none of those
            to measure, or variables are sharded over processes.

    Reference:
        Dosovitskiy et al. 2021, section 4.1 ("fast on-the-fly evaluation").
    """

    @checked
    def __init__(
        self,
        name: str,
        train: Iterable,
        test: Iterable,
        *,
        layer: str | None = None,
        measured: keras.Model | None = None,
        every: Count = 1,
        **options,
    ):
        super().__init__()
        self.name = name
        self.train = train
        self.test = test
        self.options: dict[str, Any] = (
            dict(shots=(5,), num_draws=3, seed=0) | options
        )
        inspect.signature(few_shot).bind(train, test, **self.options)
        kinds = typing.get_type_hints(few_shot, include_extras=True)
        for option, value in self.options.items():
            check(value, option, kinds[option])
        self.layer = layer
        self.measured = measured
        self.every = every
        self._source: Any = None

    def on_train_begin(self, logs=None):
        labels = _labels(self.train)
        self._check(labels)
        check_classes(labels, _labels(self.test))
        self._source = representation(self.measured or self.model, self.layer)
        self._copy = copy_of(self._source)

    def on_epoch_end(self, epoch, logs=None):
        logs.update(dict.fromkeys(self._keys(), float("nan")))
        # Other callbacks may end training before the last epoch of `fit`.
        last = (self.params or {}).get("epochs")
        is_last = self.model.stop_training or epoch + 1 == last
        if (epoch + 1) % self.every and not is_last:
            return
        with updated(self._copy, self._source):
            found = (features(self._copy, x) for x in (self.train, self.test))
            results = self._measure(*found)
        logs.update(zip(self._keys(), results, strict=True))

    def _keys(self):
        """Return the names in the logs."""
        return [f"{self.name}/{n}-shot" for n in self.options["shots"]]

    def _check(self, labels):
        """Refuse labels when training begins, not after hours."""
        shots, seed = self.options["shots"], self.options["seed"]
        few_shot_subset(labels, max(shots), seed)

    def _measure(self, train, test):
        """Return a value for each of the names."""
        return [x.mean for x in few_shot(train, test, **self.options)]


class Probe(FewShot):
    """Adds two accuracies with all labels to the logs of evaluations.

    They are "{name}/knn", of the nearest labelled images, and "{name}/linear",
    of a linear classifier of the frozen representation: least squares, whose
    penalty is chosen on a tenth of the labelled images. It measures as
    `FewShot` does, whose arguments it has but for the options.

    Args:
        num_classes: Number of classes.
        k: Number of neighbours that vote, at most that of labelled images.
        seed: Of the choice of the tenth.

    Raises:
        ValueError: When training begins, if there are fewer than 20 labelled
            images, or none of a class to measure, or variables are sharded over
            processes.

    Reference:
        Caron et al. 2021 (2104.14294), section 4.1, for 20 neighbours.
    """

    @checked
    def __init__(
        self,
        name: str,
        train: Iterable,
        test: Iterable,
        *,
        num_classes: Count,
        k: Count = 20,
        seed: Natural = 0,
        **kwargs,
    ):
        kwargs |= dict(num_classes=num_classes, seed=seed)
        super().__init__(name, train, test, **kwargs)
        self.k = k

    def _keys(self):
        return [f"{self.name}/{kind}" for kind in ("knn", "linear")]

    def _check(self, labels):
        if len(labels) < 20:
            raise ValueError(
                "`train` must have at least 20 labelled images for a probe. "
                f"Received: {len(labels)}"
            )

    def _measure(self, train, test):
        x, y = train
        votes = nearest_neighbours(train, test[0], k=min(self.k, len(y)))
        order = np.random.default_rng(self.options["seed"]).permutation(len(y))
        held_out, rest = np.split(order, [len(y) // 10])
        count = self.options["num_classes"]
        chosen = LeastSquares(x[rest], y[rest], count)
        accuracies = [chosen.accuracy(x[held_out], y[held_out], n) for n in L2]
        l2 = L2[int(np.argmax(accuracies))]
        solver = LeastSquares(x, y, count)
        linear = solver.accuracy(test[0], test[1], l2)
        return float(np.mean(votes == test[1])), linear


class MeanAveragePrecision(keras.callbacks.Callback):
    """Adds the mean average precision to the logs of evaluations.

    The logs receive "val_mean_average_precision", see
    `mean_average_precision`. Put it where `FewShot` says; as there a copy of
    the model is measured on one device of each process. The scores of all
    images are in memory at once, 4 bytes for each class.

    Args:
        batches: Batches to measure on, as `scores_and_targets` takes them;
            they are read at each measurement.
        measured: The model to measure, of variables that are trained; None
            is the one that `fit` is called on.

    Raises:
        ValueError: When training begins, if variables are sharded over
            processes.
    """

    def __init__(self, batches: Iterable, measured: keras.Model | None = None):
        super().__init__()
        self.batches = batches
        self.measured = measured
        self._source: Any = None

    def on_train_begin(self, logs=None):
        self._source = self.measured or self.model
        self._copy = copy_of(self._source)

    def on_epoch_end(self, epoch, logs=None):
        with updated(self._copy, self._source):
            found = scores_and_targets(self._copy, self.batches)
        logs["val_mean_average_precision"], _ = mean_average_precision(*found)


def _labels(batches):
    return joined([labels_of(batch) for batch in batches])


def copy_of(source):
    """Return the same model of variables of its own, on one device."""
    _check_whole(source)
    with _one_device():
        return keras.models.clone_model(source)


@contextlib.contextmanager
def updated(copy, source):
    """Give a copy the present values, and run it on one device."""
    values = [ops.convert_to_numpy(v) for v in source.weights]
    with _one_device():
        copy.set_weights(values)
        yield


@contextlib.contextmanager
def _one_device():
    """Without the distribution that Keras has set, if any (JAX)."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)


def _check_whole(model):
    if keras.backend.backend() != "jax":
        return
    for variable in model.weights:
        value = variable.value
        if not (value.is_fully_addressable or value.is_fully_replicated):
            raise ValueError(
                "Measuring during training needs variables that are complete "
                "in each process, as with strategy='data' or in a single "
                f"process. Received: {variable.path}, divided as "
                f"{value.sharding}"
            )
