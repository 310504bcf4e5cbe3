"""Our training step beside another, compiled for the same slice."""

import dataclasses
import functools

from recipes import fields
from tools.plan_tpu import authors, compiler, planner, slices

# Fields of a config that the authors' step has no counterpart of: the value
# with which both steps compute the same.
_SAME = {
    "run.strategy": "data",
    "run.micro_batches": 1,
    "optim.name": "adam",
    "optim.layer_decay": 0.0,
    "optim.backbone_warmup": (),
    "optim.head_weight_decay": 0.0,
    "optim.final_weight_decay": 0.0,
    "optim.ema_momentum": 0.0,
    "model.remat": False,
    "model.tune": "all",
}
_DTYPES = {"mixed_bfloat16": "bfloat16", "float32": "float32"}
# Quantity -> the unit that a report states it in, and its text.
_UNITS = {
    "seconds": (1, "{:.4f} s"),
    "bytes": (1e9, "{:.2f} GB"),
    "cycles": (1e6, "{:.1f} M"),
    "operations": (1e12, "{:.3f} TFLOP"),
    "memory": (2**30, "{:.2f} GiB"),
    "summed": (1e6, "{:.1f} MB"),
    "parameters": (1, "{:,.0f}"),
}
PLAIN = "keras"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two training steps on a slice, of one config.

    `repository` is "big_vision", "vision_transformer", or "keras" for the same
    model without the recipe. `ours` and `theirs` are the compiled programs; the
    bytes needed, if a step does not fit.
    """

    tpu: slices.Slice
    model: str
    dataset: str
    dtype_policy: str
    batch_size: int
    clip_norm: float
    weight_decay: float
    dropout_rate: float
    repository: str
    ours: compiler.Program | int
    theirs: compiler.Program | int


def make(config, tpu: slices.Slice, other: str) -> Comparison:
    """Compile both steps; ValueError if the two cannot be the same.

    `other` is a checkout of the authors' code, or "keras" for our model without
    the recipe.
    """
    different = [k for k, v in _SAME.items() if fields.get(config, k) != v]
    dtype_policy = config.model.dtype_policy
    if dtype_policy not in _DTYPES:
        different.append("model.dtype_policy")
    if different:
        raise ValueError(
            "--compare needs a config that the other step can follow: "
            f"{_SAME} and a model.dtype_policy of {list(_DTYPES)}. Received: "
            + ", ".join(f"{k}={fields.get(config, k)!r}" for k in different)
        )
    # Before minutes of compilation.
    name, module = (PLAIN, None) if other == PLAIN else authors.load(other)
    info = planner.dataset_info(config)
    step, built = planner.make_step(config, info, tpu)
    if other == PLAIN:
        compile_other = functools.partial(_plain_step, built, config, tpu)
    else:
        compile_other = _authors_step(name, module, config, built, info, tpu)
    planner.say(f"Compiling {config.model.name} twice for {tpu.name}: minutes.")
    return Comparison(
        tpu=tpu,
        model=config.model.name,
        dataset=config.data.dataset,
        dtype_policy=dtype_policy,
        batch_size=config.data.batch_size,
        clip_norm=config.optim.clip_norm,
        weight_decay=config.optim.weight_decay,
        dropout_rate=getattr(built.model.architecture, "dropout_rate", 0.0),
        repository=name,
        ours=_or_needs(step.compile, config.data.batch_size),
        theirs=_or_needs(compile_other, config.data.batch_size),
    )


def _plain_step(
    built, config, tpu: slices.Slice, batch_size: int
) -> compiler.Program:
    """Compile the same model as `model.fit` of Keras runs it, data-parallel.

    The optimizer, loss and metric are Keras' own, without the recipe's setup.
    """
    import keras

    described = type(built.model), built.model.get_config()

    def build():
        model = described[0].from_config(described[1])
        model.compile(
            keras.optimizers.AdamW(
                built.schedule,
                weight_decay=config.optim.weight_decay,
                global_clipnorm=config.optim.clip_norm or None,
            ),
            built.trainer.loss,
            metrics=["accuracy"],
        )
        return model

    devices = slices.devices(tpu)
    mesh = keras.distribution.DeviceMesh((len(devices),), ["batch"], devices)
    layout = keras.distribution.DataParallel(device_mesh=mesh)
    return compiler.Step(build, layout, tpu).compile(batch_size)


def _authors_step(name, module, config, built, info, tpu):
    """Return a function of the batch that compiles the authors' step."""
    if built.model.family != "vit":
        raise ValueError(
            f"--compare needs a ViT. Received: model.name={config.model.name!r}"
        )
    settings = authors.Settings(
        architecture=built.model.architecture,
        representation_size=config.model.architecture.representation_size,
        num_classes=len(info.class_names),
        image_shape=built.model.input_shape[1:],
        dtype=_DTYPES[config.model.dtype_policy],
        loss=built.trainer.loss,
        learning_rate=built.schedule,
        weight_decay=config.optim.weight_decay,
        clip_norm=config.optim.clip_norm,
    )
    model = authors.model(name, module, settings)
    return functools.partial(authors.compile_step, model, settings, tpu)


def _or_needs(compile_step, batch_size):
    """Return the program, or the bytes that it needs if it does not fit."""
    try:
        return compile_step(batch_size)
    except compiler.DoesNotFit as error:
        return error.needs


def as_json(found: Comparison) -> dict:
    """Return a comparison as numbers, strings, lists and dictionaries."""
    return dataclasses.asdict(found) | dict(ratios=ratios(found))


def ratios(found: Comparison) -> dict[str, float]:
    """Return ours divided by theirs, for what both have."""
    ours, theirs = _quantities(found.ours), _quantities(found.theirs)
    both = [name for name in ours if ours[name] and theirs.get(name)]
    return {name: ours[name] / theirs[name] for name in both}


def report(found: Comparison) -> str:
    """Return a comparison as text."""
    each = found.batch_size // found.tpu.num_devices
    lines = [
        f"{found.model} on {found.dataset}, {found.batch_size} images a step, "
        f"{each} on each of {found.tpu.num_devices} devices of "
        f"{found.tpu.name}",
        f"Equal: architecture, {found.dtype_policy} with float32 weights, "
        f"AdamW (decay {found.weight_decay:g}), gradient clipped at "
        f"{found.clip_norm:g}, dropout {found.dropout_rate:g}, loss, schedule, "
        "data parallelism.",
        "",
        f"{'':<14}{'ours':>14}{found.repository:>22}{'ratio':>8}",
    ]
    ours, theirs = _quantities(found.ours), _quantities(found.theirs)
    quotients = ratios(found)
    for name in ours | theirs:
        lines.append(
            f"{name:<14}{_cell(name, ours):>14}{_cell(name, theirs):>22}"
            + (f"{quotients[name]:>8.3f}" if name in quotients else "")
        )
    judge = next((n for n in ("seconds", "bytes") if n in quotients), None)
    if judge:
        lines += ["", f"Judged by {judge}: {quotients[judge]:.3f}"]
    return "\n".join(lines)


def _quantities(program):
    """Return the numbers to compare, those of one device."""
    if isinstance(program, int):
        return dict(memory=program)
    return dict(
        seconds=program.compiler_seconds,
        bytes=program.bytes,
        cycles=program.cycles,
        operations=program.flops,
        memory=program.hbm,
        summed=sum(c.bytes for c in program.collectives),
        parameters=program.parameters,
    )


def _cell(name, quantities):
    value = quantities.get(name)
    if value is None:
        return "does not fit"
    if name in ("seconds", "cycles") and not value:
        return "no estimate"
    unit, text = _UNITS[name]
    return text.format(value / unit)
