"""Finished runs of the recipes, read from their folders."""

import csv
import dataclasses
import json
import pathlib
import re
import sys

from recipes import fields

# Fields of a config that identify the experiment, its machine or its seed; runs
# that only differ in these are repetitions of one another.
NON_HYPERPARAMETERS = (
    *fields.RUNTIME,
    "data.data_dir",
    "data.dataset",
    "data.manual_dir",
    "data.try_gcs",
    "model.name",
    "model.weights",
    "seed",
)
# The paper's names of pre-training data sets.
PRETRAINING = dict(imagenet2012="ImageNet", imagenet21k="I21k", jft300m="JFT")
# The errors of files that no run has written.
UNREADABLE = AttributeError, LookupError, TypeError, ValueError, OSError
UNREADABLE += (csv.Error,)
# Splits that are not development splits.
TEST_SPLITS = ("", "test", "validation")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A model fine-tuned on a data set.

    Attributes:
        model: Its name in the paper, such as "ViT-B/16".
        pretraining: "ImageNet", "I21k", "JFT", another name, or "" for none.
        epochs: Passes over the pre-training images, if known.
        dataset: Name of the data set, "vtab/" and a task for one of VTAB.
        setting: The other fields of the config.
        steps, curve: Evaluation accuracy in percent after so many steps.
    """

    folder: pathlib.Path
    model: str
    pretraining: str
    epochs: int | None
    dataset: str
    setting: dict
    seed: int
    steps: tuple[int, ...]
    curve: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """The last one: the best is selected on the evaluation images."""
        return self.curve[-1]


def find(*folders: pathlib.Path) -> list[Run]:
    """Read the finished runs in folders, and in the folders in them, once each.

    Excluded runs are listed on stderr: runs that are not finished, were
    evaluated on a development split or trained without labels, or cannot be
    read. The development runs of a sweep, lr_*, are skipped silently.
    """
    runs = {}
    for folder in folders:
        workdirs = _workdirs(folder) if folder.is_dir() else []
        for each in workdirs:
            try:
                runs[each.resolve()] = _read(each)
            except ValueError as error:
                _leave_out(each, error)
        if not folder.is_dir():
            _leave_out(folder, "is no folder")
        elif not workdirs:
            reason = "holds no run: no config.json beside a metrics.csv"
            _leave_out(folder, reason)
    return list(runs.values())


def config_of(folder: pathlib.Path) -> tuple[dict, dict]:
    """Return path -> value of a run's config, and what was derived from it."""
    content = json.loads((folder / "config.json").read_text())
    return fields.stored(content["config"]), content["derived"]


def _leave_out(folder, reason):
    print(f"Left out: {folder} {reason}.", file=sys.stderr)


def _workdirs(folder):
    files = folder / "config.json", folder / "metrics.csv"
    if all(file.is_file() for file in files):
        return [folder]
    children = sorted(child for child in folder.iterdir() if child.is_dir())
    children = [each for each in children if not each.name.startswith("lr_")]
    return [found for child in children for found in _workdirs(child)]


def _read(folder):
    """Return a run; raises ValueError if it cannot be reported."""
    try:
        config, derived = config_of(folder)
        with open(folder / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        steps = tuple(_numbers(rows, "step", int))
        curve = tuple(100 * x for x in _numbers(rows, "val_accuracy", float))
        total_steps = derived["total_steps"]
        is_dev = config.get("data.dev_fraction") or (
            config["data.eval_split"] not in TEST_SPLITS
        )
        setting = {
            path: value
            for path, value in config.items()
            if not fields.is_of(path, NON_HYPERPARAMETERS)
        }
        pretraining, epochs = _pretraining(config["model.weights"])
        run = Run(
            folder=folder,
            model=paper_name(config["model.name"]),
            pretraining=pretraining,
            epochs=epochs,
            dataset=_dataset(config["data.dataset"]),
            setting=setting,
            seed=config["seed"],
            steps=steps,
            curve=curve,
        )
    except UNREADABLE as error:
        raise ValueError(
            "is no run of fine-tuning that can be read "
            f"({type(error).__name__}: {error})"
        ) from None
    if not steps or steps[-1] < total_steps:
        raise ValueError(
            f"is not finished: step {max(steps, default=0)} of {total_steps}"
        )
    if is_dev:
        raise ValueError("was evaluated on a development split")
    if "objective" in config:
        raise ValueError("was trained without labels: its accuracy is no top-1")
    return run


def _numbers(rows, name, kind):
    """Yield the values of a column of metrics.csv."""
    for line, row in enumerate(rows, 2):
        try:
            yield kind(row[name])
        except (TypeError, ValueError):
            raise ValueError(
                f"metrics.csv, line {line}: {name}={row[name]!r}"
            ) from None


def paper_name(constructor: str) -> str:
    """Return "R50x1+ViT-B/16" for "R50ViTB16"; other names unchanged."""
    for pattern, name in (
        (r"BiTR(\d+x\d)", r"ResNet\1"),
        (r"Mixer([A-Z])(\d+)", r"Mixer-\1/\2"),
    ):
        if re.fullmatch(pattern, constructor):
            return re.sub(pattern, name, constructor)
    match = re.fullmatch(r"(R\d*)?ViT([A-Za-z]+)(\d+)", constructor)
    if not match:
        return constructor
    stem, size, patch = match.groups()
    prefix = {None: "", "R": "R+"}.get(stem, f"{stem}x1+")
    return f"{prefix}ViT-{size}/{patch}"


def _dataset(name):
    """Return the data set's name without config, version or path."""
    if name.startswith("vtab/"):
        return name
    if pathlib.Path(name).expanduser().exists():
        return pathlib.Path(name).expanduser().resolve().stem
    return re.split(r"[/:]", name)[0]


def _pretraining(weights):
    """Return the data that weights were trained on, and the epochs if known."""
    if weights in PRETRAINING or not weights:
        return PRETRAINING.get(weights, ""), None
    path = pathlib.Path(weights).expanduser()
    if path.is_file() and (path.parent / "config.json").is_file():
        config, _ = config_of(path.parent)
        name = _dataset(config["data.dataset"])
        epochs = config["schedule.num_epochs"]
        return PRETRAINING.get(name, name), epochs or None
    for part in path.parts[:-1]:
        if part in PRETRAINING:  # the layout of the authors' release
            return PRETRAINING[part], None
    return path.stem if path.exists() else weights, None
