"""Measures the cases of one backend, in its process."""

import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform

import keras

import keras_vit
from keras_vit.inspection import costs
from tools.benchmark import cases, implementations, measure

PACKAGES = (
    *("keras", "tensorflow", "jax", "torch"),
    *("keras-hub", "timm", "transformers", "torchvision"),
)


def measure_cases(
    wanted: list[cases.Case], names: list[str], rounds: int, path: pathlib.Path
) -> None:
    """Measures cases, and writes the file after each.

    Args:
        wanted: The cases.
        names: Implementations, of `cases.IMPLEMENTATIONS`.
        rounds: Number of rounds.
        path: A JSON file, whose other cases are preserved.
    """
    found = read(path)
    found["environment"] = _environment()
    rates = found["product_rates"]
    for precision in sorted({case.precision for case in wanted}):
        rates[precision] = measure.product_rate(precision)
    for case in wanted:
        rows = measure_case(case, names, rounds)
        new = {row["implementation"] for row in rows}
        found["rows"] = [
            row
            for row in found["rows"]
            if _case(row) != case or row["implementation"] not in new
        ] + rows
        path.write_text(json.dumps(found, indent=1))
        keras.utils.clear_session()


def measure_case(case: cases.Case, names: list[str], rounds: int) -> list[dict]:
    """Returns a row for each available implementation of a case.

    Args:
        case: The case.
        names: Implementations, of `cases.IMPLEMENTATIONS`.
        rounds: Number of rounds.
    """
    with costs.shapes_alone():
        outline = implementations.ours(case, "float32")
        macs = keras_vit.cost(outline).macs
        names = [
            name
            for name in names
            if implementations.available(name, outline, case)
        ]
        frames = outline.num_frames
    functions, rows = {}, {}
    for name in names:
        try:
            implementations.prepare(name)
        except ImportError as error:
            print(f"{case}: {name} is left out, since {error}", flush=True)
            continue
        make = functools.partial(implementations.make, name, outline, case)
        functions[name], first, memory = measure.first_call(make)
        rows[name] = dict(
            **{field: getattr(case, field) for field in case.__slots__},
            implementation=name,
            frames=frames,
            macs=macs * (3 if case.task == "training" else 1),
            first_seconds=first,
            # Allocators reuse what an earlier implementation freed.
            memory=memory if len(names) == 1 else None,
            measured=datetime.datetime.now().isoformat(timespec="minutes"),
        )
        print(f"{case}: {name}, first result in {first:.1f} s", flush=True)
    for name, seconds in measure.rounds(functions, rounds).items():
        rows[name]["seconds"] = seconds
    return list(rows.values())


def read(path: pathlib.Path) -> dict:
    """Returns the contents of a file, empty if there is none."""
    if path.is_file():
        return json.loads(path.read_text())
    return dict(environment={}, product_rates={}, rows=[])


def _case(row):
    return cases.Case(**{name: row[name] for name in cases.Case.__slots__})


def _environment():
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return dict(
        backend=keras.backend.backend(),
        device=_device(),
        processors=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        machine=platform.machine(),
        versions=versions,
    )


def _device():
    kind = measure.device()
    if kind == "cpu":
        return "cpu"
    if keras.backend.backend() == "jax":
        import jax

        return jax.devices()[0].device_kind
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_name()
    import tensorflow as tf

    devices = tf.config.list_physical_devices(kind.upper())
    details = tf.config.experimental.get_device_details(devices[0])
    return details.get("device_name", kind)
