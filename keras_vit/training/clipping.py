"""Clipping the gradient of the global batch."""

import functools

import keras

from keras_vit.training.derived import Derived


@functools.cache
def clip_whole_gradient(optimizer_class: type) -> type:
    """Returns an optimizer class that clips as on one device.

    Under tf.distribute, Keras clips the gradient of each replica before it sums
    them: on eight replicas `global_clipnorm=1` lets a gradient of norm eight
    pass. Here they are summed first. Without tf.distribute the class is
    returned unchanged.

    Args:
        optimizer_class: A class of `keras.optimizers`.
    """
    if keras.backend.backend() != "tensorflow":
        return optimizer_class
    import tensorflow as tf

    class WholeGradient(optimizer_class, metaclass=Derived):
        derived = clip_whole_gradient, optimizer_class

        def _clip_gradients(self, grads):
            replica = tf.distribute.get_replica_context()
            if replica.num_replicas_in_sync > 1:
                grads = replica.all_reduce(tf.distribute.ReduceOp.SUM, grads)
            return super()._clip_gradients(grads)

        def _all_reduce_sum_gradients(self, grads_and_vars):
            return grads_and_vars  # already clipped

    # Saved as the class that it computes on one device.
    WholeGradient.__name__ = optimizer_class.__name__
    WholeGradient.__module__ = optimizer_class.__module__
    return WholeGradient
