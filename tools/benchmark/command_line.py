r"""Compares the speed of models with that of other libraries, side by side.

python -m tools.benchmark
python -m tools.benchmark --device=gpu
python -m tools.benchmark --backends=jax --models=ViTB16,ViTL16 \
    --batch_sizes=1,8,32 --image_sizes=224,384 --rounds=9

Measures keras_vit, keras-hub, timm, transformers and torchvision, as far as
they are installed and have the model: `predict_on_batch`, `train_on_batch`
with AdamW, for PyTorch's libraries a plain loop; with JAX also big_vision, the
authors' code, of a checkout in PYTHONPATH. Each backend is one process, in
which the implementations are called in turns; a ratio is the speed of
keras_vit divided by that of the other in the same round. The peak of memory is
that of a process of its own for each implementation and case, and so is the
largest batch, for which --measures=batch doubles batches until memory ends.
--device=gpu takes ViT-S/16 to H/14 in bfloat16 beside timm, eager and compiled.
Writes
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
MEASURES = ("speed", "memory", "batch")
# What an accelerator measures unless other flags are given.
_ACCELERATED = dict(
    models=["ViTS16", "ViTB16", "ViTL16", "ViTH14"],
    batch_sizes=[64],
    precisions=["bfloat16"],
    implementations=[
        "keras_vit",
        "keras_vit_compiled",
        "timm",
        "timm_compiled",
    ],
    measures=list(MEASURES),
)
DEVICES: dict[str, dict] = dict(cpu={}, gpu=_ACCELERATED, tpu=_ACCELERATED)
DOCS = pathlib.Path(__file__).parents[2] / "docs"


@command.entry
def main(arguments: list[str]) -> int:
    """Measure and write the tables; return 0."""
    flags = _parsed(arguments)
    output = pathlib.Path(flags.output)
    if flags.process:
        _measure(flags, output / f"{os.environ['KERAS_BACKEND']}.json")
        return 0
    asked = flags.backends or filter(importlib.util.find_spec, BACKENDS)
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


def _parsed(arguments):
    parser = _parser()
    device = parser.parse_known_args(arguments)[0].device
    parser.set_defaults(**DEVICES.get(device, {}))
    return parser.parse_args(arguments)


def _processes(flags):
    """Yield the arguments of each process of a backend."""
    if "speed" in flags.measures:
        yield ["--process=speed"]
    for measured in MEASURES[1:]:
        if measured not in flags.measures:
            continue
        found = _wanted(flags)
        if measured == "batch":  # whose size is looked for
            found = [dataclasses.replace(case, batch_size=0) for case in found]
        for case, name in itertools.product(
            dict.fromkeys(found), flags.implementations
        ):
            if importlib.util.find_spec(cases.library(name)):
                one = dataclasses.asdict(case) | dict(implementation=name)
                options = [f"--{key}s={value}" for key, value in one.items()]
                yield [f"--process={measured}", *options]


def _measure(flags, path):
    # Imports Keras, and with it the backend.
    from tools.benchmark import measure, run

    if flags.device and measure.device() != flags.device:
        raise ValueError(
            "--device must be the device of the backend. Received: --device="
            f"{flags.device}, where {os.environ['KERAS_BACKEND']} has "
            f"{measure.device()}"
        )
    if flags.process == "speed":
        run.measure_cases(
            _wanted(flags), flags.implementations, flags.rounds, path
        )
    else:
        (case,), (name,) = _wanted(flags), flags.implementations
        run.measure_alone(flags.process, case, name, flags.most_images, path)


def _wanted(flags):
    """Return a case for each combination."""
    sizes = flags.models, flags.image_sizes, flags.batch_sizes
    kinds = flags.tasks, flags.precisions
    return list(
        itertools.starmap(cases.Case, itertools.product(*sizes, *kinds))
    )


def _parser():
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    several = command.several
    metavar = "A,B,..."
    known = several(known=BACKENDS)
    add("--backends", type=known, default=(), metavar=metavar)
    what = "the device that must be there, and its cases"
    add("--device", choices=tuple(DEVICES), help=what)
    add("--models", type=several(), default=["ViTB16"], help="constructors")
    add("--image_sizes", type=several(command.count), default=[224])
    # 0 is the largest that fits.
    add("--batch_sizes", type=several(command.natural), default=[8])
    for name, known, default in (
        ("tasks", cases.TASKS, cases.TASKS),
        ("precisions", cases.PRECISIONS, cases.PRECISIONS),
        ("implementations", cases.IMPLEMENTATIONS, cases.IMPLEMENTATIONS),
        ("measures", MEASURES, MEASURES[:2]),
    ):
        given: dict = dict(default=list(default), metavar=metavar)
        given |= dict(type=several(known=known), help=f"of {', '.join(known)}")
        add(f"--{name}", **given)
    add("--rounds", type=command.count, default=9)
    most = "where the search of the largest batch ends"
    add("--most_images", type=command.count, default=4096, help=most)
    add("--output", default="runs/benchmark")
    again = "summarise the files of --output again"
    add("--only_report", action="store_true", help=again)
    add("--write", action="store_true", help="update docs/benchmarks.md")
    # What a process of one backend measures.
    add("--process", choices=MEASURES, help=argparse.SUPPRESS)
    return parser
