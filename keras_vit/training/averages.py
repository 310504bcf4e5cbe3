"""Polyak averages in the place of the weights while a model is evaluated."""

import keras


class SwapAverages(keras.callbacks.SwapEMAWeights):
    """Keras' `SwapEMAWeights`, also for variables that lie on many machines.

    With JAX, Keras swaps by way of NumPy, which sees those of its own machine
    alone.
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
