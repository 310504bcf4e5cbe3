"""Clipping the gradient of the global batch, and scheduling its decay."""

import functools
from collections.abc import Callable

import keras

from keras_vit._keras import ScheduledDecay, WholeGradient
from keras_vit.training.derived import Derived


@functools.cache
def clip_whole_gradient(optimizer_class: type) -> type:
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
    # Saved as the class that it computes on one device.
    attributes = dict(
        derived=(clip_whole_gradient, optimizer_class),
        __module__=optimizer_class.__module__,
    )
    name, bases = optimizer_class.__name__, (WholeGradient, optimizer_class)
    return Derived(name, bases, attributes)


def schedule_decay(optimizer_class: type, decay: Callable) -> type:
    """Return an optimizer class whose weight decay depends on the step.

    Args:
        optimizer_class: A class of `keras.optimizers`. Its `weight_decay` must
            be given, and is not used.
        decay: Function from the number of steps done to the weight decay.
    """
    name = f"ScheduledDecay{optimizer_class.__name__}"
    bases = (ScheduledDecay, optimizer_class)
    return type(optimizer_class)(name, bases, dict(decay=staticmethod(decay)))
