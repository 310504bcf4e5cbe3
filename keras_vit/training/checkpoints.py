"""The complete state of a training run on disk, from which it resumes exactly.

Orbax writes atomically and in the background, but without a checksum of the
values, so each finished checkpoint is sealed with one.
"""

import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import zlib
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit._installation import pip_install
from keras_vit.ops.replicas import gather_over_replicas, processes

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
        restart: Whether to start at step 0 if there are checkpoints and none
            can be restored.

    Raises:
        ImportError: If orbax-checkpoint is not installed.
    """

    @checked
    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        keep: Count = 3,
        is_main: bool = True,
        restart: bool = False,
    ):
        ocp = _orbax()
        self.directory = pathlib.Path(directory).absolute()
        self._seals = is_main
        self._writes = is_main or keras.backend.backend() == "jax"
        self._restart = restart
        self._sealing = concurrent.futures.ThreadPoolExecutor(1)
        self._sealed: concurrent.futures.Future | None = None
        self._damaged = []
        self._generators: dict | None = None
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
        """Start to write a checkpoint; return when training may continue.

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
        """Return when everything is on disk."""
        if self._sealed is not None:
            self._sealed.result()

    def close(self) -> None:
        """Wait for the writes, and end the threads."""
        self.wait()
        self._sealing.shutdown()
        self._manager.close()

    def restore(self, model: keras.Model) -> tuple[int, list | None]:
        """Restore the newest complete checkpoint into a model.

        A step is skipped, with a printed message, if its files differ from
        their checksums, or if it has no checksums (its write or its copy was
        interrupted) and Orbax cannot read it; the next `save` renames it to
        `damaged-{step}`. A step whose checksums match is never skipped.

        Args:
            model: The compiled model, with its optimizer and metrics built.

        Returns:
            The step, 0 without a checkpoint, and the values of
            `model.metrics_variables`, which Keras resets when training
            begins (`None` without a checkpoint).

        Raises:
            ValueError: If no checkpoint can be restored, unless `restart`;
                or if an intact one is of another model or optimizer.
            OSError: If an intact one cannot be read.
        """
        self.wait()
        damage = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            folder = self.directory / str(step)
            damage[step] = _damage(folder)
            state = None
            if not damage[step]:
                try:
                    state = _read(folder, _state(model))
                except _OtherModel:
                    raise
                except Exception as error:  # Orbax raises of every kind
                    if (folder / SEAL).exists():
                        raise OSError(
                            f"The checkpoint {folder} is intact, but cannot be "
                            f"read: {type(error).__name__}: {error}"
                        ) from error
                    damage[step] = (
                        f"it is incomplete ({type(error).__name__}: {error})"
                    )
            if state is not None:
                self._assign(state, model)
                return step, list(state["metrics"].values())
            self._damaged.append(step)
            print(
                f"The checkpoint of step {step} is damaged: {damage[step]}.",
                flush=True,
            )
        if damage and not self._restart:
            raise ValueError(
                f"None of the checkpoints in {self.directory} can be restored "
                f"(steps {sorted(damage)}), and training does not start again "
                "at step 0 unasked. Copy the checkpoints again, or set "
                "`restart` to start at step 0; the damaged ones are renamed."
            )
        return 0, None

    def _assign(self, state, model):
        current = _state(model)
        for part in ("trainable", "non_trainable", "optimizer"):
            for variable, value in zip(
                current[part], state[part].values(), strict=True
            ):
                variable.assign(value)
        self._generators = state["generators"]
        names = itertools.chain(*_generator_names())
        if state["generators"].keys() != set(names):
            print(
                "The checkpoint is of another backend or number of GPUs or "
                "processes: training resumes with other random masks.",
                flush=True,
            )

    def restore_generators(self) -> None:
        """Restore the random generators, once after a `restore`.

        Call it just before the first step: the iterators over batches that
        `fit` makes draw from PyTorch's generator.
        """
        if self._generators is not None:
            _set_generators(self._generators)
            self._generators = None

    def _set_damaged_aside(self):
        """Rename damaged checkpoints. Only a `save` calls it, when every
        process has restored."""
        while self._damaged:
            name = str(self._damaged.pop())
            if self._seals:
                aside = self.directory / f"damaged-{name}"
                os.replace(self.directory / name, aside)
            self._manager.reload()

    def _seal(self, step):
        """Wait for the files of a checkpoint, and write their checksums."""
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
            f"Checkpoints need orbax-checkpoint: {pip_install('checkpoints')}"
        ) from error
    if keras.backend.backend() != "jax":
        # On the other backends only Orbax uses JAX, which must not claim the
        # accelerator.
        jax.config.update("jax_platforms", "cpu")
    return ocp


@functools.cache
def _manager_class():
    base: Any = _orbax().CheckpointManager

    class Manager(base):
        # JAX stops all processes at the call of one counter, which
        # `distribution.preemption` counts. Orbax would set it to the step, and
        # where that is less, the processes would never stop.
        def reached_preemption(self, step):
            return False

    return Manager


class _OtherModel(ValueError):
    """The checkpoint is of another model or optimizer."""


def _read(folder, state):
    """Return the values of a checkpoint, for the variables of a state.

    Each step is read by itself, since Orbax' manager concludes from the newest
    step how all of them are stored.
    """
    ocp = _orbax()
    folder = folder / "default"
    with ocp.StandardCheckpointer() as checkpointer:
        saved = ocp.StandardCheckpointHandler().metadata(folder)
        for part, variables in state.items():
            there = [tuple(saved[part][k].shape) for k in sorted(saved[part])]
            here = [tuple(variable.shape) for variable in variables]
            if there != here:
                raise _OtherModel(
                    f"The checkpoint {folder.parent} must be of the same model "
                    f"and optimizer. Received: {len(there)} {part} variables, "
                    f"{len(here)} here; first difference: "
                    f"{_first_difference(there, here)}"
                )
        template = _map(state, _to_restore)
        # Of another backend, or another number of GPUs.
        template["generators"] = {
            name: np.zeros(array.shape, array.dtype)
            for name, array in saved["generators"].items()
        }
        return checkpointer.restore(folder, template)


def _first_difference(there, here):
    for i, (a, b) in enumerate(itertools.zip_longest(there, here)):
        if a != b:
            return f"shape {a} there, {b} here (variable {i})"


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
    """Return arrays that Orbax can read shard by shard.

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


def _generator_names():
    """Return the names of the states of each process: of CPU, of GPU."""
    if keras.backend.backend() != "torch":
        return [["none"]]  # Orbax has no empty dictionaries
    import torch

    names = ["0", "1"] if torch.cuda.is_available() else ["0"]
    others = range(1, processes()[0])
    return [names, *([f"{name}.{i}" for name in names] for i in others)]


def _generators():
    """Return the states of PyTorch's generators in all processes.

    Keras' dropout draws from them.
    """
    names = _generator_names()
    if keras.backend.backend() != "torch":
        return {"none": np.zeros(1)}
    import torch

    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    every = [gather_over_replicas(x[None]).cpu() for x in states]
    return {
        name: np.array(states[i])
        for i, own in enumerate(names)
        for name, states in zip(own, every, strict=True)
    }


def _set_generators(states):
    """Set the generators that the checkpoint and this process both have."""
    if keras.backend.backend() != "torch":
        return
    import torch

    names = _generator_names()[processes()[1]]
    setters = (torch.set_rng_state, torch.cuda.set_rng_state)
    for name, set_state in zip(names, setters, strict=False):
        if name in states:
            set_state(torch.from_numpy(np.array(states[name])))


def _map(state, function):
    """Return values keyed by their order, since Orbax handles dictionaries
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
    # On one device the values are read as NumPy arrays. Orbax would commit
    # JAX's to the device, unlike those that Keras makes, and JAX would compile
    # the steps once for each mixture of the two.
    if keras.distribution.distribution() is not None:
        import jax

        return jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=variable.value.sharding
        )
    return np.zeros(variable.shape, variable.dtype)


def _checksums(folder):
    """Return the CRC-32 of each file of a checkpoint, by its relative path."""
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
    """Return what is wrong with a checkpoint, or "".

    The process may have died between writing a checkpoint and sealing it. A
    checkpoint without a seal passes; only Orbax' own checks apply to it.
    """
    try:
        seal = json.loads((folder / SEAL).read_text())
    except FileNotFoundError:
        return ""
    except ValueError:
        seal = None
    if not isinstance(seal, dict) or not seal:
        return f"{SEAL} cannot be read"
    found = _checksums(folder)
    wrong = [name for name in seal if found.get(name) != seal[name]]
    return f"{wrong[0]} is missing or changed" if wrong else ""
