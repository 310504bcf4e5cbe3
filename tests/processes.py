"""Starts the recipe in processes, and compares their files.

Processes are forked from one that has imported everything and computed nothing,
since importing takes longer than most of them run.
"""

import atexit
import contextlib
import multiprocessing.forkserver
import os
import pathlib
import secrets
import signal
import socket
import sys
import tempfile
import traceback

import keras
import numpy as np
import start_recipe

import keras_vit  # noqa: F401, registers the layers

ROOT = pathlib.Path(__file__).parents[1]

CONFIG = dict(
    dataset="digits",
    architecture=dict(
        patch_size=4,
        hidden_size=16,
        num_layers=1,
        num_heads=4,
        mlp_dim=32,
    ),
    crop="pad",
    eval_fraction=0.1,
    batch_size=32,
    eval_every=4,
    warmup_steps=1,
    base_lr=0.05,
    weight_decay=0.1,
    ema_momentum=0.5,
)


class Forked:
    """A running call of a function in a separate process."""

    def __init__(self, function, *arguments, **environment):
        _start_server()
        self._printed = tempfile.NamedTemporaryFile("r", suffix=".txt")
        self._process = multiprocessing.get_context("forkserver").Process(
            target=_call,
            args=(self._printed.name, environment, function, arguments),
        )
        self._process.start()
        self.pid = self._process.pid

    def is_running(self):
        return self._process.is_alive()

    def printed(self):
        self._printed.seek(0)
        return self._printed.read()

    def send_signal(self, number):
        os.kill(self.pid, number)

    def end(self, timeout):
        """Waits; returns the exit status and what was printed."""
        self._process.join(timeout)
        if self.is_running():
            self._process.kill()
            self._process.join()
            raise TimeoutError(self.printed())
        return self._process.exitcode, self.printed()


def _start_server():
    """Starts the process to fork from, unless it runs."""
    server = multiprocessing.forkserver
    server.set_forkserver_preload(["forked"])
    before = os.environ.copy()
    os.environ.update(
        KERAS_BACKEND=keras.backend.backend(),
        TF_CPP_MIN_LOG_LEVEL="3",
        JAX_PLATFORMS="cpu",
        # As torchrun sets it: threads of several processes would spin.
        OMP_NUM_THREADS="1",
        PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    )
    try:
        server.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _call(printed, environment, function, arguments):
    """Calls a function in a forked process, as `python file.py` would."""
    with open(printed, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    status = 0
    try:
        function(*arguments)
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    # multiprocessing calls no exit handlers, with which JAX leaves a cluster.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def start(workdir, environment=None, **arguments):
    """Starts start_recipe.py with these arguments; config changes CONFIG."""
    arguments["config"] = CONFIG | arguments.get("config", {})
    return Forked(
        start_recipe.main,
        {"workdir": str(workdir), **arguments},
        **(environment or {}),
    )


def end(*processes, timeout=900):
    """Waits for processes; returns their exit statuses and outputs."""
    try:
        return [process.end(timeout) for process in processes]
    except TimeoutError:
        for other in processes:
            if other.is_running():
                other.send_signal(signal.SIGKILL)
        raise


def call(function, *arguments, **environment):
    """Calls a function in a process; returns what it printed."""
    status, printed = Forked(function, *arguments, **environment).end(900)
    assert status == 0, printed
    return printed


def run(workdir, **arguments):
    """Runs the recipe to its end, which must succeed; returns its output."""
    [(status, printed)] = end(start(workdir, **arguments))
    assert status == 0, printed
    return printed


def free_address():
    """Returns an address of no port that the system may give to another."""
    while True:
        port = secrets.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("localhost", port))
            return f"localhost:{port}"


def as_torchrun(count):
    """Returns what torchrun sets in each of `count` processes."""
    host, port = free_address().split(":")
    common = dict(WORLD_SIZE=str(count), MASTER_ADDR=host, MASTER_PORT=port)
    return [dict(common, RANK=str(i), LOCAL_RANK=str(i)) for i in range(count)]


def state_of(workdir):
    """All arrays of the newest checkpoint and of both models, by name."""
    import orbax.checkpoint as ocp

    def as_numpy(array):
        return np.zeros(array.shape, array.dtype)

    with ocp.CheckpointManager(
        workdir / "checkpoints", item_handlers=ocp.StandardCheckpointHandler()
    ) as manager:
        step = manager.latest_step()
        # It is read without devices, whatever the devices that wrote it.
        template = keras.tree.map_structure(
            as_numpy, dict(manager.item_metadata(step))
        )
        saved = manager.restore(step, args=ocp.args.StandardRestore(template))
    models = {
        f"{name}/{i}": array
        for name in ("best", "last")
        for i, array in enumerate(
            keras.models.load_model(
                workdir / f"{name}.keras", compile=False
            ).get_weights()
        )
    }
    return models | {
        f"{part}/{name}": np.asarray(value)
        for part, values in saved.items()
        for name, value in values.items()
        if part != "metrics"
    }
