r"""Plans what training needs and costs on a TPU slice, without a TPU.

python -m tools.plan_tpu v3-8
python -m tools.plan_tpu v3-8 \
    --config=recipes/configs/pretrain.py:ViTL16,imagenet21k
python -m tools.plan_tpu v5e-256 --config.run.strategy=fsdp --json
python -m tools.plan_tpu v5e-8 --sweep="data.batch_size=512,1024"
python -m tools.plan_tpu v3-8 --compare=BIG_VISION --config.data.batch_size=1024

Compiles the training step of the recipe with the TPU compiler of libtpu (pip
install -r requirements/tpu-plan.txt) and prints its memory, operations,
communication and time. --config and --config.FIELD=VALUE are those of
recipes.pretrain, recipes.finetune and recipes.unlabelled; weights are neither
read nor downloaded, but those of a teacher in a file.
"""

import ast
import contextlib
import itertools
import json
import pathlib
import typing

from keras_vit_cli import command
from recipes import fields
from tools.plan_tpu import compare, planner, report, slices

_CONFIGS = pathlib.Path(__file__).parents[2] / "recipes" / "configs"
DEFAULT_CONFIG = f"{_CONFIGS / 'pretrain.py'}:ViTB16,imagenet21k"


@command.entry
def main(arguments: list[str]) -> int:
    """Print a plan or a sweep; return 0."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("slice", help="v3-8, v3-2048, v5e-256, v5p-8, ...")
    add("--json", action="store_true", help="for machines")
    table = "a table over fields of the config:\n"
    table += "--sweep='data.batch_size=1024,2048; model.remat=False,True'"
    add("--sweep", metavar="FIELDS", help=table)
    largest = "do not search for the largest batch"
    add("--no_search", action="store_true", help=largest)
    theirs = "compile the step of the authors' code too, from a checkout of\n"
    theirs += "google-research/big_vision or google-research/vision_transformer"
    theirs += "\nor 'keras', that of the same model in plain Keras"
    add("--compare", metavar="CHECKOUT", help=theirs)
    flags, rest = parser.parse_known_args(arguments)
    tpu = slices.prepare(flags.slice)
    config = _config(rest)
    if flags.sweep:
        return _sweep(config, tpu, flags)
    shown: typing.Any = report
    if flags.compare:
        found, shown = compare.make(config, tpu, flags.compare), compare
    else:
        found = planner.make(config, tpu, search=not flags.no_search)
    if flags.json:
        print(json.dumps(shown.as_json(found), indent=1))
    else:
        print(shown.report(found))
    return 0


def settings(sweep: str, config) -> list[dict]:
    """Return the combinations of "path=value,value; path=value"."""
    found = {}
    for part in filter(str.strip, sweep.split(";")):
        name, equals, values = part.partition("=")
        name, value = name.strip(), None
        with contextlib.suppress(AttributeError):
            value = fields.get(config, name)
        if not equals or not isinstance(value, bool | int | float | str):
            raise ValueError(
                "--sweep must be fields of the config and their values, such "
                "as 'data.batch_size=1024,2048; model.remat=False,True'. "
                f"Received: {part.strip()!r}" + fields.hint([name])
            )
        found[name] = [_as(type(value), v.strip()) for v in values.split(",")]
    return [
        dict(zip(found, values, strict=True))
        for values in itertools.product(*found.values())
    ]


def _as(kind, text):
    if kind is str:
        return text
    try:
        given = ast.literal_eval(text)
        if kind(given) == given:  # neither 1.5 for an integer nor 2 for True
            return kind(given)
    except (TypeError, ValueError, SyntaxError):
        pass
    raise ValueError(
        f"--sweep must give values of type {kind.__name__}. Received: {text!r}"
    )


def _config(arguments):
    """Read --config and its overrides as the recipes do."""
    from recipes import cli  # imports Keras

    config, *_ = cli.parse(["plan_tpu", *arguments], DEFAULT_CONFIG)
    planner.check(config)
    return fields.changed(config, {"model.weights": ""})


def _sweep(config, tpu, flags):
    """Print a row for each combination."""
    rows = []
    for changes in settings(flags.sweep, config):
        changed = fields.changed(config, changes)
        plan = planner.make(changed, tpu, search=False, split=False)
        rows.append((changes, plan))
        if not flags.json:
            if len(rows) == 1:
                print(report.head(list(changes)))
            print(report.row(list(changes.values()), plan), flush=True)
    if flags.json:
        table = [dict(changes=c, plan=report.as_json(p)) for c, p in rows]
        print(json.dumps(table, indent=1))
    return 0
