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
    model = os.path.expanduser(model)
    path = os.path.join(os.path.dirname(model), "config.json")
    if not os.path.isfile(model) or not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)["config"]
        # Version 0.2 had flat configs, in which `model` is a name.
        is_flat = isinstance(config["model"], str)
        if is_flat:
            return config
        return config.get("task", {}) | config["model"] | config["data"]
    except (KeyError, TypeError, ValueError):  # not of a recipe
        return {}


def clip_frames(
    model: str,
    step: int | None = None,
    rate: float | None = None,
    option: str = "--frame_step",
) -> tuple[int, float]:
    """Return the frame step and the frame rate of the clips of a model.

    Args:
        model: MODEL of the command line.
        step, rate: As asked; None is that with which its run was trained.
        option: What asks for the step, for the message.

    Raises:
        ValueError: If neither the run nor the user states the step.
    """
    run = config_of(model)
    step = run.get("frame_step") if step is None else step
    rate = run.get("frame_rate", 0.0) if rate is None else rate
    if step is None:
        raise ValueError(
            f"{option} must be given for a model of no run: that with which "
            "it was trained, such as 4 for MViTB16x4, and any for one of "
            f"images. Received: none, and no config.json beside {model!r}"
        )
    return step, rate
