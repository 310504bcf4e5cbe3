"""Measures the cases of one backend, in its process."""

import dataclasses
import datetime
import functools
import importlib.metadata
import json
import pathlib
import platform
import time

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
    """Measure cases; after each, add it to those of the JSON file."""
    found = _opened(path)
    for precision in sorted({case.precision for case in wanted}):
        rate = measure.product_rate(precision)
        found["product_rates"][precision] = rate
    for case in wanted:
        rows = measure_case(case, names, rounds)
        found["rows"] = _replace(found["rows"], rows)
        path.write_text(json.dumps(found, indent=1))
        keras.utils.clear_session()


def measure_alone(
    measured: str, case: cases.Case, name: str, most: int, path: pathlib.Path
) -> None:
    """Measure one implementation in this process, if it has the model.

    Other results of the JSON file are preserved.

    Args:
        measured: "memory", or "batch" for the largest one, at most `most`.
    """
    outline, names = _outline(case, [name])
    if not names:
        return

    def make(images):
        one = dataclasses.replace(case, batch_size=images)
        return functools.partial(implementations.make, name, outline, one)

    row = dict(**dataclasses.asdict(case), implementation=name)
    if measured == "memory":
        part, peak = "memory", measure.peak_memory(make(case.batch_size))
        row |= dict(bytes=peak)
        print(f"{case}: {name}, {peak} bytes", flush=True)
    else:
        images = measure.largest(lambda n: measure.fits(make(n)), most)
        part = "batches"
        row |= dict(images=images, most=most)
        print(f"{case}: {name}, batches of {images} fit", flush=True)
    found = _opened(path)
    found[part] = _replace(found[part], [row])
    path.write_text(json.dumps(found, indent=1))


def measure_case(case: cases.Case, names: list[str], rounds: int) -> list[dict]:
    """Return a row for each available implementation of a case."""
    outline, names = _outline(case, names)
    macs = keras_vit.cost(outline).macs
    functions, rows = {}, {}
    for name in names:
        start = time.perf_counter()
        functions[name] = implementations.make(name, outline, case)
        functions[name]()
        first = time.perf_counter() - start
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
    """Return the contents of a file, empty if there is none."""
    found = dict(environment={}, product_rates={}, rows=[])
    found |= dict(memory=[], batches=[])
    if path.is_file():
        found |= json.loads(path.read_text())
    return found


def _opened(path):
    return read(path) | dict(environment=_environment())


def _outline(case, names):
    """Return our model without weights, and those names that have it."""
    with costs.shapes_alone():
        outline = implementations.ours(case, "float32")
    available = [
        name for name in names if implementations.available(name, outline, case)
    ]
    return outline, implementations.importable(available, f"{case}: ")


def _replace(rows, new):
    """Return rows with new ones in the place of those of the same case."""

    def key(row):
        return cases.of_row(row), row["implementation"]

    known = set(map(key, new))
    return [row for row in rows if key(row) not in known] + new


def _environment():
    versions = {
        name: importlib.metadata.version(name)
        for name in PACKAGES
        if list(importlib.metadata.distributions(name=name))
    }
    return dict(
        backend=keras.backend.backend(),
        device=_device(),
        processors=measure.processors(),
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
