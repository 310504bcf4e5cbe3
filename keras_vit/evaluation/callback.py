"""Few-shot accuracy while a model is trained."""

import contextlib
from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

from keras_vit.evaluation.features import features, labels_of, representation
from keras_vit.evaluation.few_shot import L2, few_shot
from keras_vit.evaluation.least_squares import few_shot_subset


class FewShot(keras.callbacks.Callback):
    """Adds few-shot accuracies to the logs of evaluations.

    The logs receive "{name}/{shots}-shot" for each of `shots`, NaN where it
    was not measured, so that a CSV file has the column from its first line.
    Put it before the callbacks that write logs, and after one that swaps
    averaged weights in.

    It works on a copy of what makes the representation, on one device of
    each process: training, and the state that a resumed run must find
    again, are left alone. It therefore costs the memory of the weights once
    more, and the speed of one device. In several processes each computes the
    same. Each process must hold complete variables: it refuses weights of
    which other processes of JAX hold a part ("fsdp" or "tensor" over several
    machines). Under TPUStrategy of TensorFlow the copy is on the host.

    Args:
        name: What to call the data set in the logs.
        train: Batches to draw the labelled images from, as `features` takes
            them; they are read at each measurement.
        test: Batches to measure on.
        num_classes: Number of classes of that data set.
        shots: Numbers of labelled images of each class.
        l2: Penalties to choose from.
        num_draws: Number of draws whose mean is logged; they are the same
            each time.
        layer: Layer to read, see `representation`.
        measured: The model to measure, of variables that are trained; None
            is the one that `fit` is called on.
        every: Epochs of `fit` between two measurements; the last epoch is
            measured too.
        seed: Seed of the draws.

    Raises:
        ValueError: When training begins, if a class has fewer images than
            `shots`, or variables are sharded over processes.

    Reference:
        Dosovitskiy et al. 2021, section 4.1 ("fast on-the-fly evaluation").
    """

    def __init__(
        self,
        name: str,
        train: Iterable,
        test: Iterable,
        *,
        num_classes: int,
        shots: tuple[int, ...] = (5,),
        l2: tuple[float, ...] = L2,
        num_draws: int = 3,
        layer: str | None = None,
        measured: keras.Model | None = None,
        every: int = 1,
        seed: int = 0,
    ):
        super().__init__()
        if every < 1:
            raise ValueError(
                f"`every` must be at least 1. Received: every={every}"
            )
        self.name = name
        self.train = train
        self.test = test
        self.num_classes = num_classes
        self.shots = tuple(shots)
        self.l2 = l2
        self.num_draws = num_draws
        self.layer = layer
        self.measured = measured
        self.every = every
        self.seed = seed
        self._source = None

    def on_train_begin(self, logs=None):
        # What cannot work is refused now, not after hours.
        labels = np.concatenate([labels_of(batch) for batch in self.train])
        few_shot_subset(labels, max(self.shots), self.seed)
        self._source = representation(self.measured or self.model, self.layer)
        _check_whole(self._source)
        with _one_device():
            self._copy = keras.models.clone_model(self._source)

    def on_epoch_end(self, epoch, logs=None):
        keys = [f"{self.name}/{shots}-shot" for shots in self.shots]
        logs.update(dict.fromkeys(keys, float("nan")))
        # Other callbacks end training before the last epoch of `fit`.
        is_last = self.model.stop_training or epoch + 1 == self.params["epochs"]
        if (epoch + 1) % self.every and not is_last:
            return
        values = [ops.convert_to_numpy(v) for v in self._source.weights]
        with _one_device():
            self._copy.set_weights(values)
            results = few_shot(
                features(self._copy, self.train),
                features(self._copy, self.test),
                num_classes=self.num_classes,
                shots=self.shots,
                l2=self.l2,
                num_draws=self.num_draws,
                seed=self.seed,
            )
        logs.update(
            (key, result.mean)
            for key, result in zip(keys, results, strict=True)
        )


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
                "FewShot needs variables that are complete in each process, as "
                "with strategy='data' or in a single process. Received: "
                f"{variable.path}, divided as {value.sharding}"
            )
