"""Warns of losses that take probabilities where a model gives logits.

Such a model trains to NaN (PyTorch, JAX) or not at all (TensorFlow), and no
backend says so.
"""

import inspect
import warnings
import weakref

import keras

from keras_vit._keras import source

# Keras' activations that give probabilities.
PROBABILITIES = (
    *("softmax", "sparsemax"),
    *("sigmoid", "hard_sigmoid", "sparse_sigmoid"),
)
# Of Keras' losses that have no `from_logits`, those that take probabilities.
_OF_PROBABILITIES = (
    "categoricalgeneralizedcrossentropy",
    "dice",
    "kldivergence",
    "tversky",
)
# Those that state `from_logits` in their configs, perhaps not elsewhere.
_WITH_CONFIG = (keras.metrics.AUC, keras.losses.SparseCategoricalCrossentropy)
# Model -> its loss when it was checked.
_CHECKED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def check_losses(model: keras.Model, *specified, stacklevel: int) -> None:
    """Warns of each loss or metric that does not fit the model's outputs.

    Losses of the user's own, and outputs of other layers than a dense one, are
    not known and pass.

    Args:
        model: The compiled model.
        *specified: Losses or metrics as `compile` takes them, or None.
        stacklevel: See `warnings.warn`.
    """
    _CHECKED[model] = model.loss
    outputs = getattr(model, "outputs", None) or []
    names = getattr(model, "output_names", None) or range(len(outputs))
    outputs = dict(zip(names, map(last_layer, outputs), strict=False))
    for loss, layer in _pairs(specified, outputs):
        given, takes_logits = output_of(layer), _takes_logits(loss)
        if (
            takes_logits is not None
            and given
            and (takes_logits != (given == "logits"))
        ):
            message = _message(model, loss, given)
            warnings.warn(message, stacklevel=stacklevel + 1)


def check_training() -> None:
    """Do the same for the model that calls, once for each `compile`.

    Called by a layer in training, it finds the model that has the layer, at any
    depth. Keras gives a layer no way to it: JAX calls models without context.
    """
    if keras.backend.backend() == "torch":
        import torch

        if torch.compiler.is_compiling():  # Frames would split the graph.
            return
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "train_step":
        frame = frame.f_back
    model = frame and frame.f_locals.get("self")
    loss = getattr(model, "loss", None)
    if isinstance(model, keras.Model) and loss is not _CHECKED.get(model):
        check_losses(model, loss, stacklevel=2)


def last_layer(tensor) -> keras.layers.Layer | None:
    """Return the layer that makes a symbolic tensor, in a nested model too.

    Layers that change nothing, at least in inference, are passed over.
    """
    layer, index = source(tensor) or (None, 0)
    if getattr(layer, "outputs", None):
        return last_layer(layer.outputs[index])
    return last_layer(layer.input) if changes_nothing(layer) else layer


def changes_nothing(layer: keras.layers.Layer | None) -> bool:
    """Return whether a layer's outputs are its inputs, in inference."""
    return isinstance(layer, (keras.layers.Dropout, keras.layers.Identity)) or (
        isinstance(layer, keras.layers.Activation)
        and layer.activation is keras.activations.linear
    )


def output_of(layer: keras.layers.Layer | None) -> str | None:
    """Return one of `PROBABILITIES`, "logits", or None if it is not known."""
    if isinstance(layer, keras.layers.Softmax):
        return "softmax"
    if not isinstance(layer, keras.layers.Layer):  # such as `keras.ops.softmax`
        names = {name.replace("_", ""): name for name in PROBABILITIES}
        return names.get(type(layer).__name__.lower())
    name = getattr(getattr(layer, "activation", None), "__name__", None)
    if name in PROBABILITIES:
        return name
    is_dense = hasattr(layer, "units") and name in (None, "linear")
    return "logits" if is_dense else None


def _pairs(specified, outputs):
    """Yield each loss with the last layer of its output."""
    for losses in specified:
        if isinstance(losses, dict):
            for name, loss in losses.items():
                if name in outputs:
                    yield from _pairs([loss], {name: outputs[name]})
        elif isinstance(losses, (list, tuple)):
            if len(losses) == len(outputs) > 1:
                for loss, output in zip(losses, outputs.items(), strict=True):
                    yield from _pairs([loss], dict([output]))
            else:
                yield from _pairs(losses, outputs)
        elif losses is not None:
            for layer in outputs.values():
                yield losses, layer


def _takes_logits(loss):
    """Return whether a loss or a metric takes logits; None if unknown."""
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce", "auc"):
        return False  # of metrics alone
    try:
        loss = keras.losses.get(loss)
    except ValueError:
        return None
    if _class_name(loss).lower() in _OF_PROBABILITIES:
        return False
    if isinstance(loss, _WITH_CONFIG):
        return loss.get_config()["from_logits"]
    if isinstance(loss, (keras.losses.Loss, keras.metrics.Metric)):
        return getattr(loss, "from_logits", None)
    try:
        parameters = inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return None
    parameter = parameters.get("from_logits")
    return parameter and bool(parameter.default)


def _class_name(loss):
    """Return the name of a loss as Keras' classes have it."""
    loss = getattr(loss, "func", loss)  # of functools.partial
    name = getattr(loss, "__name__", type(loss).__name__)
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _message(model, loss, given):
    known = loss if isinstance(loss, str) else _class_name(loss)
    if given != "logits":
        return (
            f"{known!r} takes logits, but {model.name!r} gives probabilities, "
            f"of a {given}. Pass from_logits=False, or build the model with "
            "classifier_activation=None."
        )
    try:
        name = _class_name(keras.losses.get(loss))
    except ValueError:
        name = "SparseCategoricalCrossentropy"
    remedy = f"Pass {name}(from_logits=True), or b"
    if name.lower() in _OF_PROBABILITIES:
        remedy = "B"
    activation = "sigmoid" if name.startswith(("Binary", "AUC")) else "softmax"
    return (
        f"{known!r} takes probabilities, but {model.name!r} gives logits: it "
        f"would become NaN, or train nothing. {remedy}uild the model with "
        f"classifier_activation={activation!r}."
    )
