"""What the scores of a model are: of which classes, and how probabilities."""

import keras

from keras_vit._loss_check import (
    PROBABILITIES,
    changes_nothing,
    last_layer,
    output_of,
)
from keras_vit.heads import TaskModel
from keras_vit.models import ImageModel


def class_names_of(model: keras.Model) -> tuple[str, ...] | None:
    """Return the class names of a model's head, None beneath another layer."""
    inner = ImageModel.find(model)
    last = last_layer(getattr(model, "output", None))
    if last is not None and output_of(last) in PROBABILITIES:
        last = last if hasattr(last, "units") else last_layer(last.input)
    if hasattr(last, "units") and last is not inner.head:
        return None
    return inner.class_names


def activation_of(model: keras.Model) -> str:
    """Return the activation from outputs to probabilities, by the loss.

    It is "none" if the model's last layer gives probabilities, and of a model
    with a head for a task. Any other activation is a part of the logits. A
    single score is no softmax, which would always be 1: without a loss it is a
    sigmoid, and with the loss of a regression itself.
    """
    if isinstance(model, TaskModel):
        return "none"
    last = model
    # A Sequential that is not built has no symbolic output.
    while getattr(last, "output", None) is None and hasattr(last, "layers"):
        last = [x for x in last.layers if not changes_nothing(x)][-1]
    if hasattr(last, "layers"):
        last = last_layer(last.output)
    if output_of(last) in PROBABILITIES:
        return "none"
    loss = next(iter(keras.tree.flatten(getattr(model, "loss", None))), None)
    name = (
        loss
        if isinstance(loss, str)
        else getattr(loss, "__name__", type(loss).__name__)
    )
    if "binary" in name.lower() or "sigmoid" in name.lower():
        return "sigmoid"
    if getattr(last, "units", None) != 1:
        return "softmax"
    return "sigmoid" if loss is None else "none"
