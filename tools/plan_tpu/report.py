"""The plan for a TPU, as numbers and as text."""

import dataclasses

from tools.plan_tpu import compiler, slices


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A training step on a slice, and the cost of the experiment.

    Attributes:
        model_parallel: Devices that share a block.
        micro_batches: Parts of a batch; more than in the config if necessary to
            fit.
        fits: Whether the batch fits with the micro-batches of the config.
        needs, available: Bytes on each device, if it does not fit; 0 if
            unknown.
        program: The compiled program; None if nothing fits.
        hbm: Bytes in use on each device.
        roofline: Seconds by the chip's peaks.
        seconds: Of a step, estimated by `seconds_from`: "compiler" or
            "roofline".
        largest: Largest number of images that fit on each replica; None if not
            searched.
        num_replicas: Devices, or groups of devices that share a block.
        total_steps, days: Of the experiment.
        core_days: Days times TensorCores.
        paper_core_days: Those of the paper, on TPUv3; or None.
    """

    tpu: slices.Slice
    model: str
    dataset: str
    strategy: str
    remat: bool
    batch_size: int
    model_parallel: int
    micro_batches: int
    fits: bool = True
    needs: int = 0
    available: int = 0
    program: compiler.Program | None = None
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


def as_json(plan: Plan) -> dict:
    """Return a plan as numbers, strings, lists and dictionaries."""
    return dataclasses.asdict(plan)


def report(plan: Plan) -> str:
    """Return a plan as text."""
    tpu = plan.tpu
    each = plan.batch_size // plan.num_replicas
    group = plan.tpu.num_devices // plan.num_replicas
    unit = "device" if group == 1 else f"group of {group} devices"
    lines = [
        f"{plan.model} on {plan.dataset}, {_images(plan.batch_size)} a step, "
        f"strategy={plan.strategy!r}, remat={plan.remat}",
        f"{tpu.name}: {tpu.num_chips} chips ({tpu.topology}), "
        f"{tpu.num_cores} TensorCores, {tpu.num_devices} JAX devices",
    ]
    if not plan.fits:
        lines.append(
            f"{_images(each)} on each {unit} would need {_gib(plan.needs)} of "
            f"{_gib(plan.available)}: too much as configured."
        )
        if not plan.program:
            lines.append("No parts of it fit, or the loss takes none.")
    if plan.program and plan.micro_batches > 1:
        lines.append(
            f"Planned with --config.run.micro_batches={plan.micro_batches}, "
            f"{_images(each // plan.micro_batches)} at once, which trains the "
            "same."
        )
    lines.append("")
    rows = _step_rows(plan) if plan.program else []
    if plan.largest is not None:
        largest = f"{_images(plan.largest)} at once on each {unit}"
        everywhere = f"{plan.largest * plan.num_replicas} on all"
        rows.append(("largest batch", f"{largest}, {everywhere}"))
    if plan.program:
        text = f"{plan.total_steps:,} steps: {plan.days:.3g} days, "
        text += f"{plan.core_days:.3g} TPU-core-days"
        if plan.paper_core_days:
            text += f"; the paper's Table 2: {plan.paper_core_days} of TPUv3"
        rows.append(("experiment", text))
    lines += [f"{name:<18} {text}".rstrip() for name, text in rows]
    return "\n".join(lines)


def head(fields: list[str]) -> str:
    """Return the first line of a table of plans, after those of `fields`."""
    names = [*fields, "HBM GiB", "step", "images/s", "days", "core-days"]
    return "".join(f"{name:>16}" for name in names)


def row(values: list, plan: Plan) -> str:
    """Return the line of a plan, after `values`."""
    if plan.program:
        cells = [
            f"{plan.hbm / 2**30:.2f}",
            _seconds(plan.seconds),
            f"{plan.images_per_second:,.0f}",
            f"{plan.days:.3g}",
            f"{plan.core_days:.3g}",
        ]
    else:
        needs = f"{plan.needs / 2**30:.1f}" if plan.needs else "more"
        cells = [f"needs {needs}", *"----"]
    return "".join(f"{cell!s:>16}" for cell in [*values, *cells])


def _step_rows(plan):
    """Return what a step needs and takes."""
    program, roofline = plan.program, plan.roofline
    memory = f"{_gib(plan.hbm)} of {_gib(plan.tpu.hbm)}: variables and batch "
    memory += f"{_gib(program.arguments)}, between {_gib(program.temporaries)}"
    work = f"{program.flops / 1e12:.4g} TFLOP, {program.bytes / 1e9:.4g} GB"
    rows = [
        ("HBM per device", f"{memory}, program {_gib(program.code)}"),
        ("work per device", f"{work} read and written in a step"),
    ]
    for c in program.collectives:
        text = f"{c.count}, {c.bytes / 1e6:.4g} MB in a step among {c.group} "
        text += f"devices, {c.values / program.parameters:.1%} as many values "
        if not c.of_scalars:
            rows.append((c.kind, text + "as parameters"))
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


def _images(count):
    return f"{count} image{'s' * (count != 1)}"


def _gib(size):
    return f"{size / 2**30:.2f} GiB"


def _seconds(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
