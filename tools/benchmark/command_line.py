r"""Compares the speed of models with that of other libraries, side by side.

python -m tools.benchmark
python -m tools.benchmark --backends=jax --models=ViTB16,ViTL16 \
    --batch_sizes=1,8,32 --image_sizes=224,384 --rounds=9

Measures keras_vit, keras-hub, timm, transformers and torchvision, as far as
they are installed and have the model: `predict_on_batch`, `train_on_batch`
with AdamW, for PyTorch's libraries a plain loop. Each backend is one process,
in which the implementations are called in turns; a ratio is the speed of
keras_vit divided by that of the other in the same round. Memory is measured
where --implementations names one alone. Writes BACKEND.json, benchmark.md and
benchmark.png to --output. Cases that are measured again
replace earlier ones, so that a long table can be made in parts.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys

from keras_vit_cli import command
from tools.benchmark import cases

BACKENDS = ("tensorflow", "jax", "torch")


@command.entry
def main(arguments: list[str]) -> int:
    """Measures and writes the tables; returns 0."""
    flags = _parser().parse_args(arguments)
    output = pathlib.Path(flags.output)
    asked = flags.backends or [
        name for name in BACKENDS if importlib.util.find_spec(name)
    ]
    if flags.only_measure:
        # Imports Keras, and with it the backend.
        from tools.benchmark import run

        wanted = cases.combinations(
            flags.models,
            flags.image_sizes,
            flags.batch_sizes,
            flags.tasks,
            flags.precisions,
        )
        path = output / f"{os.environ['KERAS_BACKEND']}.json"
        run.measure_cases(wanted, flags.implementations, flags.rounds, path)
        return 0
    output.mkdir(parents=True, exist_ok=True)
    for backend in asked:
        code = 0
        if not flags.only_report:
            code = subprocess.call(
                [sys.executable, "-m", "tools.benchmark", "--only_measure"]
                + arguments,
                env=os.environ | dict(KERAS_BACKEND=backend),
            )
        if code:
            return code
    from tools.benchmark import tables

    tables.write(output)
    print((output / "benchmark.md").read_text())
    return 0


def _parser():
    parser = command.Parser(
        prog="python -m tools.benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = dict(metavar="A,B,...")
    parser.add_argument(
        "--backends", type=_choices(BACKENDS), default=(), **several
    )
    parser.add_argument(
        "--models", type=_names, default=["ViTB16"], help="constructors"
    )
    parser.add_argument("--image_sizes", type=_numbers, default=[224])
    parser.add_argument("--batch_sizes", type=_numbers, default=[8])
    for name, known in (
        ("tasks", cases.TASKS),
        ("precisions", cases.PRECISIONS),
        ("implementations", cases.IMPLEMENTATIONS),
    ):
        parser.add_argument(
            f"--{name}",
            type=_choices(known),
            default=list(known),
            help=f"of {', '.join(known)}",
            **several,
        )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", default="runs/benchmark")
    parser.add_argument(
        "--only_report",
        action="store_true",
        help="summarise the files of --output again",
    )
    # The process of one backend.
    parser.add_argument(
        "--only_measure", action="store_true", help=argparse.SUPPRESS
    )
    return parser


def _names(text):
    return [name for name in text.split(",") if name]


def _numbers(text):
    return [int(number) for number in text.split(",")]


def _choices(known):
    def parse(text):
        found = _names(text)
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"must be of {', '.join(known)}. Received: {name!r}"
                )
        return found

    return parse
