"""Stateless random numbers: seeds and permutations."""

import numpy as np

from keras_vit.data.optional_imports import tensorflow


def fold(seed, *values):
    """Derives a seed from a seed and integers.

    Args:
        seed: Two integers.
        values: Integers, such as an epoch and then an example.

    Returns:
        int64 `[2]`.
    """
    tf = tensorflow()
    seed = tf.cast(seed, "int64")
    for value in values:
        seed = tf.random.experimental.stateless_fold_in(seed, value)
    return seed


def fold_each(seed, values):
    """Derives a seed from a seed and each of several integers.

    Args:
        seed: Two integers.
        values: int64 `[N]`.

    Returns:
        int64 `[N, 2]`; row i is `fold(seed, values[i])`.
    """
    tf = tensorflow()
    # A derived seed consists of a number that depends on the seed alone, and of
    # the integer.
    number = fold(seed, np.int64(0))[0]
    return tf.stack([tf.fill(tf.shape(values), number), values], axis=1)


def shuffled_index(index, seed, count: int):
    """Returns the value of a random permutation of `count` at an index.

    Args:
        index: int64, scalar or `[N]`, from 0 to count - 1.
        seed: Two integers that choose the permutation.
        count: Length of the permutation.

    Returns:
        int64, of the shape of `index`.
    """
    tf = tensorflow()
    return tf.random.experimental.index_shuffle(
        index, tf.cast(seed, "int64"), count - 1
    )
