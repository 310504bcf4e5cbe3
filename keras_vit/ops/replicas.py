"""What the replicas of a training step know of one another.

JAX' arrays hold the batch of all devices. TensorFlow's strategies and the
processes of PyTorch run a step on each part of a batch.
"""

import functools
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


def processes() -> tuple[int, int]:
    """Return the number of PyTorch's processes, and the index of this one."""
    if keras.backend.backend() != "torch":
        return 1, 0
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return 1, 0
    return distributed.get_world_size(), distributed.get_rank()


@functools.cache
def _torch_sum():
    import torch

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone(memory_format=torch.contiguous_format)
            torch.distributed.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, gradient):
            # Every process has added to what the others computed.
            return Sum.apply(gradient)

    return Sum.apply


def sum_over_replicas(x):
    """Return the sum of a tensor over the replicas, the same on each."""
    if processes()[0] > 1:
        # Keras finds shapes with tensors that have no values.
        return x if x.device.type == "meta" else _torch_sum()(x)
    context = _context()
    if context is None:
        return x
    import tensorflow as tf

    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def gather_over_replicas(x):
    """Return the examples of all replicas, `[B, ...]`, the same on each."""
    count, index = processes()
    if count > 1:
        empty = ops.zeros_like(x)
        parts = [x if i == index else empty for i in range(count)]
        return sum_over_replicas(ops.concatenate(parts))
    context = _context()
    return x if context is None else context.all_gather(x, axis=0)


def places_among_replicas(x):
    """Return where `gather_over_replicas(x)` has the rows of x, int32 `[B]`."""
    places = ops.arange(ops.shape(x)[0], dtype="int32")
    context = _context()
    index = processes()[1]
    if context is not None:
        index = context.replica_id_in_sync_group
    return places + index * ops.shape(x)[0]


def of_part(loss):
    """Return a replica's part of a loss, as its training step takes it.

    TensorFlow adds up the gradients of the replicas; with several processes of
    PyTorch the training step takes their mean.

    Args:
        loss: Part of a sum over all replicas, a scalar.
    """
    return loss * processes()[0]


def sum_over_pairs(function: Callable, x: tuple, y: tuple, shared: tuple):
    """Return a replica's part of a sum over all pairs of a batch.

    Each pair is of a row of x and a row of y. On JAX the parts of y travel from
    device to device, so that none holds more than its rows of x and as many of
    y; other replicas each gather all of y.

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
