"""What the replicas of a training step know of one another.

JAX' arrays hold the batch of all devices, and PyTorch trains on one; only
TensorFlow's strategies run a step on each part of a batch.
"""

from collections.abc import Callable

import keras
from keras import ops


def _context():
    """Return TensorFlow's context of several replicas, or None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return context


def sum_over_replicas(x):
    """Return the sum of a tensor over the replicas, the same on each."""
    context = _context()
    if context is None:
        return x
    import tensorflow as tf

    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def gather_over_replicas(x):
    """Return the examples of all replicas, `[B, ...]`, the same on each."""
    context = _context()
    return x if context is None else context.all_gather(x, axis=0)


def places_among_replicas(x):
    """Return where `gather_over_replicas(x)` has the rows of x, int32 `[B]`."""
    places = ops.arange(ops.shape(x)[0], dtype="int32")
    context = _context()
    if context is None:
        return places
    return places + context.replica_id_in_sync_group * ops.shape(x)[0]


def sum_over_pairs(function: Callable, x: tuple, y: tuple, shared: tuple):
    """Return a replica's part of a sum over all pairs of a batch.

    Each pair is of a row of x and a row of y. On JAX the parts of y travel from
    device to device, so that none holds more than its rows of x and as many of
    y; of TensorFlow's replicas each gathers all of y.

    Args:
        function: From rows of x, rows of y and `shared` to the sum over their
            pairs, a scalar.
        x, y: Tuples of tensors `[b, ...]`.
        shared: Tensors that do not depend on the example.
    """
    if keras.backend.backend() != "jax":
        return function(x, tuple(map(gather_over_replicas, y)), shared)
    distribution = keras.distribution.distribution()
    if distribution is None:
        return function(x, y, shared)
    mesh = distribution.device_mesh.backend_mesh
    axis = distribution.batch_dim_name
    count = mesh.shape[axis]
    if count == 1 or ops.shape(x[0])[0] % count:
        return function(x, y, shared)
    return _travelling(function, mesh, axis)(x, y, shared)


def _travelling(function, mesh, axis):
    """Return the function of all pairs, on the devices of an axis (JAX)."""
    import jax

    count = mesh.shape[axis]
    to_next = [(i, (i + 1) % count) for i in range(count)]
    # Recomputed in the backward pass: no device keeps `[b, B]`.
    function = jax.checkpoint(function)

    def on_device(x, y, shared):
        def add(carry, _):
            total, y = carry
            total = total + function(x, y, shared)
            y = jax.tree.map(lambda a: jax.lax.ppermute(a, axis, to_next), y)
            return (total, y), None

        total = function(x, y, shared)
        y = jax.tree.map(lambda a: jax.lax.ppermute(a, axis, to_next), y)
        (total, _), _ = jax.lax.scan(add, (total, y), None, count - 1)
        return jax.lax.psum(total, axis)

    rows, whole = (jax.sharding.PartitionSpec(*a) for a in ((axis,), ()))
    return jax.shard_map(
        on_device, mesh=mesh, in_specs=(rows, rows, whole), out_specs=whole
    )
