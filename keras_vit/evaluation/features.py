"""Features and predictions for a data set, without the padding of batches."""

import math
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.layers import Metadata


def representation(model: keras.Model, layer: str | None = None) -> keras.Model:
    """Return a model that computes one vector for each image.

    Tokens are read as a classifier does: from the class token with
    pooling="token", otherwise from the mean of all patches or of all positions
    of a grid.

    Args:
        model: A functional model with one input, of this package or not.
        layer: Name of the layer to read. None reads the input of `head`, after
            `pre_logits` if there is one, or the output of a model without
            `head`.

    Returns:
        A model that shares the variables, from `[B, H, W, C]` to `[B, D]`, in
        float32.

    Raises:
        ValueError: If the model is not functional or has several inputs, if
            there is no such layer, or its output is not `[B, D]`, `[B, N, D]`
            or `[B, H, W, D]`.
    """
    given, outputs = _ends(model)
    names = [x.name for x in model.layers]
    if layer is not None and layer not in names:
        raise ValueError(
            f"`layer` must be a layer of {model.name}: {names}. "
            f"Received: layer={layer!r}"
        )
    if layer is not None:
        x = model.get_layer(layer).output
    else:
        x = outputs[0] if len(outputs) == 1 else outputs
        x = model.get_layer("head").input if "head" in names else x
    rank = len(getattr(x, "shape", ()))
    if rank not in (2, 3, 4):
        raise ValueError(
            "`layer` must give [B, D], [B, N, D] or [B, H, W, D]. Received: "
            f"layer={layer!r} of {model.name}, which gives {x}"
        )
    first = _num_prefix_tokens(model, x) if rank == 3 else 0
    if first and _architecture(model).get("pooling") == "distilled":
        x = ops.mean(x[:, :2], axis=1)
    elif first and not _averages(model):
        x = x[:, 0]
    elif first:
        x = ops.mean(x[:, first:], axis=1)
    elif rank > 2:
        x = ops.mean(x, axis=tuple(range(1, rank - 1)))
    if x.dtype != "float32":
        x = ops.cast(x, "float32")
    if x is outputs[0]:
        return model  # keeps its compiled functions
    return keras.Model(given, x, name=model.name)


def _ends(model):
    """Return the input and the outputs of a functional model."""
    inputs: Any = getattr(model, "inputs", None)
    outputs: Any = getattr(model, "outputs", None)
    if not outputs or len(inputs) != 1:
        raise ValueError(
            "`model` must be functional, with one input. Received: "
            f"{model.name!r} with the inputs {inputs}"
        )
    return inputs[0], outputs


def features(
    model: keras.Model, batches: Iterable, layer: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the representations and the labels of a data set.

    Args:
        model: A functional model.
        batches: Elements {"images", "labels", "weights"}, such as those of
            `keras_vit.data.eval_batches`: labels one-hot `[B, K]` or classes
            `[B]`; examples of weight 0 are padding and left out; "weights"
            may be absent.
        layer: See `representation`.

    Returns:
        Float32 `[N, D]` and the classes, int64 `[N]`, in the batches' order.

    Raises:
        ValueError: If the layer cannot be read, or a batch has another form.

    Example:
        x, y = features(model, data.eval_batches(
            source, batch_size=64, image_size=(224, 224)))
    """
    extractor = representation(model, layer)
    outputs, labels = [], []
    for batch in batches:
        check_batch(batch)
        (found,) = _run(extractor, batch["images"], mask=_is_example(batch))
        outputs.append(found)
        labels.append(labels_of(batch))
    return joined(outputs), joined(labels)


@checked
def predictions(
    model: keras.Model,
    batches: Iterable,
    *,
    top_k: Count = 5,
    from_logits: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the predictions of a classifier for each image of a data set.

    Only the best classes of each image leave the device.

    Args:
        model: A functional classifier, `[B, H, W, C]` to `[B, K]`.
        batches: As `features` takes them, with one-hot labels.
        top_k: Classes to return, at most K.
        from_logits: Whether the model gives logits, else probabilities.

    Returns:
        The best classes, the best first, int64 `[N, top_k]`; the
        cross-entropy of the label, float32 `[N]`; the labels, int64 `[N]`.

    Raises:
        ValueError: If `top_k` is out of range, the model is no classifier, or
            a batch has another form.
    """
    images, outputs = _ends(model)
    if len(outputs) != 1 or len(outputs[0].shape) != 2:
        raise ValueError(
            "`model` must be a classifier, to [B, K]. Received: "
            f"{model.name!r}, which gives {outputs}"
        )
    num_classes = outputs[0].shape[-1]
    if top_k > num_classes:
        raise ValueError(
            f"`top_k` must be at most {num_classes}, the model's classes. "
            f"Received: top_k={top_k}"
        )
    targets = keras.Input((num_classes,), name="labels")
    scores = ops.cast(outputs[0], "float32")
    scorer = keras.Model(
        [images, targets],
        [
            ops.top_k(scores, top_k)[1],
            ops.categorical_crossentropy(
                targets, scores, from_logits=from_logits
            ),
        ],
    )
    best, losses, labels = [], [], []
    for batch in batches:
        check_batch(batch, num_classes)
        found = _run(
            scorer, batch["images"], batch["labels"], mask=_is_example(batch)
        )
        best.append(found[0].astype("int64"))
        losses.append(found[1])
        labels.append(labels_of(batch))
    return joined(best), joined(losses), joined(labels)


def check_batch(batch: dict, num_classes: int | None = None) -> None:
    """Refuse a batch that is not of the form that `features` takes.

    Args:
        batch: An element of a data set.
        num_classes: Number of classes K of one-hot labels; None for any labels.

    Raises:
        ValueError: If it lacks a part, or these are not as many.
    """
    if not isinstance(batch, dict) or not {"images", "labels"} <= {*batch}:
        keys = sorted(batch) if isinstance(batch, dict) else type(batch)
        raise ValueError(
            "`batches` must hold dictionaries with 'images' and 'labels'. "
            f"Received: {keys}"
        )
    shapes = {
        name: np.shape(batch[name])
        for name in ("images", "labels", "weights")
        if name in batch
    }
    if len({shape[:1] for shape in shapes.values()}) > 1:
        raise ValueError(
            "`batches` must have a label, and a weight if any, for each image. "
            f"Received: {shapes}"
        )
    if num_classes and shapes["labels"][1:] != (num_classes,):
        raise ValueError(
            f"`labels` of `batches` must be [B, {num_classes}], as the model's "
            f"classes. Received: {shapes['labels']}"
        )


def joined(parts: list) -> np.ndarray:
    """Return what the batches gave, one after the other."""
    if not parts:
        raise ValueError("`batches` must hold at least one. Received: none")
    return np.concatenate(parts)


def labels_of(batch: dict) -> np.ndarray:
    """Return the classes of a batch, int64 `[B]`, without its padding.

    Args:
        batch: An element that `features` takes.

    Raises:
        ValueError: If an image has several labels, or none, or a label is no
            integer.
    """
    labels = np.asarray(batch["labels"])
    labels = labels[_is_example(batch)]
    if labels.ndim == 2 and labels.shape[-1] == 1:  # as keras.datasets has them
        labels = labels[:, 0]
    if labels.ndim == 2:
        if (np.count_nonzero(labels, axis=-1) != 1).any():
            raise ValueError(
                "`labels` must be one for each image. Received: images with "
                "several or none; see `scores_and_targets`"
            )
        labels = labels.argmax(axis=-1)
    if labels.dtype.kind not in "buif" or (labels % 1).any():
        raise ValueError(
            "`labels` must be numbers of classes, or one-hot. Received: "
            f"{labels[:5]}"
        )
    return labels.astype("int64")


def _run(model, *inputs, mask):
    """Return the outputs for the inputs that the mask selects."""
    inputs = [np.asarray(x) for x in inputs]
    outputs = model.predict_on_batch(inputs if len(inputs) > 1 else inputs[0])
    # With TensorFlow, each replica of the model would compute the whole batch,
    # one after the other.
    return [x[: len(mask)][mask] for x in keras.tree.flatten(outputs)]


def _is_example(batch):
    if "weights" in batch:
        return np.asarray(batch["weights"]) > 0
    return np.ones(len(batch["labels"]), bool)


def _averages(model):
    """Whether a model with a class token reads the mean of its patches."""
    architecture = _architecture(model)
    kind = architecture.get("pooling") or "token"
    if architecture.get("class_token") is False:
        return True  # registers alone
    return not kind.startswith("token")


def _architecture(model):
    """Return the fields of the architecture of a model of this package."""
    for layer in model.layers:
        if isinstance(layer, Metadata):
            return layer.architecture
    return {}


def _num_prefix_tokens(model, tokens):
    """Return the number of class tokens and registers before the patches."""
    grid = None
    registers = _architecture(model).get("num_registers") or 0
    for layer in model.layers:
        if getattr(layer, "grid_size", None):
            grid = getattr(layer, "output_grid", layer.grid_size)
        if layer.output is tokens:
            break  # later blocks may pool the grid
    if grid is None:
        return 0
    first = tokens.shape[1] - math.prod(grid)
    # One more is a class token, or two with a distillation token.
    return first if first in (1, 2, registers, registers + 1) else 0
