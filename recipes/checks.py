"""What the fields of a config may be."""

import dataclasses
import difflib
from typing import Any

import keras_vit
from keras_vit import data
from keras_vit.models import arguments, families
from recipes import choices, experiment, fields, scored

# The values of fields that name one of a few.
ALLOWED = {
    "model.tune": ("all", "head", "lora"),
    "model.dtype_policy": (
        "float32",
        "mixed_bfloat16",
        "mixed_float16",
        "bfloat16",
        "float16",
        "float64",
    ),
    "data.crop": (*data.views.CROPS, "bit"),
    "optim.loss": ("softmax", "sigmoid"),
}
# Numbers are at least 0, but for these.
AT_LEAST_1 = (
    "model.lora_rank",
    "data.batch_size",
    "data.repeats",
    "evaluation.fewshot_every",
    "run.keep_checkpoints",
    "run.micro_batches",
)
ANY_NUMBER = ("model.head_bias", "run.cluster.process_id")
# Exclusive upper bounds; that of the architecture's rates is 1, too.
BELOW = {
    "data.dev_fraction": 1,
    "data.min_area": 1,
    "data.split_seed": 2**32,
    "optim.ema_momentum": 1,
    "optim.label_smoothing": 1,
    "optim.momentum": 1,
    "seed": 2**32,
}
# Field -> the field on which it depends whether that is read, and the values
# with which it is. With others another value than the default is refused.
READ_WITH = {
    "model.lora_rank": ("model.tune", ("lora",)),
    # "none" is also that of tasks of VTAB without the crop of the others.
    "data.min_area": ("data.crop", ("inception", "none")),
    "data.pad": ("data.crop", ("pad", "none")),
    "data.resize": ("data.crop", ("resize", "bit", "none")),
    # A frozen backbone has no rates.
    "optim.layer_decay": ("model.tune", ("all", "lora")),
    "optim.backbone_warmup": ("model.tune", ("all", "lora")),
    "schedule.final_lr": ("schedule.name", ("cosine",)),
    "run.model_parallel": ("run.strategy", ("tensor", "fsdp+tensor")),
}


def check(config: experiment.Config) -> None:
    """Refuse invalid values early, with a clear message."""
    _check_names(config)
    for path, allowed in ALLOWED.items():
        check_choice(path, fields.get(config, path), allowed)
    if not 0 < config.optim.base_lr < float("inf"):
        raise ValueError(
            "`optim.base_lr` must be a positive number. "
            f"Received: optim.base_lr={config.optim.base_lr}"
        )
    _check_numbers(config)
    if config.optim.head_weight_decay and not config.optim.weight_decay:
        raise ValueError(
            "`optim.head_weight_decay` must be given with a positive "
            "`optim.weight_decay`. Received: optim.head_weight_decay="
            f"{config.optim.head_weight_decay}, optim.weight_decay=0"
        )
    _check_schedule(config.schedule)
    _check_read(config)


def _check_read(config):
    """Refuse fields that another one leaves without effect."""
    for path, (other, values) in READ_WITH.items():
        value = fields.get(config, other)
        if value not in values:
            scored.refuse_unused(config, [path], f"a run of {other}={value!r}")
    name = config.optim.name
    if not choices.has_momentum(name):
        kind = f"a run of optim.name={name!r}"
        scored.refuse_unused(config, ["optim.momentum"], kind)
    if not config.evaluation.fewshot_dataset:
        scored.refuse_unused(
            config,
            ("evaluation.fewshot_shots", "evaluation.fewshot_every"),
            "a run without `evaluation.fewshot_dataset`",
        )


def _check_names(config):
    """Refuse an unknown model, optimizer or schedule."""
    if config.model.architecture.pooling == "unpooled":
        raise ValueError(
            "`model.architecture.pooling` must give one answer for an "
            "image, 'token' or 'gap'. Received: 'unpooled'"
        )
    titles = [family.title for family in families.FAMILIES.values()]
    names = [*titles, *keras_vit.list_models()]
    model = config.model.name
    if model not in names:
        near = difflib.get_close_matches(model, names, n=3, cutoff=0.4)
        raise ValueError(
            "`model.name` must be a constructor of keras_vit. Received: "
            f"model.name={model!r}. Nearest names: {near or names}"
        )
    _check_architecture(config.model)
    if config.optim.name not in choices.OPTIMIZERS:
        choices.find_optimizer(config.optim.name)
    if config.schedule.name not in choices.SCHEDULES:
        choices.find_schedule(config.schedule.name)


def _check_architecture(model):
    """Refuse fields that the model does not have."""
    family: Any = families.of(model.name)
    known = {field.name for field in dataclasses.fields(family.config)}
    known |= arguments.KINDS.keys()
    for name, value in dataclasses.asdict(model.architecture).items():
        if value and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ValueError(
                f"`model.architecture.{name}` must be left out for "
                f"model.name={model.name!r}, which has no such field. "
                f"Received: model.architecture.{name}={value!r}"
                + "".join(f". Did you mean {each!r}?" for each in near)
            )


def _check_numbers(config):
    for path, value in fields.flat(dataclasses.asdict(config)).items():
        is_architecture = path.startswith("model.architecture.")
        high = BELOW.get(path)
        if is_architecture and path.endswith("_rate"):
            high = 1
        if isinstance(value, int | float) and path not in ANY_NUMBER:
            check_range(path, value, int(path in AT_LEAST_1), high)
        elif is_architecture and isinstance(value, tuple):
            if not all(units > 0 for units in value):
                raise ValueError(
                    f"`{path}` must be positive numbers. Received: "
                    f"{path}={value}"
                )


def _check_schedule(schedule):
    if not all(0 < share < 1 for share in schedule.decay_at):
        raise ValueError(
            "`schedule.decay_at` must be shares of all steps, above 0 and "
            f"below 1. Received: schedule.decay_at={schedule.decay_at}"
        )
    if bool(schedule.decay_at) != (schedule.name == "step"):
        raise ValueError(
            "`schedule.decay_at` must be given with schedule.name='step', and "
            "with no other. Received: schedule.decay_at="
            f"{schedule.decay_at}, schedule.name={schedule.name!r}"
        )
    if not schedule.total_steps and not schedule.num_epochs:
        raise ValueError(
            "`schedule.total_steps` or `schedule.num_epochs` must be positive. "
            "Received: both 0"
        )


def check_choice(name: str, value, choices: tuple) -> None:
    """Refuse a value that is none of some."""
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {choices}. Received: {name}={value!r}"
        )


def check_range(name: str, value, low, high=None) -> None:
    """Refuse a number outside of a range.

    Args:
        high: What the number must be below; None is no limit.
    """
    if not low <= value or (high is not None and value >= high):
        raise ValueError(
            f"`{name}` must be at least {low}"
            + ("" if high is None else f" and below {high}")
            + f". Received: {name}={value}"
        )
