"""Replaces the weights by their Polyak averages during evaluation."""

import keras
from keras import ops

from keras_vit._arguments import checked


class SwapAverages(keras.callbacks.Callback):
    """Evaluates with the averages of an optimizer that has `use_ema=True`.

    It does what `keras.callbacks.SwapEMAWeights` does, also for variables that
    are divided among machines: Keras swaps through NumPy, which can only read
    the values on its own machine. The weights are kept meanwhile.

    Args:
        swap_on_epoch: Whether the averages also stay between two epochs, for
            other callbacks, such as those that save the model.
    """

    @checked
    def __init__(self, swap_on_epoch: bool = False):
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        self._kept: list | None = None

    def on_train_begin(self, logs=None):
        self._kept = None  # after training the averages are the weights
        self._separate()

    def on_epoch_begin(self, epoch, logs=None):
        if self.swap_on_epoch:
            self._restore()

    def on_epoch_end(self, epoch, logs=None):
        if self.swap_on_epoch:
            self._swap()

    def on_test_begin(self, logs=None):
        self._swap()

    def on_test_end(self, logs=None):
        self._restore()

    def on_predict_begin(self, logs=None):
        self._swap()

    def on_predict_end(self, logs=None):
        self._restore()

    def _swap(self):
        if self._kept is None:
            self._kept = [ops.copy(v.value) for v in self._variables()]
            self._assign_averages()
            self._separate()

    def _separate(self):
        """Give weights arrays of their own.

        JAX shares those of the averages, and would give their memory to a
        result.
        """
        for variable in self._variables():
            variable.assign(ops.copy(variable.value))

    def _restore(self):
        if self._kept is not None:
            pairs = zip(self._variables(), self._kept, strict=True)
            for variable, value in pairs:
                variable.assign(value)
            self._kept = None

    def _variables(self):
        return self.model.trainable_variables

    def _assign_averages(self):
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if not optimizer.use_ema:
            raise ValueError(
                "The optimizer must have use_ema=True, for averages to be "
                f"there. Received: {optimizer.name!r} with use_ema=False"
            )
        # Before the first step they are zeros.
        if ops.convert_to_numpy(optimizer.iterations):
            optimizer.finalize_variable_values(self._variables())
