r"""What training will need and cost on a TPU slice, without a TPU.

python -m tools.plan_tpu v3-8
python -m tools.plan_tpu v3-8 --config=recipes/configs/pretrain.py:ViTL16,\
imagenet21k
python -m tools.plan_tpu v5e-256 --config.strategy=fsdp --json
python -m tools.plan_tpu v5e-8 --sweep="batch_size=512,1024; remat=False,True"

Compiles the recipe's own training step with the TPU compiler of libtpu
(pip install 'keras_vit[tpu-plan]') and prints its memory, its work, its
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
import sys
import types

from tools import tpu_compile, tpu_search, tpu_slices

DEFAULT_CONFIG = "recipes/configs/pretrain.py:ViTB16,imagenet21k"
# Data sets that need not be there: images to train on, classes, and their
# size in pixels where all have the same. ImageNet-21k as released in 2011;
# JFT-300M as in Kolesnikov et al. 2020 (1912.11370), section 3.1.
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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A training step on a slice, and the experiment it is a step of.

    Attributes:
        tpu: The slice.
        model, dataset, strategy, remat, batch_size: Of the config.
        model_parallel: Devices that share a block.
        micro_batches: Parts of a batch; more than the config's where only so
            it fits.
        needs, available: Bytes on each device for the batch as the config has
            it, if it does not fit; or 0.
        program: What the compiler says; None if nothing fits.
        hbm: Bytes in use on each device.
        roofline: Seconds by the chip's peaks.
        seconds: Of a step.
        seconds_from: "compiler" or "roofline".
        images_per_second: Of the slice.
        largest: Images on each replica, as many as fit at once; None if not
            searched.
        num_replicas: Devices, or groups of devices that share a block.
        total_steps: Of the experiment.
        days: Of the experiment.
        core_days: Days times TensorCores.
        paper_core_days: What the paper tells, on TPUv3; or None.
    """

    tpu: tpu_slices.Slice
    model: str
    dataset: str
    strategy: str
    remat: bool
    batch_size: int
    model_parallel: int
    micro_batches: int
    needs: int = 0
    available: int = 0
    program: tpu_compile.Program | None = None
    hbm: int = 0
    roofline: dict[str, float] | None = None
    seconds: float = 0.0
    seconds_from: str = ""
    images_per_second: float = 0.0
    largest: int | None = None
    num_replicas: int
    total_steps: int
    days: float = 0.0
    core_days: float = 0.0
    paper_core_days: float | None = None


def main(arguments: list[str]) -> int:
    """Prints a plan; returns 1 if there is none."""
    parser = argparse.ArgumentParser(
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
    try:
        tpu = tpu_slices.find(flags.slice)
        tpu_slices.prepare(tpu)
        config = _config(rest)
        if flags.sweep:
            return _sweep(config, tpu, flags)
        plan = make(config, tpu, search=not flags.no_search)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(as_json(plan), indent=1) if flags.json else report(plan))
    return 0


def make(config, tpu: tpu_slices.Slice, *, search: bool, split: bool = True):
    """Returns the plan of a config.

    Args:
        config: A recipes.experiment.Config.
        tpu: The slice, for which `tpu_slices.prepare` was called.
        search: Whether to look for the largest batch.
        split: Whether to compute a batch that does not fit in parts.

    Raises:
        ValueError: If the config cannot be trained on the slice.
    """
    facts = _facts(config)
    step, built = _step_and_experiment(config, facts, tpu)
    plan = Plan(
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
            largest = other.submit(_largest, config, facts, tpu, step)
        plan = _compile(plan, config, facts, step, split)
        if largest is not None:
            plan = dataclasses.replace(plan, largest=largest.result())
    return plan


def as_json(plan: Plan) -> dict:
    """Returns a plan as numbers, strings, lists and dictionaries."""
    return dataclasses.asdict(plan)


def report(plan: Plan) -> str:
    """Returns a plan as text."""
    tpu = plan.tpu
    each = plan.batch_size // plan.num_replicas
    group = plan.tpu.num_devices // plan.num_replicas
    unit = "device" if group == 1 else f"group of {group} devices"
    lines = [
        f"{plan.model} on {plan.dataset}, {plan.batch_size} images a step, "
        f"strategy={plan.strategy!r}, remat={plan.remat}",
        f"{tpu.name}: {tpu.num_chips} chips ({tpu.topology}), "
        f"{tpu.num_cores} TensorCores, {tpu.num_devices} JAX devices",
        "",
    ]
    if plan.needs or plan.available:
        lines.append(
            f"{each} images at once on each {unit} do not fit: they need "
            f"{_gib(plan.needs)} of {_gib(plan.available)}."
        )
        lines.append(
            f"Planned with --config.micro_batches={plan.micro_batches}, "
            "which trains the same."
            if plan.program
            else "Nor do they in parts."
        )
        lines.append("")
    rows = []
    if plan.largest is not None:
        rows.append(
            (
                "largest batch",
                f"{plan.largest} images at once on each {unit}, "
                f"{plan.largest * plan.num_replicas} on all",
            )
        )
    if plan.program:
        rows = [*_step_rows(plan), *rows, *_experiment_rows(plan)]
    return "\n".join(
        lines + [f"{name:<18} {text}".rstrip() for name, text in rows]
    )


def experiment_cost(steps: int, seconds: float, cores: int):
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


def _facts(config):
    """Returns what the experiment must know of its data set."""
    from keras_vit import data
    from recipes import experiment

    if config.dataset in DATASETS:
        images, classes, side = DATASETS[config.dataset]
        source = types.SimpleNamespace(
            image_shape=(side, side, 3) if side else None,
            class_names=tuple(map(str, range(classes))),
            num_examples=images,
        )
    else:
        source, _ = data.load(
            config.dataset,
            train_split=config.train_split,
            eval_split=config.eval_split,
            eval_fraction=config.eval_fraction,
            seed=config.seed,
            data_dir=config.data_dir,
            manual_dir=config.manual_dir,
            try_gcs=config.try_gcs,
            broken=config.broken,
        )
    return experiment.Facts(
        image_size=experiment.image_size(config, source),
        channels=config.channels
        or (source.image_shape[-1] if source.image_shape else 3),
        class_names=source.class_names,
        train_images=source.num_examples,
    )


def _step_and_experiment(config, facts, tpu):
    import keras

    from keras_vit import distribution
    from keras_vit.distribution import layouts
    from recipes import experiment

    devices = tpu_slices.devices(tpu)
    model_parallel = 1
    if "tensor" in config.strategy:
        hosts = collections.Counter(d.process_index for d in devices)
        model_parallel = config.model_parallel or min(hosts.values())
    layout = layouts.distribution(config.strategy, devices, model_parallel)
    keras.config.set_dtype_policy(config.dtype_policy)
    built = []

    def build():
        built.append(experiment.build(config, facts, "tpu"))
        return built[0].trainer

    step = tpu_compile.Step(build, layout, tpu, config.micro_batches)
    distribution.Devices(
        kind="tpu",
        num_devices=tpu.num_devices,
        num_replicas=step.num_replicas,
    ).check_batch(config.batch_size, config.micro_batches)
    return step, built[0]


def _step(config, facts, tpu):
    return _step_and_experiment(config, facts, tpu)[0]


def _largest(config, facts, tpu, step):
    """Returns the most images that fit at once on each replica."""
    replicas = step.num_replicas
    config = dataclasses.replace(config, micro_batches=1, batch_size=replicas)
    make_step = functools.partial(_step, config, facts, tpu)
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


def _compile(plan, config, facts, step, split):
    """Adds what the compiler says, in parts if it does not fit otherwise."""
    try:
        return _with_program(plan, step.compile(plan.batch_size))
    except tpu_compile.DoesNotFit as error:
        plan = dataclasses.replace(
            plan, needs=error.needs, available=error.available
        )
    each = plan.batch_size // plan.num_replicas
    parts = [k for k in range(2, each + 1) if each % k == 0]
    fixed = step.state_bytes
    for k in parts if split else ():
        part = fixed + (plan.needs - fixed) * config.micro_batches / k
        # Not to be hoped for, even if the compiler saves what it can.
        if k <= config.micro_batches or part > 1.5 * plan.available:
            continue
        split_config = dataclasses.replace(config, micro_batches=k)
        try:
            program = _step(split_config, facts, plan.tpu).compile(
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


def _step_rows(plan):
    """What a step needs and takes."""
    program, roofline = plan.program, plan.roofline
    rows = [
        (
            "HBM per device",
            f"{_gib(plan.hbm)} of {_gib(plan.tpu.hbm)}: variables and batch "
            f"{_gib(program.arguments)}, between {_gib(program.temporaries)}, "
            f"program {_gib(program.code)}",
        ),
        (
            "work per device",
            f"{program.flops / 1e12:.4g} TFLOP, {program.bytes / 1e9:.4g} GB "
            "read and written in a step",
        ),
    ]
    for c in program.collectives:
        if c.of_scalars:
            continue
        share = c.values / program.parameters
        rows.append(
            (
                c.kind,
                f"{c.count}, {c.bytes / 1e6:.4g} MB in a step among "
                f"{c.group} devices, {share:.1%} as many values as parameters",
            )
        )
    parts = ", ".join(
        f"{name} {_seconds(roofline[name])}"
        for name in ("compute", "memory", "communication")
    )
    source = "the compiler's estimate"
    if plan.seconds_from == "roofline":
        source = "by the chip's peaks; the compiler has no estimate"
    rows += [
        ("step", f"{_seconds(plan.seconds)}, {source}"),
        ("at the peaks", f"{_seconds(roofline['step'])}: {parts}"),
        ("images per second", f"{plan.images_per_second:,.0f}"),
    ]
    return rows


def _experiment_rows(plan):
    """What all steps take."""
    text = (
        f"{plan.total_steps:,} steps: {plan.days:.3g} days, "
        f"{plan.core_days:.3g} TPU-core-days"
    )
    if plan.paper_core_days:
        text += f"; the paper's Table 2: {plan.paper_core_days} of TPUv3"
    return [("experiment", text)]


def _sweep(config, tpu, flags):
    """Prints a row for each combination."""
    rows = []
    for changes in settings(flags.sweep, config):
        changed = dataclasses.replace(config, **changes)
        plan = make(changed, tpu, search=False, split=False)
        rows.append((changes, plan))
        if not flags.json:
            if len(rows) == 1:
                names = [*changes, "HBM GiB", "step", "images/s"]
                names += ["days", "core-days"]
                print("".join(f"{name:>16}" for name in names))
            print("".join(f"{cell:>16}" for cell in _row(changes, plan)))
            sys.stdout.flush()
    if flags.json:
        table = [dict(changes=c, plan=as_json(p)) for c, p in rows]
        print(json.dumps(table, indent=1))
    return 0


def _row(changes, plan):
    cells = list(map(str, changes.values()))
    if not plan.program:
        needs = f"{plan.needs / 2**30:.1f}" if plan.needs else "too much"
        return [*cells, f"needs {needs}", "-", "-", "-", "-"]
    return [
        *cells,
        f"{plan.hbm / 2**30:.2f}",
        _seconds(plan.seconds),
        f"{plan.images_per_second:,.0f}",
        f"{plan.days:.3g}",
        f"{plan.core_days:.3g}",
    ]


def _gib(size):
    return f"{size / 2**30:.2f} GiB"


def _seconds(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
