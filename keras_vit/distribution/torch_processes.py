"""Several processes of PyTorch, one for each device, that train one model.

torchrun starts them. Keras 3.15 has no distribution for PyTorch, and PyTorch's
DistributedDataParallel wraps the forward pass of a module, not the training
step of Keras: the gradients are averaged here, after the backward pass.
"""

import atexit
import datetime
import functools
import os

import keras
import numpy as np

from keras_vit.ops.replicas import processes

# The sockets of a process that dies close at once, and the others end. This is
# for one that stops responding: the main process writes files meanwhile.
TIMEOUT = datetime.timedelta(minutes=10)
# Numbers that are summed at a time, 32 MiB in float32.
BUCKET = 2**23
# Of a process and the next one; multiples of it spread over all seeds.
SEEDS_APART = 2_654_435_761
# The averages of a BatchNormalization.
MOVING = ("moving_mean", "moving_variance")


def started() -> int:
    """Return the number of processes that the environment names."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def join(kind: str) -> tuple[int, int]:
    """Join the other processes, and use the device of this one.

    Args:
        kind: "cpu" or "gpu".

    Returns:
        The number of processes, and the index of this one.

    Raises:
        ValueError: If this machine has more processes than GPUs.
    """
    import torch
    from torch import distributed

    if kind == "gpu":
        local = int(os.environ.get("LOCAL_RANK", 0))
        count = torch.cuda.device_count()
        if local >= count:
            raise ValueError(
                "torchrun's --nproc_per_node must be at most the number of "
                f"GPUs, {count}. Received: local process {local}"
            )
        torch.cuda.set_device(local)
    if not distributed.is_initialized():
        # Flags are exchanged on CPUs, so that no process waits for its GPU.
        backend = "cpu:gloo,cuda:nccl" if kind == "gpu" else "gloo"
        store, rank, world_size = next(distributed.rendezvous("env://"))
        # torchrun's store still has the addresses of processes that died.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        distributed.init_process_group(
            backend,
            store=distributed.PrefixStore(attempt, store),
            rank=rank,
            world_size=world_size,
            timeout=TIMEOUT,
        )
        atexit.register(distributed.destroy_process_group)
    return processes()


def any_flag(flags: tuple[bool, ...]) -> tuple[bool, ...]:
    """Return for each flag whether it is set in any process."""
    import torch

    total = torch.tensor(flags, dtype=torch.int32, device="cpu")
    torch.distributed.all_reduce(total)
    return tuple(bool(count) for count in total)


def synchronize(model: keras.Model) -> None:
    """Let `fit` and `evaluate` compute in all processes of PyTorch as in one.

    The gradients are averaged before they are clipped and applied, and metrics
    and logs count the examples of all processes. Every process gets the
    variables of the main one, and draws random numbers of its own. The moving
    averages of a BatchNormalization are averaged; it normalises by the part of
    the batch of its process. With TensorFlow its averages over the replicas of
    a strategy are averaged too: Keras keeps one for each, evaluates with all,
    and saves the first. Elsewhere nothing is changed.

    `setup` has an example.

    Args:
        model: The compiled model, restored if the run resumes. Its loss is a
            mean over examples, or one of `keras_vit.training`.
    """
    moving = [v for v in model.non_trainable_variables if v.name in MOVING]
    if keras.backend.backend() == "tensorflow" and moving:
        step = functools.partial(_averaging, moving, model.train_step)
        model.train_step = step  # type: ignore[method-assign]
    count, index = processes()
    if count == 1:
        return
    import torch

    optimizer = model.optimizer
    for variable in (*model.variables, *optimizer.variables):
        value = variable.value.detach().contiguous()
        torch.distributed.broadcast(value, 0)
        variable.assign(value)
    _draw_apart(model, index)
    apply = optimizer.apply

    def apply_mean(grads, trainable_variables=None):
        _sum([g for g in grads if g is not None], divisor=count)
        return apply(grads, trainable_variables)

    optimizer.apply = apply_mean
    for name in ("train_step", "test_step"):
        step = functools.partial(_run, model, moving, getattr(model, name))
        setattr(model, name, step)


def _draw_apart(model, index):
    """Give a process random numbers of its own, and leave those of the loss."""
    import torch

    if not index:
        return
    seed = torch.initial_seed() + index * SEEDS_APART
    torch.manual_seed(seed % 2**63)
    of_loss = getattr(model, "loss_seed_generator", None)
    for variable in model.non_trainable_variables:
        if variable.name == "seed_generator_state" and (
            of_loss is None or variable is not of_loss.state
        ):
            # A seed and a count, as int32 that PyTorch reads as uint32.
            state = keras.ops.convert_to_numpy(variable).astype("uint32")
            state[0] += np.uint32(index * SEEDS_APART % 2**32)
            variable.assign(state.view("int32"))


def _averaging(moving, step, data):
    """Run a step of TensorFlow; average what its replicas have moved."""
    import tensorflow as tf

    logs = step(data)
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync > 1:
        means = replica.all_reduce(
            tf.distribute.ReduceOp.MEAN, [v.value for v in moving]
        )
        for variable, mean in zip(moving, means, strict=True):
            variable.assign(mean)
    return logs


def _run(model, moving, step, data):
    """Run a step on this process' part; return the logs of all parts."""
    counts = {id(v): _copy(v) for v in model.metrics_variables}
    means = [_copy(v) for v in moving]
    model.reset_metrics()
    step(data)
    added = [_copy(v) for v in model.metrics_variables]
    _sum(added)
    for variable, value in zip(model.metrics_variables, added, strict=True):
        # Those of metrics that were made in the first step begin at 0.
        variable.assign(counts.get(id(variable), 0) + value)
    # Where nothing moves, nothing is rounded.
    moved = [_copy(v) - mean for v, mean in zip(moving, means, strict=True)]
    _sum(moved, divisor=processes()[0])
    for variable, mean, change in zip(moving, means, moved, strict=True):
        variable.assign(mean + change)
    return model.get_metrics_result()


def _copy(variable):
    return variable.value.detach().clone()


def _sum(tensors, divisor=1):
    """Replace tensors by their sums over the processes, divided by a number."""
    import torch

    for bucket in _buckets(tensors):
        flat = torch.cat([x.detach().reshape(-1) for x in bucket])
        torch.distributed.all_reduce(flat)
        if divisor > 1:
            flat /= divisor
        parts = flat.split([x.numel() for x in bucket])
        for x, part in zip(bucket, parts, strict=True):
            x.detach().copy_(part.view_as(x))


def _buckets(tensors):
    """Return lists of tensors of one type, that are summed together."""
    buckets, size = [], 0
    for x in tensors:
        if not buckets or x.dtype != buckets[-1][-1].dtype or size >= BUCKET:
            buckets.append([])
            size = 0
        buckets[-1].append(x)
        size += x.numel()
    return buckets
