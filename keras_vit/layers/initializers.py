"""Initialisers that Keras has no name for."""

import keras


def uniform(fan_in: int) -> keras.initializers.Initializer:
    """Returns PyTorch's default, U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)).

    Of the kernels and the biases of dense layers and of convolutions.

    Args:
        fan_in: Number of inputs of an output.
    """
    return keras.initializers.RandomUniform(-(fan_in**-0.5), fan_in**-0.5)
