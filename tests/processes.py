"""Starting the recipe in processes, and comparing what they leave behind."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np

import keras_vit  # noqa: F401, registers the layers

START = pathlib.Path(__file__).parent / "start_recipe.py"
ROOT = START.parents[1]

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
    batch_size=32,
    eval_every=4,
    warmup_steps=1,
    base_lr=0.05,
    weight_decay=0.1,
    ema_momentum=0.5,
)


def start(workdir, environment=None, **arguments):
    """Starts start_recipe.py with these arguments; config changes CONFIG."""
    arguments["config"] = CONFIG | arguments.get("config", {})
    return subprocess.Popen(
        [
            sys.executable,
            START,
            json.dumps({"workdir": str(workdir), **arguments}),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KERAS_BACKEND": keras.backend.backend(),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "JAX_PLATFORMS": "cpu",
            **(environment or {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(*processes, timeout=300):
    """Waits for processes; returns their exit statuses and what they said."""
    ended = []
    for process in processes:
        try:
            printed = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            raise
        ended.append((process.returncode, printed))
    return ended


def run(workdir, **arguments):
    """Runs a process to its good end."""
    [(status, printed)] = end(start(workdir, **arguments))
    assert status == 0, printed
    return printed


def free_address():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return f"localhost:{found.getsockname()[1]}"


def state_of(workdir):
    """All arrays of the newest checkpoint and of both models, by name."""
    import orbax.checkpoint as ocp

    def as_numpy(array):
        return np.zeros(array.shape, array.dtype)

    with ocp.CheckpointManager(
        workdir / "checkpoints", item_handlers=ocp.StandardCheckpointHandler()
    ) as manager:
        step = manager.latest_step()
        # Of whatever devices it was written, it is read on none.
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
