"""The released weights: lists, fetches and verifies them."""

import os
import sys

import keras_vit
from keras_vit.weights import augreg, download, registry, released


def run(options) -> int:
    """Run one of the commands below; return 1 if files do not verify."""
    return globals()[f"_{options.command}"](options)


def _entry(flags):
    entry = registry.find(flags.weights, flags.model)
    if entry is None:
        raise ValueError(
            f"No weights {flags.weights!r} of {flags.model!r} are released. "
            f"There are:\n{keras_vit.list_weights(flags.model)}"
        )
    return entry


def _list(flags):
    print(keras_vit.list_weights(flags.model))
    return 0


def _fetch(flags):
    print(_entry(flags).fetch())
    return 0


def _locate(flags):
    entry = _entry(flags)
    here = os.path.exists(entry.path)
    print(f"{entry.path}{'' if here else f' (not here yet: {entry.url})'}")
    return 0


def _verify(flags):
    if flags.weights:
        entry = _entry(flags)
        if entry.repository:
            raise ValueError(
                f"Files of the Hub have no digest to verify. Received: "
                f"{entry.name!r}"
            )
        paths = [entry.path]
    else:
        paths = [
            os.path.join(folder, name.removesuffix(".json"))
            for folder, _, names in os.walk(download.cache_dir())
            for name in sorted(names)
            if name.endswith(".json")
        ]
    failed = 0
    for path in paths:
        try:
            download.verify(path)
            if path.endswith(".npz"):
                released.check(path)
            print(f"{path}: as it was downloaded")
        except ValueError as error:
            print(error, file=sys.stderr)
            failed = 1
    if not paths:
        print(f"{download.cache_dir()} has no downloaded weights")
    return failed


def _best(flags):
    entry = augreg.best(
        flags.model,
        flags.ds,
        flags.by,
        flags.adapt_ds,
        flags.adapt_resolution,
    )
    print(f"{entry.variant} {entry.name}")
    return 0
