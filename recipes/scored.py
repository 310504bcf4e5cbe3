"""What runs share that are measured by scores of their own: tasks and pairs."""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from recipes import fields


def refuse_unused(config: Any, paths: Iterable[str], kind: str) -> None:
    """Refuse another value than the default where it would have no effect.

    Args:
        config: The config of a recipe.
        paths: Fields, such as "optim.loss".
        kind: What is trained, for the error: "a task", "pairs".
    """
    default = type(config)()
    for path in paths:
        value, usual = fields.get(config, path), fields.get(default, path)
        if value != usual:
            raise ValueError(
                f"`{path}` has no effect on {kind}: leave it at {usual!r}. "
                f"Received: {path}={value!r}"
            )


def place_of(name: str) -> str:
    """Return the absolute path of a data set or of weights, "" for a name.

    Args:
        name: A path, or a name such as "digits" or "augreg".
    """
    path = os.path.expanduser(name)
    is_path = os.path.exists(path) or os.path.isabs(path) or path[:1] == "."
    return os.path.realpath(path) if is_path else ""


def described(dataset: str, train: Any, evaluated: Any) -> dict:
    """Return what config.json says of the data, by which a run resumes.

    Args:
        dataset: The `dataset` of the config.
        train, evaluated: Its parts.
    """
    return dict(
        place=place_of(dataset),
        train_images=train.num_examples,
        eval_images=evaluated.num_examples,
        train=train.digest,
        evaluation=evaluated.digest,
    )


def save_examples(workdir: pathlib.Path, images: Iterable) -> list[str]:
    """Write images into examples/, and return their paths.

    Args:
        images: `[H, W, C]` each, in [0, 255].
    """
    (workdir / "examples").mkdir(exist_ok=True)
    paths = []
    for i, image in enumerate(images):
        paths.append(str(workdir / "examples" / f"{i}.png"))
        keras.utils.save_img(paths[-1], np.asarray(image), scale=False)
    return paths


def say_scores(results: dict[str, float], best_by: str) -> None:
    """Print the last and the best evaluation."""
    scores = ", ".join(
        f"{name} {value:.3f}"
        for name, value in results.items()
        if name not in ("loss", "step") and not name.startswith("best_")
    )
    print(
        f"\nLast evaluation (step {results['step']}): {scores}.\n"
        f"Best evaluation (step {results['best_step']}): {best_by} "
        f"{results[f'best_{best_by}']:.3f}, chosen by these same images."
    )
