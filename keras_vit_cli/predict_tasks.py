"""Finds boxes, classes of pixels, depth or keypoints in images."""

import json
import sys
from collections.abc import Sequence

import numpy as np

from keras_vit import data
from keras_vit.heads import TaskModel
from keras_vit.inspection import task_figures


class Finder:
    """Says what a Keras model with a head finds in files.

    Args:
        model: The model.
        name: What it was loaded from, for an error.

    Raises:
        ValueError: If the model does not scale pixels itself.
    """

    def __init__(self, model: TaskModel, name: str):
        if isinstance(model.input, dict):
            raise ValueError(
                "MODEL must take images alone. Received: "
                f"{name!r}, which takes {sorted(model.input)}"
            )
        if not model.includes_preprocessing:
            raise ValueError(
                "MODEL must scale pixels itself. Received: "
                f"{name!r}, built with include_preprocessing=False"
            )
        self._model = model
        self.task = model.task
        self.kind = model.options.get("kind")  # of segmentation
        self.class_names = model.class_names

    def find(
        self, path: str, size: tuple[int, int] | None = None, **options
    ) -> tuple[np.ndarray, dict]:
        """Return the pixels of a file, and what `interpret` says of it.

        Args:
            path: The file.
            size: The (height, width) of what is returned, in pixels; None for
                that of the file.
            **options: Of `TaskModel.interpret`.

        Raises:
            ValueError: If it does not decode.
        """
        model = self._model
        image = data.decode.read_pixels(path, model.image_shape[2])
        return image, model.find_in(image, size, **options)


def run(options, finder, paths: list[str]) -> int:
    """Print a line of JSON for each image, and draw what was found.

    Args:
        options: Of the command line; `score`, the least one of a box, and
            `drawing`, the picture to write.
        finder: A `Finder`, or that of a SavedModel.
        paths: Of the images.

    Returns:
        The exit status: 1 if an image could not be read, else 0.

    Raises:
        ValueError: If an option is of other models.
    """
    if options.attention:
        raise ValueError(
            "--attention needs a classifier; --drawing shows what a model with "
            f"a head finds. Received: {options.model!r}"
        )
    if options.format in ("table", "csv"):
        raise ValueError(
            "--format must be jsonl for a model with a head. Received: "
            f"--format={options.format} for {options.model!r}"
        )
    limits = {}
    if options.score is not None:
        if finder.task not in ("detection", "pose"):
            raise ValueError(
                "--score is of boxes and keypoints. Received: --score="
                f"{options.score} for a model of {finder.task}"
            )
        limits["threshold"] = options.score
    images, results, broken = [], [], 0
    for path in paths:
        try:
            image, found = finder.find(path, **limits)
        except ValueError as error:
            broken += 1
            print(error, file=sys.stderr)
            print(json.dumps(dict(image=path, error=str(error))))
            continue
        content = summary(found, finder.class_names)
        print(json.dumps(dict(image=path, **content)))
        if options.drawing:
            images.append(image)
            results.append(found)
    if images:
        task_figures.plot_task(
            images, results, options.drawing, finder.class_names
        )
        print(f"What the model found: {options.drawing}", file=sys.stderr)
    return 1 if broken else 0


def summary(found: dict, class_names: Sequence[str] | None) -> dict:
    """Return what JSON holds of an image: lists, and of maps their content.

    Args:
        found: Of `TaskModel.interpret`.
        class_names: Names of the classes by index; None if unknown.

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
        names = [
            str(i) if class_names is None else class_names[i]
            for i in present[kept]
        ]
        shares = dict.fromkeys(names, 0.0)  # several classes may share a name
        for name, count in zip(names, counts[kept].tolist(), strict=True):
            shares[name] += count / found["classes"].size
        return dict(classes=shares)
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in found.items()
        if name not in ("segments", "masks")
    }
