"""Stateless random numbers for the layers of KerasCV."""

import contextlib
from collections.abc import Callable
from unittest import mock

from keras_vit.data.optional_imports import tensorflow


class Draws:
    """Replaces `tf.random` and `tf.random.Generator`.

    Args:
        next_seed: Returns another seed, two integers, at each call.
    """

    def __init__(self, next_seed: Callable):
        self._next = next_seed

    def uniform(self, shape, minval=0, maxval=None, dtype="float32", **unused):
        """As `tf.random.uniform`."""
        return tensorflow().random.stateless_uniform(
            shape, self._next(), minval, maxval, dtype
        )

    def normal(self, shape, mean=0.0, stddev=1.0, dtype="float32", **unused):
        """As `tf.random.normal`."""
        return tensorflow().random.stateless_normal(
            shape, self._next(), mean, stddev, dtype
        )

    def gamma(self, shape, alpha, beta=None, dtype="float32", **unused):
        """Like `tf.random.gamma`, with `shape` samples for each alpha."""
        tf = tensorflow()
        alpha = tf.convert_to_tensor(alpha, dtype)
        shape = tf.reshape(tf.cast(shape, "int32"), [-1])
        shape = tf.concat([shape, tf.shape(alpha)], 0)
        return tf.random.stateless_gamma(
            shape, self._next(), alpha, beta, dtype
        )

    def shuffle(self, value, **unused):
        """As `tf.random.shuffle`."""
        return tensorflow().random.experimental.stateless_shuffle(
            value, self._next()
        )


@contextlib.contextmanager
def drawing(layer, next_seed: Callable):
    """A context in which a layer of KerasCV, while traced, draws from seeds
    only.

    Args:
        layer: The layer.
        next_seed: Returns another seed, two integers, at each call.
    """
    draws = Draws(next_seed)
    for part in layer._flatten_layers():
        part._random_generator = draws
    with mock.patch.multiple(
        tensorflow().random,
        uniform=draws.uniform,
        normal=draws.normal,
        gamma=draws.gamma,
        shuffle=draws.shuffle,
    ):
        yield
