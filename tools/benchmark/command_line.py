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
import dataclasses
import importlib.util
import itertools
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
    """Measure and write the tables; return 0."""
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
    """Yield the arguments of each process of a backend."""
    if "speed" in flags.measures:
        yield ["--process=speed"]
    if "memory" not in flags.measures:
        return
    for case in _wanted(flags):
        for name in flags.implementations:
            if importlib.util.find_spec(cases.library(name)):
                one = dataclasses.asdict(case) | dict(implementation=name)
                options = [f"--{key}s={value}" for key, value in one.items()]
                yield ["--process=memory", *options]


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
    """Return a case for each combination."""
    combinations = itertools.product(
        *(flags.models, flags.image_sizes, flags.batch_sizes),
        *(flags.tasks, flags.precisions),
    )
    return [cases.Case(*each) for each in combinations]


def _parser():
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    several: dict = dict(metavar="A,B,...")
    add("--backends", type=_choices(BACKENDS), default=(), **several)
    add("--models", type=_names, default=["ViTB16"], help="constructors")
    add("--image_sizes", type=_numbers, default=[224])
    add("--batch_sizes", type=_numbers, default=[8])
    for name, known in (
        ("tasks", cases.TASKS),
        ("precisions", cases.PRECISIONS),
        ("implementations", cases.IMPLEMENTATIONS),
        ("measures", MEASURES),
    ):
        given = dict(type=_choices(known), default=list(known), **several)
        add(f"--{name}", help=f"of {', '.join(known)}", **given)
    add("--rounds", type=int, default=9)
    add("--output", default="runs/benchmark")
    again = "summarise the files of --output again"
    add("--only_report", action="store_true", help=again)
    add("--write", action="store_true", help="update docs/benchmarks.md")
    # What a process of one backend measures.
    add("--process", choices=MEASURES, help=argparse.SUPPRESS)
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
