"""The complete state of a training run on disk, from which it resumes exactly.

Orbax writes atomically and in the background, but without a checksum of the
values, so each finished checkpoint is sealed with one.
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import zlib

import keras
import numpy as np
from keras import ops

SEAL = "crc32.json"


class Checkpoints:
    """The last checkpoints of a run, by step.

    A checkpoint contains the variables of the model (including the random state
    of dropout), of the optimizer (step, moments and averages) and of the
    running metrics. Variables are identified by their order, since Keras names
    seed generators by a per-process counter.

    Args:
        directory: Directory of the checkpoints. All processes must share it.
        keep: Number of newest checkpoints to keep.
        is_main: Whether this is the process that writes; with JAX every process
            writes its shard, and this one commits the checkpoint.

    Raises:
        ImportError: If orbax-checkpoint is not installed.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        keep: int = 3,
        is_main: bool = True,
    ):
        ocp = _orbax()
        self.directory = pathlib.Path(directory).absolute()
        self._seals = is_main
        self._writes = is_main or keras.backend.backend() == "jax"
        self._sealing = concurrent.futures.ThreadPoolExecutor(1)
        self._sealed: concurrent.futures.Future | None = None
        self._damaged = []
        self._generators = None
        self._manager = _manager_class()(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                enable_async_checkpointing=True,
                read_only=not self._writes,
            ),
        )

    @property
    def latest(self) -> int:
        """Step of the newest checkpoint, 0 without any."""
        return self._manager.latest_step() or 0

    def save(self, step: int, model: keras.Model) -> None:
        """Starts to write a checkpoint; returns when training may continue.

        Args:
            step: Number of steps that the state has seen.
            model: The compiled model.

        Raises:
            FloatingPointError: If a weight is not finite; nothing is written.
        """
        # Every process takes part, since reading a variable may need all of
        # them.
        state = _map(_state(model), _to_save) | {"generators": _generators()}
        state["metrics"] = _settled(state["metrics"])
        if not _all_finite(list(state["trainable"].values())):
            raise FloatingPointError(
                f"A weight is not finite after step {step}."
            )
        if not self._writes:
            return
        self.wait()
        self._set_damaged_aside()
        if step not in self._manager.all_steps():
            ocp = _orbax()
            self._manager.save(step, args=ocp.args.StandardSave(state))
            self._sealed = self._sealing.submit(self._seal, step)

    def wait(self) -> None:
        """Returns when everything is on disk."""
        if self._sealed is not None:
            self._sealed.result()

    def close(self) -> None:
        """Waits for the writes, and ends the threads."""
        self.wait()
        self._sealing.shutdown()
        self._manager.close()

    def restore(self, model: keras.Model) -> tuple[int, list | None]:
        """Restores the newest complete checkpoint into a model.

        If it is damaged, a message is printed and the one before it is
        restored; the next `save` renames the damaged one to `damaged-{step}`.

        Args:
            model: The compiled model, with its optimizer and metrics built.

        Returns:
            The step, 0 without a checkpoint, and the values of
            `model.metrics_variables`, which Keras resets when training
            begins (`None` without a checkpoint).
        """
        ocp = _orbax()
        for step in sorted(self._manager.all_steps(), reverse=True):
            damage = _damage(self.directory / str(step))
            if not damage:
                template = _map(_state(model), _to_restore)
                template["generators"] = _generators()
                try:
                    state = self._manager.restore(
                        step, args=ocp.args.StandardRestore(template)
                    )
                except Exception as error:  # Orbax raises of every kind
                    damage = f"{type(error).__name__}: {error}"
            if damage:
                self._damaged.append(step)
                print(
                    f"The checkpoint of step {step} is damaged: {damage}. "
                    "The one before it is taken.",
                    flush=True,
                )
                continue
            current = _state(model)
            for part in ("trainable", "non_trainable", "optimizer"):
                for variable, value in zip(
                    current[part], state[part].values(), strict=True
                ):
                    variable.assign(value)
            self._generators = state["generators"]
            return step, list(state["metrics"].values())
        return 0, None

    def restore_generators(self) -> None:
        """Restores the random generators, once after a `restore`.

        Call it just before the first step: the iterators over batches that
        `fit` makes draw from PyTorch's generator.
        """
        if self._generators is not None:
            _set_generators(self._generators)
            self._generators = None

    def _set_damaged_aside(self):
        """Renames damaged checkpoints. Only a `save` calls it, when every
        process has restored."""
        while self._damaged:
            name = str(self._damaged.pop())
            if self._seals:
                aside = self.directory / f"damaged-{name}"
                os.replace(self.directory / name, aside)
            self._manager.reload()

    def _seal(self, step):
        """Waits for the files of a checkpoint, and writes their checksums."""
        self._manager.wait_until_finished()
        if not self._seals:
            return
        folder = self.directory / str(step)
        seal = json.dumps(_checksums(folder), indent=0)
        (folder / (SEAL + ".part")).write_text(seal)
        os.replace(folder / (SEAL + ".part"), folder / SEAL)


def _orbax():
    try:
        import jax
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(
            "Checkpoints need orbax-checkpoint: "
            "pip install 'keras-vision-transformer[recipes]'"
        ) from error
    if keras.backend.backend() != "jax":
        # On the other backends only Orbax uses JAX, which must not claim the
        # accelerator.
        jax.config.update("jax_platforms", "cpu")
    return ocp


@functools.cache
def _manager_class():
    class Manager(_orbax().CheckpointManager):
        # JAX stops all processes at the call of one counter, which
        # `distribution.preemption` counts. Orbax would set it to the step, and
        # where that is less, the processes would never stop.
        def reached_preemption(self, step):
            return False

    return Manager


def _state(model):
    return {
        "trainable": model.trainable_variables,
        "non_trainable": model.non_trainable_variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }


def _all_finite(arrays):
    if keras.backend.backend() != "jax":
        return all(np.isfinite(array).all() for array in arrays)
    return bool(_jitted(_jax_all_finite)(arrays))


def _jax_all_finite(arrays):
    finite = [ops.all(ops.isfinite(array)) for array in arrays]
    return functools.reduce(ops.logical_and, finite)


def _settled(arrays):
    """Returns arrays that Orbax can read shard by shard.

    With several JAX processes, variables that Keras has just set to zero are
    arrays whose shards cannot be listed; the result of a computation can be.
    """
    if keras.backend.backend() != "jax":
        return arrays
    return _jitted(_copies)(arrays)


def _copies(arrays):
    return {name: ops.copy(array) for name, array in arrays.items()}


@functools.cache
def _jitted(function):
    import jax

    return jax.jit(function)


def _generators():
    """Returns the states of PyTorch's generators, from which Keras' dropout
    draws."""
    if keras.backend.backend() != "torch":
        return {"none": np.zeros(1)}  # Orbax has no empty dictionaries
    import torch

    states = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    return {str(i): np.array(state) for i, state in enumerate(states)}


def _set_generators(states):
    if keras.backend.backend() == "torch":
        import torch

        cpu, *gpus = (torch.from_numpy(np.array(s)) for s in states.values())
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(gpus)


def _map(state, function):
    """Returns values keyed by their order, since Orbax handles dictionaries
    best."""
    return {
        part: {f"{i:05d}": function(v) for i, v in enumerate(variables)}
        for part, variables in state.items()
    }


def _to_save(variable):
    if keras.backend.backend() == "jax":
        return variable.value
    # A copy: the next step changes the variable while it is being written.
    return np.array(ops.convert_to_numpy(variable))


def _to_restore(variable):
    if keras.backend.backend() == "jax":
        import jax

        return jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=variable.value.sharding
        )
    return np.zeros(variable.shape, variable.dtype)


def _checksums(folder):
    """Returns the CRC-32 of each file of a checkpoint, by its relative path."""
    checksums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(SEAL):
            crc = 0
            with open(path, "rb") as file:
                while chunk := file.read(1 << 20):
                    crc = zlib.crc32(chunk, crc)
            checksums[str(path.relative_to(folder))] = crc
    return checksums


def _damage(folder):
    """Returns what is wrong with a checkpoint, or "".

    The process may have died between writing a checkpoint and sealing it. A
    checkpoint without a seal passes; only Orbax' own checks apply to it.
    """
    try:
        seal = json.loads((folder / SEAL).read_text())
    except FileNotFoundError:
        return ""
    except ValueError:
        return f"{SEAL} cannot be read"
    found = _checksums(folder)
    wrong = [name for name in seal if found.get(name) != seal[name]]
    return f"{wrong[0]} is missing or changed" if wrong else ""
