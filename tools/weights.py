"""The released weights, from the shell.

    python -m tools.weights list [ViTB16]
    python -m tools.weights fetch ViTB16 augreg
    python -m tools.weights verify [ViTB16 augreg]
    python -m tools.weights locate ViTB16 augreg
    python -m tools.weights best B_16 [--ds i21k] [--by final_val]

`fetch` downloads into the cache and prints the path; `verify` compares what
the cache has with the hashes of its download; `locate` prints where a file is
or would be, and downloads nothing.
"""

import argparse
import os
import sys

import keras_vit
from keras_vit.weights import augreg, download, registry
from recipes import command


@command.entry
def main(arguments: list[str]) -> int:
    """Runs a command; returns 1 if it failed."""
    parser = command.Parser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    added = commands.add_parser("list")
    added.add_argument("model", nargs="?")
    for name in ("fetch", "locate"):
        added = commands.add_parser(name)
        added.add_argument("model")
        added.add_argument("weights")
    added = commands.add_parser("verify")
    added.add_argument("model", nargs="?")
    added.add_argument("weights", nargs="?")
    added = commands.add_parser("best")
    added.add_argument("model")
    added.add_argument("--ds", default="i21k")
    added.add_argument("--by", default="final_val")
    added.add_argument("--adapt-ds")
    added.add_argument("--adapt-resolution", type=int)
    flags = parser.parse_args(arguments)
    return globals()[f"_{flags.command}"](flags)


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
        paths = [_entry(flags).path]
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
                registry.check(path)
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


if __name__ == "__main__":
    sys.exit(main())
