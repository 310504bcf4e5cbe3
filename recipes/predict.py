"""Says what is on images, and where the model looked.

python -m recipes.predict MODEL.keras image.jpg ... [--attention out.png]
"""

import argparse
import os
import sys

import keras
import numpy as np

import keras_vit
from keras_vit import data
from keras_vit.inspection import figures

BATCH_SIZE = 32


def main(arguments: list[str] | None = None) -> int:
    """Predicts as the command line asks.

    Args:
        arguments: What follows the program's name; None is sys.argv's.

    Returns:
        The exit status: 1 if an image could not be read, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m recipes.predict", description=__doc__.split("\n")[0]
    )
    parser.add_argument("model", help="a .keras file, such as best.keras")
    parser.add_argument("images", nargs="+", help="JPEG, PNG, BMP or GIF")
    parser.add_argument(
        "--top_k", type=int, default=5, help="classes to print (5)"
    )
    parser.add_argument(
        "--attention", metavar="OUT.png", help="where to draw the attention"
    )
    options = parser.parse_args(arguments)
    try:
        model = _load(options.model)
        if options.top_k < 1:
            raise ValueError(
                f"--top_k must be at least 1. Received: --top_k={options.top_k}"
            )
        if options.attention:
            _check_writable(options.attention)
    except ValueError as error:
        parser.exit(2, f"{error}\n")

    paths, images = [], []
    for path in options.images:
        try:
            image = data.read_image(
                path, model.input_shape[1:3], model.input_shape[3]
            )
        except ValueError as error:
            print(error, file=sys.stderr)
        else:
            paths.append(path)
            images.append(image)
    if not images:
        return 1
    images = np.stack(images)
    probabilities = _probabilities(model, images)
    names = model.get_layer("head").labels or range(probabilities.shape[-1])
    tops = np.argsort(-probabilities, axis=-1)[:, : options.top_k]
    for path, top, row in zip(paths, tops, probabilities, strict=True):
        print(path)
        for index in top:
            print(f"  {row[index]:7.2%}  {names[index]}")
    if options.attention:
        figures.plot_attention(
            images,
            _attention(model, images),
            [
                f"{names[top[0]]} {row[top[0]]:.0%}"
                for top, row in zip(tops, probabilities, strict=True)
            ],
            options.attention,
        )
        print(f"Where the model looked: {options.attention}")
    return 0 if len(paths) == len(options.images) else 1


def _load(path):
    """Loads a classifier of this package, without its optimizer."""
    if not os.path.isfile(path):
        raise ValueError(
            f"MODEL must be a .keras file. Received: {path!r}, which is no file"
        )
    try:
        model = keras.models.load_model(path, compile=False)
    except (ValueError, OSError, TypeError) as error:
        raise ValueError(
            f"MODEL must be a .keras file. Received: {path!r}, which does not "
            f"load: {error}"
        ) from None
    if not any(layer.name == "head" for layer in model.layers) or (
        len(model.output_shape) != 2
    ):
        raise ValueError(
            "MODEL must be a classifier of keras_vit, with a layer `head`. "
            f"Received: {path!r}, with output shape {model.output_shape}"
        )
    channels = model.input_shape[-1]
    if channels not in (1, 3):
        raise ValueError(
            "MODEL must take images of 1 or 3 channels, as files have. "
            f"Received: {path!r}, which takes {channels}"
        )
    return model


def _check_writable(path):
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ValueError(
            "--attention must be a file in an existing folder. "
            f"Received: {path!r}"
        )


def _probabilities(model, images):
    outputs = model.predict(images, batch_size=BATCH_SIZE, verbose=0)
    if model.get_layer("head").activation is keras.activations.linear:
        outputs = keras.ops.convert_to_numpy(keras.ops.softmax(outputs))
    return outputs


def _attention(model, images):
    return np.concatenate(
        [
            keras_vit.inspection.attention_rollout(
                model, images[i : i + BATCH_SIZE]
            )
            for i in range(0, len(images), BATCH_SIZE)
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
