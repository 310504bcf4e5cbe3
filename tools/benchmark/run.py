"""Measures the cases of one backend, in its process."""

import dataclasses
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
    found = _opened(path)
    rates = found["product_rates"]
    for precision in sorted({case.precision for case in wanted}):
        rates[precision] = measure.product_rate(precision)
    for case in wanted:
        found["rows"] = _replace(
            found["rows"], measure_case(case, names, rounds)
        )
        path.write_text(json.dumps(found, indent=1))
        keras.utils.clear_session()


def measure_memory(case: cases.Case, name: str, path: pathlib.Path) -> None:
    """Measures the memory of one implementation, and writes the file.

    Args:
        case: The case.
        name: One of `cases.IMPLEMENTATIONS`. Where it lacks the model, nothing
            is measured.
        path: A JSON file, whose other results are preserved.
    """
    outline, names = _outline(case, [name])
    if not names:
        return
    make = functools.partial(implementations.make, name, outline, case)
    found = _opened(path)
    row = dict(
        **dataclasses.asdict(case),
        implementation=name,
        bytes=measure.peak_memory(make),
    )
    found["memory"] = _replace(found["memory"], [row])
    path.write_text(json.dumps(found, indent=1))
    print(f"{case}: {name}, {row['bytes']} bytes", flush=True)


def measure_case(case: cases.Case, names: list[str], rounds: int) -> list[dict]:
    """Returns a row for each available implementation of a case.

    Args:
        case: The case.
        names: Implementations, of `cases.IMPLEMENTATIONS`.
        rounds: Number of rounds.
    """
    outline, names = _outline(case, names)
    macs = keras_vit.cost(outline).macs
    functions, rows = {}, {}
    for name in names:
        make = functools.partial(implementations.make, name, outline, case)
        functions[name], first = measure.first_call(make)
        rows[name] = dict(
            **dataclasses.asdict(case),
            implementation=name,
            frames=outline.num_frames,
            macs=macs * (3 if case.task == "training" else 1),
            first_seconds=first,
            measured=datetime.datetime.now().isoformat(timespec="minutes"),
        )
        print(f"{case}: {name}, first result in {first:.1f} s", flush=True)
    for name, seconds in measure.rounds(functions, rounds).items():
        rows[name]["seconds"] = seconds
    return list(rows.values())


def read(path: pathlib.Path) -> dict:
    """Returns the contents of a file, empty if there is none."""
    found = dict(environment={}, product_rates={}, rows=[], memory=[])
    if path.is_file():
        found |= json.loads(path.read_text())
    return found


def _opened(path):
    return read(path) | dict(environment=_environment())


def _outline(case, names):
    """Returns our model without weights, and those names that have it."""
    with costs.shapes_alone():
        outline = implementations.ours(case, "float32")
        names = [
            name
            for name in names
            if implementations.available(name, outline, case)
        ]
    found = []
    for name in names:
        try:
            implementations.prepare(name)
            found.append(name)
        except ImportError as error:
            print(f"{case}: {name} is left out, since {error}", flush=True)
    return outline, found


def _replace(rows, new):
    """Returns rows with new ones in the place of those of the same case."""
    known = {(_case(row), row["implementation"]) for row in new}
    return [
        row for row in rows if (_case(row), row["implementation"]) not in known
    ] + new


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
