"""Sums over all replicas of a training step."""

import keras


def sum_over_replicas(x):
    """Return the sum of a tensor over the replicas, the same on each.

    JAX' arrays hold the batch of all devices, and PyTorch trains on one; only
    TensorFlow's strategies run a step on each part of a batch.
    """
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
