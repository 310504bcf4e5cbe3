"""Opens what the command line calls MODEL."""

import contextlib
import difflib
import os
import sys

import keras
import numpy as np

import keras_vit
from keras_vit import data
from keras_vit._loss_check import last_layer
from keras_vit.export.scores import activation_of
from keras_vit.heads import TaskModel
from keras_vit_cli import predict_tasks


class KerasClassifier:
    """A Keras model that classifies files, as `asked` returns it."""

    def __init__(self, model: keras.Model):
        self.model = model
        head = model.get_layer("head")
        names = getattr(head, "class_names", None)
        self.names = names or [str(i) for i in range(head.units)]
        self.activation = activation_of(model)
        self.takes_video = len(model.input_shape) == 5

    def predict(self, paths):
        """Yield (path, image, probabilities or what is wrong)."""
        found, images = [], []
        for path in paths:
            try:
                image = data.read_image(
                    path,
                    self.model.input_shape[1:3],
                    self.model.input_shape[3],
                )
            except ValueError as error:
                yield path, None, str(error)
            else:
                found.append(path)
                images.append(image)
        if not images:
            return
        scores = self.scores(np.stack(images))
        yield from zip(found, images, scores, strict=True)

    def scores(self, images):
        """Return the probabilities of images, or of clips."""
        scores = self.model.predict_on_batch(images)
        if self.activation != "none":
            scores = getattr(keras.ops, self.activation)(scores)
        return keras.ops.convert_to_numpy(scores)


def is_savedmodel(name: str) -> bool:
    """Return whether this is a SavedModel's directory."""
    return os.path.isfile(os.path.join(name, "saved_model.pb"))


def asked(name: str, model: keras.Model | None = None):
    """Load what the command line calls MODEL, to ask it about files.

    Args:
        name: A .keras file, a SavedModel, CONSTRUCTOR:WEIGHTS or a checkpoint.
        model: What `load` returns for it; None loads it.

    Returns:
        For a model with a head a `predict_tasks.Finder`, or that of a
        SavedModel. Else a classifier with the class `names` by index, and
        `predict(paths)`, which yields (path, image, probabilities) in any
        order. Where a file does not decode, the third is a message; the image
        of a SavedModel is None.

    Raises:
        ValueError: If it is none of these, or no model of images or videos.
    """
    if is_savedmodel(name):
        from keras_vit_cli import savedmodel_client

        with _naming_model(name):
            return savedmodel_client.load(name)
    model = load(name) if model is None else model
    if isinstance(model, TaskModel):
        return predict_tasks.Finder(model, name)
    check_classifier(name, model)
    if model.input_shape[-1] not in (1, 3):
        raise ValueError(
            "MODEL must take images of 1 or 3 channels, as files have. "
            f"Received: {name!r}, which takes {model.input_shape[-1]}"
        )
    check_pixels(name, model)
    return KerasClassifier(model)


def check_classifier(name: str, model: keras.Model) -> None:
    """Refuse a model without a head that gives a score for each class.

    Args:
        name: What the command line calls the model.
        model: The model.
    """
    # Not beneath another dense layer, whose classes have other names.
    last = last_layer(getattr(model, "output", None))
    has_head = any(layer.name == "head" for layer in model.layers)
    has_head &= getattr(last, "name", "") == "head" or not hasattr(
        last, "units"
    )
    # Of boxes and so on a dictionary, or a list of shapes.
    is_tensor = isinstance(model.output_shape, tuple)
    if not (has_head and is_tensor and len(model.output_shape) == 2):
        raise ValueError(
            "MODEL must be a classifier of keras_vit, with a layer `head`. "
            f"Received: {name!r}, with output shape {model.output_shape}"
        )


def check_pixels(name: str, model: keras.Model) -> None:
    """Refuse a model that takes scaled pixels, as no file has them.

    Args:
        name: What the command line calls the model.
        model: The model, or its tower of images.
    """
    if not any(layer.name == "preprocessing" for layer in model.layers):
        raise ValueError(
            "MODEL must scale pixels itself. Received: "
            f"{name!r}, built with include_preprocessing=False"
        )


def load(name: str) -> keras.Model:
    """Load a model by what the command line calls it.

    Raises:
        ValueError: If it is none of these, or a SavedModel (see `asked`).
    """
    if is_savedmodel(name):
        raise ValueError(
            "MODEL must be a .keras file, CONSTRUCTOR:WEIGHTS or a checkpoint "
            f"here. Received: {name!r}, a SavedModel. Give the model that it "
            "was exported from."
        )
    with _naming_model(name):
        if name.endswith(".keras") and os.path.isfile(name):
            try:
                # The loss specifies the activation of the scores.
                return keras.models.load_model(name)
            except (TypeError, ValueError):
                model = keras.models.load_model(name, compile=False)
                if activation_of(model) != "none":
                    print(
                        f"The loss of {name!r} does not load. Its outputs are "
                        "taken for logits of which one class is right.",
                        file=sys.stderr,
                    )
                return model
        variant, _, weights = name.partition(":")
        if variant in keras_vit.list_models() and weights:
            return getattr(keras_vit, variant)(weights=weights)
        return keras_vit.from_pretrained(name)


@contextlib.contextmanager
def _naming_model(name):
    try:
        yield
    except (ValueError, OSError, TypeError) as error:
        variant = name.partition(":")[0]
        near = difflib.get_close_matches(variant, keras_vit.list_models())
        is_model = variant in near or os.path.exists(name)
        hint = (
            f". Nearest constructors: {near}" if near and not is_model else ""
        )
        raise ValueError(
            "MODEL must be a .keras file, a SavedModel, CONSTRUCTOR:WEIGHTS "
            f"or a checkpoint. Received: {name!r}, which does not load: "
            f"{error}{hint}"
        ) from error
