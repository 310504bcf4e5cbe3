"""Stateless random numbers: seeds and permutations."""

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


def shuffled_index(index, seed, count: int):
    """Returns the value of a random permutation of `count` at an index.

    Args:
        index: Scalar int64, from 0 to count - 1.
        seed: Two integers that choose the permutation.
        count: Length of the permutation.
    """
    tf = tensorflow()
    return tf.random.experimental.index_shuffle(
        index, tf.cast(seed, "int64"), count - 1
    )
