"""Stateless random numbers: seeds and permutations."""

import numpy as np

from keras_vit.data.optional_imports import tensorflow


def check_seed(seed) -> None:
    """Raise a ValueError unless a seed is two integers, or a tensor of two."""
    tf = tensorflow()
    try:
        given = tf.convert_to_tensor(seed)
    except (TypeError, ValueError):  # as of None
        given = tf.constant(0)
    if not (given.dtype.is_integer and given.shape.is_compatible_with([2])):
        raise ValueError(
            "`seed` must be two integers, such as (0, 1). Received: "
            f"seed={seed!r}"
        )


def fold(seed, *values):
    """Derive a seed, int64 `[2]`, from a seed of two integers and integers."""
    tf = tensorflow()
    seed = tf.cast(seed, "int64")
    for value in values:
        seed = tf.random.experimental.stateless_fold_in(seed, value)
    return seed


def fold_each(seed, values):
    """Derive `fold(seed, value)` of each of several values: int64 `[N, 2]`."""
    tf = tensorflow()
    # A derived seed consists of a number that depends on the seed alone, and of
    # the integer.
    number = fold(seed, np.int64(0))[0]
    return tf.stack([tf.fill(tf.shape(values), number), values], axis=1)


def shuffled_index(index, seed, count: int):
    """Return the value of a random permutation of `count` at an index.

    `index` is int64, a scalar or `[N]`; `seed` chooses the permutation.
    """
    tf = tensorflow()
    return tf.random.experimental.index_shuffle(
        index, tf.cast(seed, "int64"), count - 1
    )
