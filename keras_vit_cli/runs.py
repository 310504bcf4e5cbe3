"""Reads what a run of the recipes has written beside its model."""

import json
import os


def config_of(model: str) -> dict:
    """Return how the run of a model was configured: its model and its data.

    Args:
        model: MODEL of the command line, such as runs/digits/last.keras.

    Returns:
        Name of a field -> value, such as "weights" and "frame_step"; nothing
        without config.json beside the file.
    """
    path = os.path.join(os.path.dirname(model), "config.json")
    if not os.path.isfile(model) or not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)["config"]
        # Version 0.2 had flat configs, in which `model` is a name.
        is_flat = isinstance(config["model"], str)
        return config if is_flat else config["model"] | config["data"]
    except (KeyError, TypeError, ValueError):  # not of a recipe
        return {}
