r"""Prints the costs of the MViT paper's ablations.

python -m tools.mvit_ablations
python -m tools.mvit_ablations v5p-8 --clips=4
python -m tools.mvit_ablations --no_memory

Parameters and multiply-accumulates per clip are counted in the models, with the
400 classes of Kinetics-400. They are printed beside those of the authors' code
and, if the paper (Fan et al. 2021, 2104.11227) has the row, beside the paper's.
The depths of the stages and the sizes of MViT-S, for which the authors released
no config, are from memory.
Peak memory is that of a training step (AdamW, bfloat16) on each device of a
slice, as planned by the TPU compiler of libtpu (pip install -r
requirements/tpu-plan.txt). This takes several minutes per row; --no_memory
leaves it out. For a step that does not fit, the memory that it needs is printed
after ">".
"""

import functools
import sys
import typing

from keras_vit_cli import command
from tools import counts
from tools.plan_tpu import compiler, slices

CLASSES = 400
AUTHORS = "authors' code"


class Row(typing.NamedTuple):
    """A model of a table, made by a constructor with some `changes`.

    `authors` are parameters of the authors' code, None if they were not
    counted, and billions of its multiply-accumulates. `paper` are published
    millions of parameters and billions of multiply-accumulates.
    """

    name: str
    constructor: str
    changes: dict
    authors: tuple[int | None, float] | None
    paper: tuple[float, float] | None = None


BASE = Row("MViT-B 16x4", "MViTB16x4", {}, (36_610_672, 70.60), (36.6, 70.5))


def _base(name, authors, **changes):
    return Row(name, BASE.constructor, changes, authors)


SMALL = Row(
    "MViT-S 16x4",
    "MViT",
    dict(
        input_shape=(16, 224, 224, 3),
        depths=(3, 7, 6),
        hidden_sizes=(128, 256, 512),
        num_heads=(1, 2, 4),
        cube_size=(3, 8, 8),
        cube_stride=(2, 8, 8),
        pooling_size=(3, 3, 3),
        key_value_stride=(1, 4, 4),
    ),
    None,
    (26.1, 32.9),
)
# Blocks of MViT-B in each stage, 16 in all.
STAGES = ((2, 6, 6, 2), (2, 4, 6, 4), (2, 4, 8, 2), (2, 2, 8, 4), (2, 2, 10, 2))

# Without a pooling_size windows follow the strides: keys have none.
NO_WINDOWS: dict = dict(pooling_size=None)
TABLES = {
    "key-value strides": (
        _base("none", (None, 280.0), key_value_stride=(1, 1, 1), **NO_WINDOWS),
        _base("(1, 2, 2), adaptive", (None, 190.3), key_value_stride=(1, 2, 2)),
        _base("(1, 4, 4), adaptive", (None, 110.7), key_value_stride=(1, 4, 4)),
        _base("(2, 4, 4), adaptive", (None, 83.3), key_value_stride=(2, 4, 4)),
        BASE._replace(name="(1, 8, 8), adaptive"),
        _base("(2, 8, 8), adaptive", (None, 63.3), key_value_stride=(2, 8, 8)),
        _base("(1, 4, 4)", (None, 70.4), key_value_stride=((1, 4, 4),) * 4),
        _base("(1, 8, 8)", (None, 59.7), key_value_stride=((1, 8, 8),) * 4),
    ),
    "blocks of the stages": (
        *(
            _base(", ".join(map(str, depths)), None, depths=depths)
            for depths in STAGES
        ),
        BASE._replace(name="1, 2, 11, 2"),
        SMALL,
    ),
    "pooling function": (
        _base("max", (36_513_232, 70.33), pooling_mode="max"),
        _base("average", (36_513_232, 70.33), pooling_mode="avg"),
        BASE._replace(name="convolution"),
    ),
    "positions": (
        _base("none", (36_308_752, 70.60), position_embedding="none"),
        _base("joint", (38_717_296, 70.60), position_embedding="joint"),
        BASE._replace(name="separate"),
    ),
    "two scales in ViT-B": (
        Row("one", "VideoViTB16", {}, (86_112_400, 179.56), (87.2, 180)),
        # The paper states "-38 %", and no number of parameters.
        Row(
            "two",
            "VideoViTB16",
            dict(depths=(6, 6), hidden_sizes=(768, 768), num_heads=(12, 12))
            | dict(pooling_mode="conv", query_stride=(1, 2, 2)),
            (None, 111.2),
        ),
    ),
    "input sampling, T x tau": (
        BASE._replace(name="16 x 4"),
        Row("32 x 3", "MViTB32x3", {}, (36_611_440, 169.96), (36.6, 170)),
        Row("64 x 3", "MViTB64x3", {}, (36_612_976, 455.06), (36.6, 455)),
    ),
}


@command.entry
def main(arguments: list[str]) -> int:
    """Print the tables."""
    parser = command.Parser(description=__doc__)
    add, count = parser.add_argument, command.count
    add("slice", nargs="?", default="v5p-8")
    clips = "of a training step, each device"
    add("--clips", type=count, default=1, help=clips)
    add("--no_memory", action="store_true", help="count, and compile nothing")
    flags = parser.parse_args(arguments)
    memory = None
    if not flags.no_memory:
        tpu = slices.prepare(flags.slice)
        memory = functools.partial(peak_memory, tpu=tpu, clips=flags.clips)
    return print_tables(TABLES, memory)


def print_tables(tables: dict[str, tuple[Row, ...]], memory) -> int:
    """Print each row as soon as it is computed; return 0.

    `memory` returns a row's peak memory as text, or is None.
    """
    known = {}  # most tables contain the base model
    for title, rows in tables.items():
        names = ("parameters", "MACs", "memory")
        first = "".join(f"{name:>14}" for name in names)
        print(f"{title:<26}{first}{AUTHORS:>22}{'paper':>22}")
        for row in rows:
            key = (row.constructor, repr(row.changes))
            if key not in known:
                known[key] = (*count(row), memory(row) if memory else "")
            parameters, macs, peak = known[key]
            print(
                f"  {row.name:<24}{parameters:>14,}{macs / 1e9:>12.2f} G"
                f"{peak:>14}{_authors(row):>22}{_paper(row):>22}",
                flush=True,
            )
    return 0


def count(row: Row) -> tuple[int, int]:
    """Return the parameters and multiply-accumulates of a row's model."""
    cost = counts.cost_of(row.constructor, classes=CLASSES, **row.changes)
    return cost.parameters, cost.macs


def peak_memory(row: Row, tpu: slices.Slice, clips: int) -> str:
    """Return the device memory that a training step needs."""
    import keras

    import keras_vit

    def compiled():
        constructor = getattr(keras_vit, row.constructor)
        model = constructor(classes=CLASSES, **row.changes)
        model.compile(
            keras.optimizers.AdamW(),
            keras.losses.CategoricalCrossentropy(from_logits=True),
        )
        return model

    step = compiler.in_bfloat16(compiler.Step, compiled, tpu)
    try:
        program = step.compile(clips * tpu.num_devices)
    except compiler.DoesNotFit as error:
        return f"> {_gib(error.needs)}"
    return _gib(program.hbm)


def _gib(number):
    return f"{number / 2**30:.2f} GiB"


def _authors(row):
    parameters, macs = row.authors or (None, 0)
    counted = f"{parameters:,}, " if parameters else ""
    return f"{counted}{macs:g} G" if row.authors else ""


def _paper(row):
    return "{:g} M, {:g} G".format(*row.paper) if row.paper else ""


if __name__ == "__main__":
    sys.exit(main())
