"""Batches with random choices that depend on the step alone."""

from collections.abc import Callable

from keras_vit.data.optional_imports import tensorflow, unconverted


@unconverted
def by_step(
    images, prepare: Callable, *, start_step: int = 0, num_replicas: int = 1
):
    """Turn batches of images into others, by the number of their step.

    A run that starts at any step then sees the same batches as one that
    started at the beginning.

    Args:
        images: A tf.data.Dataset of batches.
        prepare: Returns a batch, a structure of tensors `[B, ...]`, given the
            step, a scalar of int64, and a batch of `images`.
        start_step: Number of batches that `images` has skipped.
        num_replicas: Replicas of this process; each batch is split into as
            many consecutive elements.
    """
    tf = tensorflow()

    def cut(batch):
        def cut_one(x):
            shape = (num_replicas, x.shape[0] // num_replicas, *x.shape[1:])
            return tf.reshape(x, shape)

        parts = tf.nest.map_structure(cut_one, batch)
        return tf.data.Dataset.from_tensor_slices(parts)

    prepared = images.enumerate(start_step).map(
        prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    if num_replicas > 1:
        prepared = prepared.flat_map(cut)
    return prepared.prefetch(tf.data.AUTOTUNE)
