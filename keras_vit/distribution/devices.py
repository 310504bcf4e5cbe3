"""Sets up a backend on its devices with one call."""

import contextlib
import dataclasses
import glob
import json
import os
import typing
from collections.abc import Callable
from typing import Any, Literal

import keras

from keras_vit._arguments import Natural, checked
from keras_vit.distribution import layouts, torch_processes, tpu_compiler

# Environment variables from which jax.distributed.initialize() finds a cluster.
JAX_CLUSTERS = (
    "JAX_COORDINATOR_ADDRESS",
    "OMPI_MCA_orte_hnp_uri",
    "SLURM_STEP_NODELIST",
    "JOB_COMPLETION_INDEX",
)
# Seconds without a sign of life after which a process counts as dead: the
# others must end within a minute.
HEARTBEAT_TIMEOUT = 20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Devices:
    """The devices of a run, and the role of this process.

    Attributes:
        kind: "cpu", "gpu" or "tpu".
        num_devices: Devices of all processes.
        num_replicas: Shards into which a batch is split, one for each device or
            group of devices that share a block.
        num_processes: Number of processes that feed the devices.
        process_index: Number of this process, from 0.
        strategy: The tf.distribute.Strategy, the keras.distribution
            .Distribution, or None for a single device of each process.
    """

    kind: str
    num_devices: int = 1
    num_replicas: int = 1
    num_processes: int = 1
    process_index: int = 0
    strategy: Any = None

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.process_index == 0

    def scope(self):
        """Return the context to build and compile a model in."""
        if self.strategy is not None:
            return self.strategy.scope()
        if keras.backend.backend() == "torch":
            return keras.device("cuda" if self.kind == "gpu" else self.kind)
        return contextlib.nullcontext()

    def training_scope(self):
        """Return the context to train and evaluate in.

        Under TensorFlow it does nothing: Keras enters the strategy itself, and
        variables of callbacks must not belong to the strategy.
        """
        if keras.backend.backend() == "tensorflow":
            return contextlib.nullcontext()
        return self.scope()

    def batches(self, make: Callable):
        """Return batches for `model.fit`; each process reads its shard.

        Args:
            make: A function of shard_index, num_shards and num_replicas, see
                `keras_vit.data.train_batches`, that returns a tf.data.Dataset.
                Under a strategy of TensorFlow the data set is repeated, so pass
                the number of steps to Keras.
        """
        if keras.backend.backend() != "tensorflow" or self.strategy is None:
            return make(self.process_index, self.num_processes, 1)

        def shard(context):
            num_shards = context.num_input_pipelines
            num_replicas = self.num_replicas // num_shards
            # Before an evaluation, Keras requests one batch more.
            return make(
                context.input_pipeline_id, num_shards, num_replicas
            ).repeat()

        return self.strategy.distribute_datasets_from_function(shard)

    def check_batch(self, batch_size: int, micro_batches: int = 1) -> None:
        """Refuse a batch that cannot be divided evenly among the devices.

        Args:
            batch_size: Examples in a batch, over all devices.
            micro_batches: Parts that are computed one after the other.

        Raises:
            ValueError: If the devices would get different amounts of work.
        """
        if batch_size % (self.num_replicas * micro_batches):
            split = f" in {micro_batches} micro_batches" * (micro_batches > 1)
            raise ValueError(
                "`batch_size` counts the examples of all devices and must be "
                f"a multiple of {self.num_replicas * micro_batches}, for "
                f"{self.num_replicas} devices{split}. Received: "
                f"batch_size={batch_size}"
            )


@checked
def setup(
    devices: Literal["auto", "cpu", "gpu", "tpu"] = "auto",
    strategy: layouts.Strategy = "data",
    *,
    model_parallel: Natural = 0,
    coordinator: str = "",
    num_processes: Natural = 0,
    process_id: int = -1,
    tpu: str = "",
) -> Devices:
    """Set the backend up on its devices; must be a program's first call.

    TensorFlow has data parallelism: TPUStrategy on a TPU,
    MultiWorkerMirroredStrategy if TF_CONFIG specifies several workers,
    MirroredStrategy on several devices. JAX has every strategy, in one process
    or several; on Cloud TPUs and under Slurm, Open MPI and Kubernetes it finds
    the other processes itself. PyTorch has data parallelism in the processes
    that torchrun starts, one for each device; see `synchronize`.

    Args:
        devices: "auto" (TPU, else GPU, else CPU), "cpu", "gpu" or "tpu".
        strategy: "data", "fsdp", "tensor" or "fsdp+tensor"; see
            `layouts.distribution`.
        model_parallel: Devices that share a block with "tensor"; 0 means all
            devices of a process.
        coordinator: Address of the first process, "host:port" (JAX).
        num_processes: Number of processes (JAX).
        process_id: Number of this process, from 0 (JAX).
        tpu: Name or grpc:// address of a TPU, or "local" (TensorFlow).

    Returns:
        The devices; models are built in their `scope()` and trained in their
        `training_scope()`.

    Raises:
        ValueError: If the backend does not support the arguments, or the
            devices do not exist.

    Example:
        def make_batches(shard_index, num_shards, num_replicas):
            return data.as_pairs(
                data.train_batches(
                    source, batch_size=64, image_size=(224, 224),
                    shard_index=shard_index, num_shards=num_shards,
                    num_replicas=num_replicas,
                )
            )

        devices = keras_vit.distribution.setup()
        with devices.scope():
            model = keras_vit.ViTB16(classes=len(source.class_names))
            model.compile(
                "adam", keras.losses.CategoricalCrossentropy(from_logits=True)
            )
        keras_vit.distribution.synchronize(model)
        with devices.training_scope():
            model.fit(devices.batches(make_batches), steps_per_epoch=1000)
    """
    if model_parallel > 1 and "tensor" not in strategy:
        raise ValueError(
            "`model_parallel` must be at most 1 without strategy='tensor' or "
            "'fsdp+tensor'. Received: model_parallel="
            f"{model_parallel}, strategy={strategy!r}"
        )
    tpu_compiler.set_options()
    backend = keras.backend.backend()
    if backend != "torch" and torch_processes.started() > 1:
        raise ValueError(
            "The processes that torchrun starts would train without knowing "
            f"of each other: with {backend} they find each other otherwise. "
            f"Received: process {os.environ['RANK']} of "
            f"{os.environ['WORLD_SIZE']}. Start the program with python "
            "instead, or set KERAS_BACKEND=torch."
        )
    several = coordinator or num_processes > 1 or process_id > 0
    if backend == "jax":
        if tpu:
            raise ValueError(
                "`tpu` names a TPU to TensorFlow; JAX uses the one of its "
                f"own machine. Received: tpu={tpu!r}"
            )
        return _jax(
            devices,
            strategy,
            model_parallel,
            coordinator=coordinator,
            num_processes=num_processes,
            process_id=process_id,
        )
    if strategy != "data":
        raise ValueError(
            f"The {backend} backend has strategy='data' alone; the JAX backend "
            f"has {typing.get_args(layouts.Strategy)}. Received: "
            f"strategy={strategy!r}"
        )
    if several:
        raise ValueError(
            "`coordinator`, `num_processes` and `process_id` are for the JAX "
            "backend; TensorFlow reads TF_CONFIG, and PyTorch what torchrun "
            f"sets. Received: coordinator={coordinator!r}, "
            f"num_processes={num_processes}, process_id={process_id}"
        )
    if backend == "tensorflow":
        return _tensorflow(devices, tpu)
    return _torch(devices, tpu)


def _tensorflow(devices, tpu):
    import tensorflow as tf

    if devices == "tpu" or tpu or (devices == "auto" and _has_tpu()):
        return _tensorflow_tpu(tpu)
    gpus = tf.config.list_physical_devices("GPU")
    if devices == "gpu" and not gpus:
        raise _missing("gpu", tf.config.list_physical_devices())
    kind = "gpu" if gpus and devices != "cpu" else "cpu"
    if gpus and kind == "cpu":
        tf.config.set_visible_devices([], "GPU")
    workers = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
    if sum(map(len, workers.values())) > 1:
        strategy = _multi_worker_strategy()
        resolver = strategy.cluster_resolver
        index = resolver.task_id
        if "chief" in workers and resolver.task_type != "chief":
            index += 1
        return Devices(
            kind=kind,
            num_devices=strategy.num_replicas_in_sync,
            num_replicas=strategy.num_replicas_in_sync,
            num_processes=sum(map(len, workers.values())),
            process_index=index,
            strategy=strategy,
        )
    names = [d.name for d in tf.config.list_logical_devices(kind.upper())]
    if len(names) == 1:
        return Devices(kind=kind)
    return Devices(
        kind=kind,
        num_devices=len(names),
        num_replicas=len(names),
        strategy=tf.distribute.MirroredStrategy(names),
    )


def _multi_worker_strategy():
    """Return a MultiWorkerMirroredStrategy under which Keras 3 can train.

    Keras reduces complete batches, to find their shapes, and scalar logs along
    an axis that they do not have; MirroredStrategy accepts both (keras issue
    20585).
    """
    import tensorflow as tf

    class Workers(tf.distribute.MultiWorkerMirroredStrategy):
        def reduce(self, reduce_op, value, axis):
            def reduce_one(value):
                local = self.experimental_local_results(value)[0]
                if local.dtype.is_integer:
                    return local  # a batch of pixels
                return reduce(
                    reduce_op, value, axis if local.shape.rank else None
                )

            reduce = super().reduce
            return tf.nest.map_structure(reduce_one, value)

    return Workers()


def _tensorflow_tpu(tpu):
    import tensorflow as tf

    tpu = tpu or os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (
        ValueError,
        tf.errors.NotFoundError,
        tf.errors.InvalidArgumentError,
        tf.errors.UnavailableError,
    ) as error:
        raise ValueError(
            "`devices` and `tpu` must name a TPU that TensorFlow reaches: "
            "'local' on a TPU VM, a name or a grpc:// address. Received: "
            f"tpu={tpu!r}: {error}"
        ) from error
    return Devices(
        kind="tpu",
        num_devices=strategy.num_replicas_in_sync,
        num_replicas=strategy.num_replicas_in_sync,
        strategy=strategy,
    )


def _jax(
    devices,
    strategy,
    model_parallel,
    *,
    coordinator,
    num_processes,
    process_id,
):
    import jax

    if devices == "cpu":
        jax.config.update("jax_platforms", "cpu")
    asked = coordinator or num_processes > 1
    in_cluster = any(name in os.environ for name in JAX_CLUSTERS)
    if not jax.distributed.is_initialized() and (
        asked or in_cluster or (devices in ("auto", "tpu") and _is_tpu_pod())
    ):
        # Keras' initialize() does the same, but a dead process is then detected
        # only after 100 seconds.
        jax.distributed.initialize(
            coordinator or None,
            num_processes or None,
            None if process_id < 0 else process_id,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
        )
    try:
        found = jax.devices()
    except RuntimeError as error:
        raise _missing(devices, str(error)) from error
    kind = found[0].platform
    if devices not in ("auto", kind):
        raise _missing(devices, found)
    if len(found) == 1:
        if strategy != "data":
            raise ValueError(
                "`strategy` other than 'data' needs several devices. "
                f"Received: strategy={strategy!r} with {found}"
            )
        return Devices(kind=kind)
    local = jax.local_device_count()
    model_parallel = model_parallel or local
    if "tensor" in strategy and local % model_parallel:
        raise ValueError(
            "`model_parallel` must divide the devices of a process, "
            f"{local}. Received: model_parallel={model_parallel}"
        )
    if "tensor" not in strategy:
        model_parallel = 1
    return Devices(
        kind=kind,
        num_devices=len(found),
        num_replicas=len(found) // model_parallel,
        num_processes=jax.process_count(),
        process_index=jax.process_index(),
        strategy=layouts.distribution(strategy, found, model_parallel),
    )


def _torch(devices, tpu):
    import torch

    if devices == "tpu" or tpu:
        raise ValueError(
            "The torch backend has no TPUs; KERAS_BACKEND=jax and "
            f"KERAS_BACKEND=tensorflow do. Received: devices={devices!r}"
        )
    count = torch.cuda.device_count()
    if devices == "gpu" and not count:
        raise _missing("gpu", ["cpu"])
    kind = "gpu" if count and devices != "cpu" else "cpu"
    if torch_processes.started() > 1:
        num_processes, index = torch_processes.join(kind)
        return Devices(
            kind=kind,
            num_devices=num_processes,
            num_replicas=num_processes,
            num_processes=num_processes,
            process_index=index,
        )
    if count > 1 and kind == "gpu":
        raise ValueError(
            "A process of PyTorch trains on one device. Received: "
            f"{count} GPUs. Start one for each: torchrun "
            f"--nproc_per_node={count} -m ... in place of python -m ...; or "
            "show it one GPU: CUDA_VISIBLE_DEVICES=0"
        )
    return Devices(kind=kind)


def _has_tpu():
    """Whether this machine has a TPU, or the environment names one."""
    return "TPU_NAME" in os.environ or bool(
        glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
    )


def _is_tpu_pod():
    """Whether this machine is one of several that share a TPU slice."""
    hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "")
    return _has_tpu() and ("," in hosts or not hosts)


def _missing(kind, there):
    return ValueError(
        f"devices={kind!r} must be there for the "
        f"{keras.backend.backend()} backend. Received: {there}"
    )
