r"""Compares the speed of models with that of other libraries, side by side.

python -m tools.benchmark
python -m tools.benchmark --backends=jax --models=ViTB16,ViTL16 \
    --batch_sizes=1,8,32 --image_sizes=224,384 --rounds=9

Measures keras_vit, keras-hub, timm, transformers and torchvision, as far as
they are installed and have the model: `predict_on_batch`, `train_on_batch`
with AdamW, for PyTorch's libraries a plain loop. Each backend is one process,
in which the implementations are called in turns; a ratio is the speed of
keras_vit divided by that of the other in the same round. The peak of memory is
that of a process of its own for each implementation and case. Writes
BACKEND.json, benchmark.md and benchmark.png to --output. Cases that are
measured again replace earlier ones, so that a long table can be made in parts.
--write puts the tables and the picture into docs/.
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
MEASURES = ("speed", "memory")
DOCS = pathlib.Path(__file__).parents[2] / "docs"


@command.entry
def main(arguments: list[str]) -> int:
    """Measures and writes the tables; returns 0."""
    flags = _parser().parse_args(arguments)
    output = pathlib.Path(flags.output)
    asked = flags.backends or [
        name for name in BACKENDS if importlib.util.find_spec(name)
    ]
    if flags.process:
        _measure(flags, output / f"{os.environ['KERAS_BACKEND']}.json")
        return 0
    output.mkdir(parents=True, exist_ok=True)
    for backend in () if flags.only_report else asked:
        for process in _processes(flags):
            code = subprocess.call(
                [sys.executable, "-m", "tools.benchmark", *arguments, *process],
                env=os.environ | dict(KERAS_BACKEND=backend),
            )
            if code:
                return code
    from tools.benchmark import tables

    tables.write(output)
    if flags.write:
        tables.write_docs(output, DOCS)
    print((output / "benchmark.md").read_text())
    return 0


def _processes(flags):
    """Yields the arguments of each process of a backend."""
    if "speed" in flags.measures:
        yield ["--process=speed"]
    if "memory" not in flags.measures:
        return
    for case in _wanted(flags):
        for name in flags.implementations:
            if importlib.util.find_spec(cases.library(name)):
                yield [
                    "--process=memory",
                    f"--models={case.model}",
                    f"--image_sizes={case.image_size}",
                    f"--batch_sizes={case.batch_size}",
                    f"--tasks={case.task}",
                    f"--precisions={case.precision}",
                    f"--implementations={name}",
                ]


def _measure(flags, path):
    # Imports Keras, and with it the backend.
    from tools.benchmark import run

    if flags.process == "speed":
        run.measure_cases(
            _wanted(flags), flags.implementations, flags.rounds, path
        )
    else:
        (case,), (name,) = _wanted(flags), flags.implementations
        run.measure_memory(case, name, path)


def _wanted(flags):
    return cases.combinations(
        flags.models,
        flags.image_sizes,
        flags.batch_sizes,
        flags.tasks,
        flags.precisions,
    )


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
        ("measures", MEASURES),
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
    parser.add_argument(
        "--write", action="store_true", help="update docs/benchmarks.md"
    )
    # What a process of one backend measures.
    parser.add_argument("--process", choices=MEASURES, help=argparse.SUPPRESS)
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
