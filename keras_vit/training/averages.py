"""Replaces the weights by their Polyak averages during evaluation."""

import keras


class SwapAverages(keras.callbacks.SwapEMAWeights):
    """Keras' `SwapEMAWeights`, also for variables divided among machines.

    With JAX, Keras swaps through NumPy, which can only read the values on its
    own machine.
    """

    def _backend_swap_variables(self, optimizer):
        if keras.backend.backend() != "jax":
            super()._backend_swap_variables(optimizer)
            return
        for variable, average in zip(
            optimizer._trainable_variables,
            optimizer._model_variables_moving_average,
            strict=True,
        ):
            value = variable.value
            variable.assign(average.value)
            average.assign(value)
