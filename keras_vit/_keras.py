"""What Keras does not offer in public.

The only module outside `ops` that may name a private attribute of Keras. Each
function takes the public way where there is one. Where a private name is
missing, the plain form runs, and a debug line says so.
"""

import contextlib
import functools
import logging
import math
import types
import warnings
from typing import Any

import keras


def nested_layers(layer, recursive: bool = True) -> list:
    """Return the layers inside a layer, each once, outer ones first.

    Args:
        layer: A layer or a model.
        recursive: Whether to return those at any depth, else its own.
    """
    found: dict[int, keras.layers.Layer] = {}

    def collect(value):
        if isinstance(value, keras.layers.Layer):
            if value is not layer and id(value) not in found:
                found[id(value)] = value
                if recursive:
                    collect_within(value)
        elif isinstance(value, dict):
            collect(list(value.values()))
        elif isinstance(value, (list, tuple)):
            for each in value:
                collect(each)

    def collect_within(value):
        # Models list their layers; those of other layers are attributes.
        is_model = isinstance(value, keras.Model)
        collect(value.layers if is_model else vars(value))

    collect_within(layer)
    return list(found.values())


def source(tensor) -> tuple | None:
    """Return the operation that makes a symbolic tensor, and which output.

    Returns:
        The operation, such as a layer, and the index of its output; None if
        unknown.
    """
    history = getattr(tensor, "_keras_history", None)
    if history is None:
        if keras.utils.is_keras_tensor(tensor):
            say_once("symbolic tensors have no `_keras_history`")
        return None
    return history.operation, history.tensor_index


def has_other_values() -> bool:
    """Return whether variables have the values of a `keras.StatelessScope`."""
    with keras.StatelessScope(initialize_variables=False) as scope:
        if not hasattr(scope, "original_scope"):
            say_once("scopes have no `original_scope`")
    return getattr(scope, "original_scope", None) is not None


def draw_from(layer, generator: keras.random.SeedGenerator) -> None:
    """Make an augmentation layer draw from another generator.

    Args:
        layer: An image augmentation layer of Keras, without those inside.
        generator: The generator.
    """
    if hasattr(layer, "_get_seed_generator"):
        layer._get_seed_generator = lambda backend=None: generator
    elif hasattr(layer, "generator"):
        say_once("augmentation layers have no `_get_seed_generator`")
        layer.generator = generator


class Equalization(keras.layers.Equalization):
    """Keras' layer, with the histogram of the TensorFlow backend.

    On the JAX backend, Keras counts each of 256 values separately, even in
    tf.data.
    """

    def _custom_histogram_fixed_width(self, values, value_range, nbins):
        import tensorflow as tf

        low, high = value_range
        places = (values - low) * (nbins - 1) / (high - low)
        places = tf.clip_by_value(tf.cast(places, "int32"), 0, nbins - 1)
        return tf.math.bincount(
            tf.reshape(places, [-1]), minlength=nbins, maxlength=nbins
        )


def variable_index(optimizer, variable) -> int:
    """Return the place of a variable among those of `optimizer.build`.

    Args:
        optimizer: The optimizer.
        variable: As `update_step` receives it.
    """
    return optimizer._get_variable_index(variable)


# The class that follows a mixin, for type checkers.
_Optimizer: Any = object


class WholeGradient(_Optimizer):
    """Mixin for optimizers: under tf.distribute, sums gradients, then clips.

    Must precede the optimizer class.
    """

    def __init__(self, *args, **kwargs):
        import tensorflow as tf

        super().__init__(*args, **kwargs)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            names = "_clip_gradients", "_all_reduce_sum_gradients"
            _require(self, WholeGradient, *names)

    def _clip_gradients(self, grads):
        import tensorflow as tf

        replica = tf.distribute.get_replica_context()
        if replica.num_replicas_in_sync > 1:
            grads = replica.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        return super()._clip_gradients(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # already summed


def check_clipping(model: keras.Model, stacklevel: int) -> None:
    """Warn of an optimizer that clips the gradient of each replica."""
    if keras.backend.backend() != "tensorflow":
        return
    optimizer = model.optimizer
    # That of mixed float16 has another within.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    names = ("clipnorm", "global_clipnorm", "clipvalue")
    clips = [name for name in names if getattr(optimizer, name, None)]
    replicas = model.distribute_strategy.num_replicas_in_sync
    if clips and replicas > 1 and not isinstance(optimizer, WholeGradient):
        kind = type(optimizer).__name__
        warnings.warn(
            f"`{clips[0]}` of {kind} clips the gradient of each of {replicas} "
            f"replicas, not that of the batch. To clip the sum, make it by "
            f"keras_vit.training.clip_whole_gradient(keras.optimizers.{kind}).",
            stacklevel=stacklevel + 1,
        )


class ScaledRates(_Optimizer):
    """Mixin for optimizers: a share of the learning rate for each variable.

    Must precede the optimizer class, and `UpdateByRate` be beside it.

    Args:
        factor: Function from a variable's path to its share, or to a function
            from the number of steps done to it.
    """

    _share: Any = 1.0

    def __init__(self, *args, factor, **kwargs):
        super().__init__(*args, **kwargs)
        _require(
            self,
            ScaledRates,
            "_get_current_learning_rate",
            "_apply_weight_decay",
            "_use_weight_decay",
            "_backend_update_step",
        )
        self.factor = factor

    def _get_current_learning_rate(self):
        return super()._get_current_learning_rate() * self._share

    def _apply_weight_decay(self, variables):
        variables = _decaying(self, variables)
        for share, group in self._groups(variables).items():
            self._share = self._now(share)
            try:
                super()._apply_weight_decay([variables[i] for i in group])
            finally:
                self._share = 1.0

    def _now(self, share):
        return share(self.iterations) if callable(share) else share

    def _groups(self, variables):
        """Return the indices of the variables that share a factor."""
        groups: dict[Any, list[int]] = {}
        for i, variable in enumerate(variables):
            groups.setdefault(self.factor(variable.path), []).append(i)
        return groups


class UpdateByRate(keras.optimizers.Optimizer):
    """The update of `ScaledRates`, one for each rate.

    Must follow the optimizer class, so that it does once what it does once a
    step (Nadam), unless the class has a whole update of its own.
    """

    def _backend_update_step(self, grads, variables, learning_rate):
        for share, group in self._groups(variables).items():
            super()._backend_update_step(
                [grads[i] for i in group],
                [variables[i] for i in group],
                learning_rate * self._now(share),
            )


class ScheduledDecay(_Optimizer):
    """Mixin for optimizers: a weight decay that depends on the step.

    Must precede the optimizer class. A subclass has the method `decay`, from
    the number of steps done to the weight decay.
    """

    weight_decay: Any

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _require(self, ScheduledDecay, "_apply_weight_decay")

    def _apply_weight_decay(self, variables):
        usual, now = self.weight_decay, self.decay(self.iterations)
        with _weight_decay(self, lambda own: now if own == usual else own):
            super()._apply_weight_decay(variables)


class HeadDecay(_Optimizer):
    """Mixin for optimizers: a multiple of the weight decay for the head.

    Must precede the optimizer class. A subclass has `times`, the multiple. The
    head is the layer of that name.
    """

    weight_decay: Any
    times: float

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _require(self, HeadDecay, "_apply_weight_decay", "_use_weight_decay")

    def _apply_weight_decay(self, variables):
        variables = _decaying(self, variables)
        for is_head, times in ((False, 1.0), (True, self.times)):
            group = [
                v
                for v in variables
                if ("head" in v.path.split("/")[:-1]) == is_head
            ]
            if group:
                with _weight_decay(self, functools.partial(_times, times)):
                    super()._apply_weight_decay(group)


def _times(times, decay):
    return None if decay is None else decay * times


def _decaying(optimizer, variables):
    """Return the variables that decay; PyTorch fails on a group of others."""
    return [v for v in variables if optimizer._use_weight_decay(v)]


@contextlib.contextmanager
def _weight_decay(optimizer, change):
    """Change the weight decay of an optimizer inside.

    Muon has another one for the variables that AdamW updates.
    """
    names = ("weight_decay", "adam_weight_decay")
    before = {k: getattr(optimizer, k) for k in names if hasattr(optimizer, k)}
    try:
        for name, own in before.items():
            setattr(optimizer, name, change(own))
        yield
    finally:
        for name, own in before.items():
            setattr(optimizer, name, own)


class MatrixOfKernel(_Optimizer):
    """Mixin for `keras.optimizers.Muon`: kernels of convolutions are matrices.

    Must precede the optimizer class. A kernel `[h, w, C, D]` is a matrix of
    h w C rows and D columns. With one column, as in depthwise convolutions, it
    is no matrix.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        names = "_should_use_adamw", "zeropower_via_newtonschulz5", "lr_adjust"
        _require(self, MatrixOfKernel, *names)

    def _should_use_adamw(self, variable):
        *rows, columns = tuple(variable.shape) or (1,)
        is_kernel = len(rows) >= 3 and variable.path.endswith("/kernel")
        if is_kernel and columns > 1:
            shape = (math.prod(rows), columns)
            variable = types.SimpleNamespace(path=variable.path, shape=shape)
        return super()._should_use_adamw(variable)

    def zeropower_via_newtonschulz5(self, x, steps: int):
        matrix = keras.ops.reshape(x, (-1, x.shape[-1]))
        matrix = super().zeropower_via_newtonschulz5(matrix, steps)
        return keras.ops.reshape(matrix, x.shape)

    def lr_adjust(self, x):
        matrix = keras.ops.reshape(x, (-1, x.shape[-1]))
        return keras.ops.reshape(super().lr_adjust(matrix), x.shape)


def _require(optimizer, mixin, *names):
    """Check that Keras has the methods that a mixin of optimizers overrides.

    Without them an optimizer would compute something else and not say so.
    """
    base = super(mixin, optimizer)
    missing = [name for name in names if not hasattr(base, name)]
    if missing:
        raise NotImplementedError(
            f"Optimizers of Keras {keras.__version__} have no {missing}, on "
            f"which {type(optimizer).__name__} relies. Install another version "
            "of Keras."
        )


@functools.cache
def say_once(reason: str) -> None:
    """Write why a plain form runs to the debug log, once for each reason."""
    logging.getLogger("keras_vit").debug("Plain form: %s", reason)
