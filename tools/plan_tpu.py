r"""What training will need and cost on a TPU slice, without a TPU.

python -m tools.plan_tpu v3-8
python -m tools.plan_tpu v3-8 \
    --config=recipes/configs/pretrain.py:ViTL16,imagenet21k
python -m tools.plan_tpu v5e-256 --config.strategy=fsdp --json
python -m tools.plan_tpu v5e-8 --sweep="batch_size=512,1024; remat=False,True"

Compiles the recipe's own training step with the TPU compiler of libtpu
(pip install -e '.[tpu-plan]') and prints its memory, its work, its
communication and its time. --config and --config.FIELD=VALUE are those of
recipes.pretrain and recipes.finetune; weights are neither read nor fetched.
"""

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import sys
import types

from keras_vit_cli import command
from tools import tpu_compile, tpu_report, tpu_search, tpu_slices

_CONFIGS = pathlib.Path(__file__).parents[1] / "recipes" / "configs"
DEFAULT_CONFIG = f"{_CONFIGS / 'pretrain.py'}:ViTB16,imagenet21k"
# Data sets that need not be there: images to train on, classes, and their
# size in pixels where all have the same. JFT: 303M images (section 4.1 of the
# paper) of 18,291 classes (Kolesnikov et al. 2020, 1912.11370, section 3.1).
DATASETS = {
    "imagenet2012": (1_281_167, 1000, 0),
    "imagenet21k": (14_197_122, 21_843, 0),
    "jft300m": (303_000_000, 18_291, 0),
    "cifar10": (50_000, 10, 32),
    "cifar100": (50_000, 100, 32),
    "oxford_flowers102": (1_020, 102, 0),
    "oxford_iiit_pet": (3_680, 37, 0),
}
# Table 2 of the paper: TPUv3-core-days of pre-training. Its other rows are
# BiT-L (ResNet152x4), 9900, and Noisy Student (EfficientNet-L2), 12300.
PAPER = {
    ("ViTH14", "jft300m"): 2500,
    ("ViTL16", "jft300m"): 680,
    ("ViTL16", "imagenet21k"): 230,
}


@command.entry
def main(arguments: list[str]) -> int:
    """Prints a plan; returns 1 if there is none."""
    parser = command.Parser(
        prog="python -m tools.plan_tpu",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("slice", help="v3-8, v3-2048, v5e-256, v5p-8, ...")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument(
        "--sweep",
        metavar="FIELDS",
        help="a table over fields of the config:\n"
        "--sweep='batch_size=1024,2048; remat=False,True; strategy=data,fsdp'",
    )
    parser.add_argument(
        "--no-search",
        action="store_true",
        help="do not look for the largest batch",
    )
    flags, rest = parser.parse_known_args(arguments)
    tpu = tpu_slices.find(flags.slice)
    tpu_slices.prepare(tpu)
    config = _config(rest)
    if flags.sweep:
        return _sweep(config, tpu, flags)
    plan = make(config, tpu, search=not flags.no_search)
    if flags.json:
        print(json.dumps(tpu_report.as_json(plan), indent=1))
    else:
        print(tpu_report.report(plan))
    return 0


def make(
    config, tpu: tpu_slices.Slice, *, search: bool, split: bool = True
) -> tpu_report.Plan:
    """Returns the plan of a config.

    Args:
        config: A recipes.experiment.Config.
        tpu: The slice, for which `tpu_slices.prepare` was called.
        search: Whether to look for the largest batch.
        split: Whether to compute a batch that does not fit in parts.

    Raises:
        ValueError: If the config cannot be trained on the slice.
    """
    info = _dataset_info(config)
    step, built = _step_and_experiment(config, info, tpu)
    _say(f"Compiling {config.model} for {tpu.name}: seconds to minutes.")
    plan = tpu_report.Plan(
        tpu=tpu,
        **{
            name: getattr(config, name)
            for name in ("model", "dataset", "strategy", "remat", "batch_size")
        },
        model_parallel=tpu.num_devices // step.num_replicas,
        micro_batches=config.micro_batches,
        num_replicas=step.num_replicas,
        total_steps=built.total_steps,
        paper_core_days=PAPER.get((config.model, config.dataset)),
    )
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        largest = None
        if search:
            largest = other.submit(_largest, config, info, tpu, step)
        plan = _compile(plan, config, info, step, split)
        if largest is not None:
            plan = dataclasses.replace(plan, largest=largest.result())
    return plan


def experiment_cost(
    steps: int, seconds: float, cores: int
) -> tuple[float, float]:
    """Returns days and core-days of so many steps of so many seconds."""
    days = steps * seconds / 86_400
    return days, days * cores


def settings(sweep: str, config) -> list[dict]:
    """Returns the combinations of "field=value,value; field=value".

    Raises:
        ValueError: If that is not what `sweep` is.
    """
    fields = {}
    for part in filter(str.strip, sweep.split(";")):
        name, equals, values = part.partition("=")
        name = {"batch": "batch_size"}.get(name.strip(), name.strip())
        value = getattr(config, name, None)
        if not equals or not isinstance(value, bool | int | float | str):
            raise ValueError(
                "--sweep must be fields of the config and their values, such "
                "as 'batch_size=1024,2048; remat=False,True'. "
                f"Received: {part.strip()!r}"
            )
        fields[name] = [_as(type(value), v.strip()) for v in values.split(",")]
    return [
        dict(zip(fields, values, strict=True))
        for values in itertools.product(*fields.values())
    ]


def _as(kind, text):
    if kind is str:
        return text
    try:
        value = ast.literal_eval(text)
        return kind({"0": False, "1": True}.get(text, value))
    except (ValueError, SyntaxError):
        raise ValueError(
            f"--sweep must give values of type {kind.__name__}. "
            f"Received: {text!r}"
        ) from None


def _config(arguments):
    """Reads --config and its overrides as the recipes do."""
    from recipes import cli, experiment

    config, *_ = cli.parse(["plan_tpu", *arguments], DEFAULT_CONFIG)
    experiment.check(config)
    return dataclasses.replace(config, weights="")


def _dataset_info(config):
    """Returns what the experiment must know of its data set."""
    from recipes import inputs

    if config.dataset not in DATASETS:
        return inputs.dataset_info(config, inputs.load(config)[0])
    images, classes, side = DATASETS[config.dataset]
    source = types.SimpleNamespace(
        image_shape=(side, side, 3) if side else None,
        class_names=tuple(map(str, range(classes))),
        num_examples=images,
        multi_label=False,
        is_video=False,
    )
    return inputs.dataset_info(config, source)


def _step_and_experiment(config, info, tpu):
    import keras

    from keras_vit import distribution
    from keras_vit.distribution import layouts
    from recipes import training_step

    devices = tpu_slices.devices(tpu)
    model_parallel = 1
    if "tensor" in config.strategy:
        hosts = collections.Counter(d.process_index for d in devices)
        model_parallel = config.model_parallel or min(hosts.values())
    layout = layouts.distribution(config.strategy, devices, model_parallel)
    keras.config.set_dtype_policy(config.dtype_policy)
    built = []

    def build():
        built.append(training_step.build(config, info, "tpu"))
        return built[0].trainer

    step = tpu_compile.Step(build, layout, tpu, config.micro_batches)
    distribution.check_model(layout, built[0].model)
    distribution.Devices(
        kind="tpu",
        num_devices=tpu.num_devices,
        num_replicas=step.num_replicas,
    ).check_batch(config.batch_size, config.micro_batches)
    return step, built[0]


def _step(config, info, tpu):
    return _step_and_experiment(config, info, tpu)[0]


def _largest(config, info, tpu, step):
    """Returns the most images that fit at once on each replica."""
    replicas = step.num_replicas
    config = dataclasses.replace(config, micro_batches=1, batch_size=replicas)
    make_step = functools.partial(_step, config, info, tpu)
    with contextlib.closing(tpu_search.Asker(make_step)) as asker:
        return tpu_search.largest(
            lambda images: asker(images * replicas),
            start=max(
                1,
                tpu.hbm
                * tpu.num_devices
                // replicas
                // step.least_bytes_per_image,
            ),
            fixed=step.state_bytes,
        )


def _compile(plan, config, info, step, split):
    """Adds what the compiler says, in parts if it does not fit otherwise."""
    try:
        return _with_program(plan, step.compile(plan.batch_size))
    except tpu_compile.DoesNotFit as error:
        plan = dataclasses.replace(
            plan,
            fits=False,
            needs=error.needs,
            available=error.available,
        )
    each = plan.batch_size // plan.num_replicas
    parts = [k for k in range(2, each + 1) if each % k == 0]
    fixed = step.state_bytes
    for k in parts if split else ():
        part = fixed + (plan.needs - fixed) * config.micro_batches / k
        # Not to be hoped for, even if the compiler saves what it can.
        hopeless = plan.available and part > 1.5 * plan.available
        if k <= config.micro_batches or hopeless:
            continue
        _say(f"It does not fit; compiling with micro_batches={k}.")
        split_config = dataclasses.replace(config, micro_batches=k)
        try:
            program = _step(split_config, info, plan.tpu).compile(
                plan.batch_size
            )
        except tpu_compile.DoesNotFit:
            continue
        return _with_program(
            dataclasses.replace(plan, micro_batches=k), program
        )
    return plan


def _with_program(plan, program):
    roofline = tpu_compile.roofline(program, plan.tpu)
    seconds = program.compiler_seconds or roofline["step"]
    days, core_days = experiment_cost(
        plan.total_steps, seconds, plan.tpu.num_cores
    )
    return dataclasses.replace(
        plan,
        program=program,
        hbm=program.hbm,
        roofline=roofline,
        seconds=seconds,
        seconds_from="compiler" if program.compiler_seconds else "roofline",
        images_per_second=plan.batch_size / seconds,
        days=days,
        core_days=core_days,
    )


def _sweep(config, tpu, flags):
    """Prints a row for each combination."""
    rows = []
    for changes in settings(flags.sweep, config):
        changed = dataclasses.replace(config, **changes)
        plan = make(changed, tpu, search=False, split=False)
        rows.append((changes, plan))
        if not flags.json:
            if len(rows) == 1:
                print(tpu_report.head(list(changes)))
            print(tpu_report.row(list(changes.values()), plan), flush=True)
    if flags.json:
        table = [dict(changes=c, plan=tpu_report.as_json(p)) for c, p in rows]
        print(json.dumps(table, indent=1))
    return 0


def _say(text):
    """Prints to stderr what takes long, apart from the result."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
