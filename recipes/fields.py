"""The fields of a config by path, such as "optim.base_lr", and earlier names.

Imports no library, so that tools may read the config of a run quickly.
"""

import copy
import dataclasses
import operator
from collections.abc import Iterable, Mapping

# Fields, and groups of them, that specify where a run takes place, not what it
# computes: they may differ when it resumes.
RUNTIME = (
    "data.cache",
    "run.cluster",
    "run.devices",
    "run.keep_checkpoints",
    "run.model_parallel",
    "run.restart",
    "run.steps_per_execution",
    "run.strategy",
)

# Version 0.2 had flat configs: its names, by where they are now.
_MOVED = {
    "model": "architecture weights tune lora_rank head_bias dtype_policy remat "
    "include_top layer",
    "data": "dataset train_split eval_split eval_fraction split_seed data_dir "
    "manual_dir try_gcs broken exclude dev_fraction shots train_images cache "
    "image_size channels num_frames frame_step frame_rate crop min_area pad "
    "resize eval_resize flip augment repeats batch_size max_train_images "
    "num_clips",
    "optim": "loss label_smoothing base_lr momentum weight_decay clip_norm "
    "layer_decay ema_momentum",
    "schedule": "total_steps num_epochs warmup_steps final_lr decay_at",
    "evaluation": "fewshot_dataset fewshot_shots fewshot_every",
    "run": "micro_batches checkpoint_every keep_checkpoints restart devices "
    "strategy model_parallel steps_per_execution cluster",
}
MOVED = {
    "model": "model.name",
    "optimizer": "optim.name",
    "schedule": "schedule.name",
    "eval_every": "evaluation.every",
    "trained": "model.tune",
} | {
    name: f"{k}.{name}" for k, names in _MOVED.items() for name in names.split()
}

# Fields of the architecture, as in keras_vit/_earlier_names.py.
RENAMED = {
    "classifier": "pooling",
    "num_units": "depths",
    "resnet_units": "resnet_depths",
    "heads": "num_heads",
    "channels_mlp_dim": "mlp_dim",
    "channel_expansion_factor": "mlp_ratio",
    "token_expansion_factor": "tokens_mlp_ratio",
    "layer_scale_init": "layer_scale",
}


def current(path: str) -> str:
    """Return today's path of a field; that of a field of today is the same.

    Args:
        path: The path of a field in a config of this or an earlier version.
    """
    name, dot, rest = path.partition(".")
    if not dot or name in ("architecture", "cluster"):
        path = MOVED.get(name, name) + dot + rest
    parent, _, name = path.rpartition(".")
    if parent == "model.architecture":
        return f"{parent}.{RENAMED.get(name, name)}"
    return path


def stored(content: Mapping) -> dict:
    """Return path -> value of a config that a run has written.

    Args:
        content: What config.json has under "config", of this or an earlier
            version.
    """
    values = flat(content)
    earlier = [path for path in values if path.rpartition(".")[2] in RENAMED]
    changed = {path: values.pop(path) for path in earlier}
    changed = {path: value for path, value in changed.items() if value}
    return {current(path): v for path, v in (values | changed).items()}


def flat(tree: Mapping, prefix: str = "") -> dict:
    """Return path -> value of nested dictionaries."""
    values = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


def is_of(path: str, names: Iterable[str]) -> bool:
    """Return whether a field is one of some, or in a group of them."""
    return any(f"{path}.".startswith(f"{name}.") for name in names)


def get(config, path: str):
    """Return the value of a field.

    Args:
        path: The path of a field, such as "optim.base_lr".
    """
    return operator.attrgetter(path)(config)


def changed(config, changes: Mapping):
    """Return a copy of a config with other values.

    Args:
        changes: Path -> value, such as {"optim.base_lr": 0.1}.
    """
    config = copy.deepcopy(config)
    for path, value in changes.items():
        parent, _, name = path.rpartition(".")
        holder = get(config, parent) if parent else config
        setattr(holder, name, copy.deepcopy(value))
    return config


def difference(config, other, prefix: str = "") -> dict:
    """Return the changes that turn a config into another."""
    changes = {}
    for field in dataclasses.fields(config):
        here, there = getattr(config, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(here):
            changes |= difference(here, there, f"{prefix}{field.name}.")
        elif here != there:
            changes[prefix + field.name] = there
    return changes


def hint(paths: Iterable[str]) -> str:
    """Return a sentence that gives today's paths of moved fields, or ""."""
    moved = [
        f"{path} is now {current(path)}"
        for path in sorted(paths)
        if current(path) != path
    ]
    return f". {', '.join(moved)}." if moved else ""
