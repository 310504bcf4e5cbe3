"""Clipping the gradient of the global batch, and decays by step and layer."""

import functools
from collections.abc import Callable

import keras

from keras_vit._arguments import NotNegative, OptimizerClass, checked
from keras_vit._keras import HeadDecay, ScheduledDecay, WholeGradient
from keras_vit.training.derived import derive


@checked
@functools.cache
def clip_whole_gradient(optimizer_class: OptimizerClass) -> type:
    """Return an optimizer class that clips as on one device.

    Under tf.distribute, Keras clips the gradient of each replica before it sums
    them: on eight replicas `global_clipnorm=1` lets a gradient of norm eight
    pass. Here they are summed first. Without TensorFlow the class is returned
    unchanged.

    Args:
        optimizer_class: A class of `keras.optimizers`.
    """
    if keras.backend.backend() != "tensorflow":
        return optimizer_class
    return derive(clip_whole_gradient, optimizer_class, WholeGradient)


@checked
def schedule_decay(optimizer_class: OptimizerClass, decay: Callable) -> type:
    """Return an optimizer class whose weight decay depends on the step.

    Files do not hold the class: load a compiled model with `compile=False`.

    Args:
        optimizer_class: A class of `keras.optimizers`. Its `weight_decay` must
            be given, and is not used.
        decay: Function from the number of steps done to the weight decay.
    """
    name = f"ScheduledDecay{optimizer_class.__name__}"
    bases = (ScheduledDecay, optimizer_class)
    return type(optimizer_class)(name, bases, dict(decay=staticmethod(decay)))


@checked
def multiply_head_decay(
    optimizer_class: OptimizerClass, times: NotNegative
) -> type:
    """Return an optimizer class with another weight decay for the head.

    A head that decays strongly makes better features for a few labels. Files do
    not hold the class: load a compiled model with `compile=False`.

    Args:
        optimizer_class: A class of `keras.optimizers`. Its `weight_decay` must
            be given.
        times: The weight decay of the layer "head", divided by that of others.

    Reference:
        Zhai et al. 2022 (2106.04560), section 3.1.
    """
    name = f"HeadDecay{optimizer_class.__name__}"
    bases = (HeadDecay, optimizer_class)
    return type(optimizer_class)(name, bases, dict(times=times))
