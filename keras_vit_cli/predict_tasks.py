"""Finds boxes, classes of pixels, depth or keypoints in images."""

import json
import sys

import numpy as np

from keras_vit import data
from keras_vit.data import pillow
from keras_vit.heads import TaskModel
from keras_vit.inspection import task_figures


def run(options, model: TaskModel, paths: list[str]) -> int:
    """Print a line of JSON for each image, and draw what was found.

    Args:
        options: Of the command line; `score`, the least one of a box, and
            `drawing`, the picture to write.
        model: The model.
        paths: Of the images.

    Returns:
        The exit status: 1 if an image could not be read, else 0.

    Raises:
        ValueError: If an option is of other models, or the model does not scale
            pixels itself.
    """
    if options.attention:
        raise ValueError(
            "--attention needs a classifier; --drawing shows what a model with "
            f"a head finds. Received: {options.model!r}"
        )
    checked(model, options.model)
    limits = {}
    if options.score is not None:
        if model.task not in ("detection", "pose"):
            raise ValueError(
                "--score is of boxes and keypoints. Received: --score="
                f"{options.score} for a model of {model.task}"
            )
        limits["threshold"] = options.score
    images, results, broken = [], [], 0
    for path in paths:
        try:
            image = data.decode.read_pixels(path, model.image_shape[2])
        except ValueError as error:
            broken += 1
            print(error, file=sys.stderr)
            print(json.dumps(dict(image=path, error=str(error))))
            continue
        square = model.prepare(image)
        resized = pillow.resize(square, model.image_shape[:2])
        outputs = model.predict_on_batch(resized[None].astype("float32"))
        (found,) = model.interpret(outputs, [image.shape[:2]], **limits)
        print(json.dumps(dict(image=path, **summary(model, found))))
        if options.drawing:
            images.append(image)
            results.append(found)
    if images:
        task_figures.plot_task(
            images, results, options.drawing, model.class_names
        )
        print(f"What the model found: {options.drawing}", file=sys.stderr)
    return 1 if broken else 0


def checked(model: TaskModel, name: str) -> TaskModel:
    """Return a model that scales pixels itself.

    Raises:
        ValueError: If the model of this name does not.
    """
    if not model.includes_preprocessing:
        raise ValueError(
            "MODEL must scale pixels itself. Received: "
            f"{name!r}, built with include_preprocessing=False"
        )
    return model


def summary(model: TaskModel, found: dict) -> dict:
    """Return what JSON holds of an image: lists, and of maps their content.

    Args:
        model: The model.
        found: Of `TaskModel.interpret`.

    Returns:
        The lists of `found`; of classes of pixels the share of each; of depth
        the least, the median and the largest.
    """
    if "depth" in found:
        low, middle, high = np.quantile(found["depth"], (0, 0.5, 1)).tolist()
        return dict(depth=dict(least=low, median=middle, largest=high))
    if "classes" in found:
        present, counts = np.unique(found["classes"], return_counts=True)
        kept = present >= 0
        names = model.names_of(present[kept])
        shares = (counts[kept] / found["classes"].size).tolist()
        return dict(classes=dict(zip(names, shares, strict=True)))
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in found.items()
        if name not in ("segments", "masks")
    }
