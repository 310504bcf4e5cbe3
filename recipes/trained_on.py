"""Which images a model was trained on, and which of them it is measured on."""

import json
import os
import pathlib

from keras_vit import data
from recipes import experiment, fields, inputs, scored

# The fields of a config that select the training images, and those of the loss
# that differs between training and evaluation.
FIELDS = (
    "data.dataset",
    "data.train_split",
    "data.eval_split",
    "data.eval_fraction",
    "data.split_seed",
    "data.data_dir",
    "data.manual_dir",
    "data.try_gcs",
    "data.broken",
    "data.exclude",
    "data.dev_fraction",
    "data.shots",
    "data.train_images",
    "seed",
    "model.weights",
    "optim.loss",
    "optim.label_smoothing",
)


def config_beside(model: str | os.PathLike) -> experiment.Config | None:
    """Return the part of config.json beside a model that is about its data.

    Args:
        model: A file of a run, such as runs/digits/last.keras, or the name of
            released weights.

    Returns:
        A config with the data fields and `weights` of the run; None for a
        model without config.json.
    """
    path = pathlib.Path(os.path.expanduser(model))
    if not path.is_file():
        return None
    try:
        content = json.loads((path.parent / "config.json").read_text())
        there = fields.stored(content["config"])
        # Earlier versions split by `seed`.
        there = {"data.split_seed": there["seed"], **there}
        derived = content.get("derived", {})
        place = derived.get("data", {}).get("place", "")
        weights = derived.get("weights_place", "")
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
    known = {path: there[path] for path in FIELDS if path in there}
    # What the config names may be relative to another folder.
    if place:
        known["data.dataset"] = place
    if weights:
        known["model.weights"] = weights
    return fields.changed(experiment.Config(), known)


def same_dataset(first: str, second: str) -> bool:
    """Return whether two values of `dataset` name the same data set."""
    return _place(first) == _place(second)


def overlap(
    measured: data.Source,
    dataset: str,
    weights: str | os.PathLike = "",
    train: data.Source | None = None,
) -> str:
    """Describe how many of the measured images a model was trained on.

    Args:
        measured: The images to measure on.
        dataset: The `dataset` that they are from.
        weights: The model, or the weights that training starts from. The runs
            that made them are followed through config.json beside each file.

    Returns:
        A sentence, or "" if no measured image is known to be trained on.
    """
    kind = "videos" if measured.is_video else "images"
    total = measured.num_examples
    sentences = []
    if train is not None and (count := data.count_shared(measured, train)):
        sentences.append(
            f"{count} of the {total} evaluation {kind} are also training {kind}"
        )
    seen = set()
    while (config := config_beside(weights)) and weights not in seen:
        seen.add(weights)
        count = _count(measured, dataset, config)
        if count is None:
            sentences.append(
                f"the training {kind} of {weights} cannot be read: evaluation "
                f"{kind} may be among them"
            )
        elif count:
            sentences.append(
                f"{count} of the {total} evaluation {kind} were trained on to "
                f"make {weights}"
            )
        weights = config.model.weights
    return "; ".join(sentences)


def _count(measured, dataset, config):
    """Return the number of measured images that a run was trained on."""
    place = _place(config.data.dataset)
    if not (
        os.path.exists(place) or same_dataset(config.data.dataset, dataset)
    ):
        # A data set of TFDS would be downloaded, and a folder that is gone
        # cannot be compared.
        return None if os.path.isabs(place) else 0
    if config.data.exclude and not os.path.exists(config.data.exclude):
        config = fields.changed(config, {"data.exclude": ""})
    try:
        train, _ = inputs.load(config)
    except (OSError, ValueError):
        return None
    return data.count_shared(measured, train)


def _place(dataset):
    # Versions of a data set of TFDS differ, but not in their images.
    return scored.place_of(dataset) or dataset.split(":")[0]
