"""Learning from the predictions of a teacher: DeiT, and function matching."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Positive, Rate, checked
from keras_vit._loss_check import PROBABILITIES, last_layer, output_of
from keras_vit._paths import require_file
from keras_vit.data.optional_imports import optional, tensorflow, unconverted
from keras_vit.layers import DistilledHead
from keras_vit.models import ImageModel, from_pretrained
from keras_vit.ops.dtypes import at_least_float32
from keras_vit.training.task_loss import clear_all_gradients

Method = Literal["hard", "soft", "match"]
INPUT = "teacher"
# Lower probabilities of a teacher count as this one.
LEAST = 1e-12


@keras.saving.register_keras_serializable(package="keras_vit")
class DistillationLoss(keras.losses.Loss):
    """The loss of a `distilled` model.

    With logits z of the class token, z' of the distillation token (z, if the
    student has none) and t of the teacher:

        hard   (1 - w) H(y, s(z)) + w H(argmax t, s(z'))
        soft   (1 - w) H(y, s(z)) + w T^2 KL(s(t / T) | s(z' / T))
        match  T^2 KL(s(t / T) | s((z + z') / 2T))

    where s is the softmax.

    Args:
        method: "hard" or "soft", DeiT's; "match", function matching, for which
            labels do not count.
        weight: w; None is that of DeiT, 0.5 for "hard" and 0.1 for "soft".
        temperature: T; None is 3 for "soft" (DeiT) and 1 for "match".
        label_smoothing: Share of each label y distributed over all classes.

    Call arguments: labels, `[B, K]`, and the output of a `distilled` model,
        `[B, 3, K]`.

    Reference:
        Touvron et al. 2021 (2012.12877), equations 2 and 3; Beyer et al. 2022
        (2106.05237), section 3.
    """

    @checked
    def __init__(
        self,
        method: Method = "hard",
        weight: Rate | None = None,
        temperature: Positive | None = None,
        label_smoothing: Rate = 0.0,
        name: str = "distillation_loss",
        reduction: str | None = "sum_over_batch_size",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.method = method
        defaults = dict(hard=(0.5, 1.0), soft=(0.1, 3.0), match=(0.0, 1.0))
        usual_weight, usual_temperature = defaults[method]
        self.weight = usual_weight if weight is None else weight
        if temperature is None:
            temperature = usual_temperature
        self.temperature = temperature
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        """Return the loss of each image, `[B]`."""
        own, copy, teacher = (y_pred[:, i] for i in range(3))
        if self.method == "match":
            return self._divergence(teacher, (own + copy) / 2)
        classes = own.shape[-1]
        y_true = ops.cast(y_true, own.dtype)
        y_true = y_true * (1 - self.label_smoothing)
        y_true = y_true + self.label_smoothing / classes
        labelled = ops.categorical_crossentropy(y_true, own, from_logits=True)
        if self.method == "hard":
            chosen = ops.one_hot(ops.argmax(teacher, axis=-1), classes)
            copied = ops.categorical_crossentropy(
                ops.cast(chosen, copy.dtype), copy, from_logits=True
            )
        else:
            copied = self._divergence(teacher, copy)
        return (1 - self.weight) * labelled + self.weight * copied

    def _divergence(self, teacher, student):
        t = self.temperature
        log_p, log_q = (ops.log_softmax(x / t) for x in (teacher, student))
        return t**2 * ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)

    def get_config(self):
        """Return the constructor's arguments."""
        return super().get_config() | dict(
            method=self.method,
            weight=self.weight,
            temperature=self.temperature,
            label_smoothing=self.label_smoothing,
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class DistilledAccuracy(keras.metrics.CategoricalAccuracy):
    """The accuracy of a `distilled` model, as its student is evaluated."""

    def update_state(  # type: ignore[override]
        self, y_true, y_pred, sample_weight=None
    ):
        """Count labels, `[B, K]`, and outputs, `[B, 3, K]`."""
        student = ops.mean(ops.convert_to_tensor(y_pred)[:, :2], axis=1)
        return super().update_state(y_true, student, sample_weight)


@checked
def distilled(
    model: keras.Model,
    teacher: keras.Model | None = None,
    *,
    probabilities: bool = False,
) -> keras.Model:
    """Return a model to train, of a student and what its teacher predicts.

    It shares the layers of `model`, which is then saved; the teacher is frozen.
    Both see the same images, after all augmentation.

    Args:
        model: A classifier of this package; with a distillation token (DeiT),
            that token learns from the teacher.
        teacher: A classifier of the same classes, of this package or not, that
            takes pixels in [0, 255]; images are resized to its size. None if
            the data have its predictions (`with_predictions`).
        probabilities: Whether the teacher gives probabilities, not logits.

    Input shape: `[B, H, W, C]`; without `teacher` {"images": `[B, H, W, C]`,
        "teacher": `[B, K]`}.
    Output shape: `[B, 3, K]`: logits of the class token, of the distillation
        token, and of the teacher.

    Raises:
        ValueError: If the model is no classifier or gives probabilities, or
            the teacher has other classes, contradicts `probabilities`, or alone
            scales pixels.

    Reference:
        Touvron et al. 2021, section 4.
    """
    if not isinstance(teacher, keras.Model | None):
        raise ValueError(
            "`teacher` must be a model, as `open_teacher` opens, or None. "
            f"Received: {teacher!r}"
        )
    inner = ImageModel.find(model)
    if inner.head is None:
        raise ValueError(
            "`model` must have a head of classes. Received: "
            f"{model.name!r} with include_top=False"
        )
    given = output_of(last_layer(model.output))
    if given in PROBABILITIES:
        raise ValueError(
            "`model` must give logits, which the loss compares. Received: "
            f"{model.name!r}, whose last layer gives those of a {given}"
        )
    scales = getattr(teacher, "includes_preprocessing", False)
    if scales and not inner.includes_preprocessing:
        raise ValueError(
            "`model` must take pixels in [0, 255] as the teacher does, which "
            f"sees the same images. Received: {model.name!r} with "
            "include_preprocessing=False"
        )
    classes = model.output_shape[-1]
    images = model.input
    own = copy = model.output
    if isinstance(inner.head, DistilledHead):
        tokens = inner.head.input
        own = inner.head.token(tokens[:, 0])
        copy = inner.head.distillation(tokens[:, 1])
    inputs: Any = images
    if teacher is None:
        found = keras.Input((classes,), name=INPUT, dtype="float32")
        inputs = {"images": images, INPUT: found}
    else:
        found = predicted(
            images, teacher, inner.class_names, classes, probabilities
        )
        found = ops.stop_gradient(found)
    found = ops.cast(found, "float32")
    if probabilities:
        found = ops.log(ops.maximum(found, LEAST))
    outputs = [at_least_float32(own), at_least_float32(copy), found]
    trained = keras.Model(inputs, ops.stack(outputs, axis=1), name=model.name)
    clear_all_gradients(trained)  # the teacher may have the same paths
    return trained


def predicted(
    images: keras.KerasTensor,
    teacher: keras.Model,
    class_names: tuple[str, ...] | None,
    classes: int,
    probabilities: bool = False,
) -> keras.KerasTensor:
    """Return what a frozen teacher predicts of images, resized to its size.

    Args:
        images: `[B, H, W, C]`, symbolic.
        teacher: Its output is `[B, K]`.
        class_names: Those of the student, if it has any.
        classes: Their number K.
        probabilities: Whether the teacher gives probabilities, not logits.

    Raises:
        ValueError: If the teacher has other classes, or its last layer shows
            that it gives the other of the two.
    """
    check_classes(teacher, teacher.output_shape[-1], class_names, classes)
    given = output_of(last_layer(teacher.output))
    if given is not None and probabilities != (given in PROBABILITIES):
        raise ValueError(
            "`probabilities` must say whether the teacher gives probabilities "
            "or logits: their softmax would be another. Received: "
            f"probabilities={probabilities}, a teacher whose last layer gives "
            f"{given if given == 'logits' else f'those of a {given}'}"
        )
    teacher.trainable = False
    x, size = images, tuple(teacher.input_shape[1:3])
    if None not in size and size != tuple(images.shape[1:3]):
        # Half precision would round pixels.
        resizing = keras.layers.Resizing(
            size[0],
            size[1],
            data_format="channels_last",
            name="resize_for_teacher",
            dtype="float32",
        )
        x = resizing(x)
    return _Evaluated(teacher, name=teacher.name)(x)


@keras.saving.register_keras_serializable(package="keras_vit")
class _Evaluated(keras.layers.Wrapper):
    """A model without dropout in a model that is trained.

    Keras passes `training` to every layer of a functional model that takes it,
    whatever it was called with.
    """

    def __init__(self, layer, **kwargs):
        super().__init__(layer, autocast=False, **kwargs)

    def call(self, inputs):
        return self.layer(inputs, training=False)


def check_classes(
    teacher: keras.Model | Callable,
    found: int,
    class_names: tuple[str, ...] | None,
    classes: int,
) -> None:
    """Refuse a teacher of other classes, or in another order.

    Args:
        teacher: A model, or a function of `open_teacher`.
        found: Number of its classes.
        class_names: Those of the student, if it has any.
        classes: Their number.
    """
    names = tuple(getattr(teacher, "class_names", None) or ())
    differ = bool(names and class_names) and names != class_names
    if found != classes or differ:
        raise ValueError(
            "`teacher` must have the classes of the student, in the same "
            f"order. Received: {found} classes {list(names)[:5]}, the student "
            f"has {classes} {list(class_names or ())[:5]}"
        )


def open_teacher(path: str | os.PathLike) -> keras.Model | Callable:
    """Open a teacher of any kind.

    Args:
        path: A `.keras` file of any model, a directory of a SavedModel, an
            `.onnx` file; or whatever `keras_vit.from_pretrained` opens.

    Returns:
        A model; of a SavedModel or an ONNX file a function of tensors of
        TensorFlow for `with_predictions`, from pixels, `[B, H, W, C]`, to
        float32 `[B, K]`, with the `class_names` of those that this package
        exported, or None.

    Raises:
        ValueError: If the file is missing, or has not one input and one output.
        ImportError: If onnxruntime is not installed.
    """
    path = os.path.expanduser(os.fspath(path))
    if is_function_of_files(path):
        if path.endswith(".onnx"):
            require_file(path)
            return _of_onnx(path)
        return _of_saved_model(path)
    if path.endswith(".keras"):
        return keras.models.load_model(path, compile=False)
    return from_pretrained(path)


def is_function_of_files(path: str | os.PathLike) -> bool:
    """Return whether `open_teacher` gives a function, not a model."""
    found = pathlib.Path(os.path.expanduser(path))
    return found.suffix == ".onnx" or (found / "saved_model.pb").exists()


@checked
@unconverted
def with_predictions(batches, teacher: Callable, classes: Count):
    """Add the predictions of a teacher to batches of images.

    Args:
        batches: A tf.data.Dataset of {"images", ...}, augmented.
        teacher: A function of `open_teacher`.
        classes: Number of classes K.

    Returns:
        The same data set, in which "images" is {"images", "teacher"}: the
        predictions, float32 `[B, K]`.
    """
    tf = tensorflow()

    def add(batch):
        images = tf.cast(batch["images"], "float32")
        found = tf.ensure_shape(teacher(images), (images.shape[0], classes))
        return dict(batch, images={"images": batch["images"], INPUT: found})

    return batches.map(
        add, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    ).prefetch(tf.data.AUTOTUNE)


def _of_saved_model(path):
    tf = tensorflow()
    loaded = tf.saved_model.load(path)
    # That of our own files takes the bytes of JPEGs, and "logits" images.
    served = "logits" if "logits" in loaded.signatures else "serving_default"
    if served not in loaded.signatures:
        raise ValueError(
            "`teacher` must have a signature 'serving_default'. Received: "
            f"{path!r} with the signatures {[*loaded.signatures]}"
        )
    signature = loaded.signatures[served]
    arguments = signature.structured_input_signature[1]
    outputs = [*signature.structured_outputs]
    if served in outputs:  # beside the features
        outputs = [served]
    if len(arguments) != 1 or len(outputs) != 1:
        raise _not_one(path, [*arguments], outputs)
    ((name, spec),) = arguments.items()

    def predict(images):
        images = _fitted(images, spec.shape.as_list())
        # The loaded object holds the variables.
        found = loaded.signatures[served](**{name: tf.cast(images, spec.dtype)})
        return tf.cast(found[outputs[0]], "float32")

    names = pathlib.Path(path) / "assets.extra" / "labels.txt"
    if names.exists():
        return _named(predict, names.read_text("utf-8").splitlines())
    return _named(predict, None)


def _of_onnx(path):
    tf = tensorflow()
    session = optional("onnxruntime", "onnx").InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise _not_one(path, [x.name for x in inputs], outputs)
    kind = "uint8" if "uint8" in inputs[0].type else "float32"
    shape = [n if isinstance(n, int) else None for n in inputs[0].shape]

    def run(images):
        images = np.asarray(images).astype(kind)
        return session.run(None, {inputs[0].name: images})[0].astype("float32")

    def predict(images):
        images = _fitted(images, shape)
        return tf.numpy_function(run, [images], "float32")

    stated = session.get_modelmeta().custom_metadata_map.get("class_names")
    try:
        return _named(predict, json.loads(stated or "null"))
    except ValueError:  # of another exporter
        return _named(predict, None)


def _named(predict, names):
    """Return the function with its names, unless they are mere numbers."""
    if names == [str(i) for i in range(len(names or ()))]:
        names = None
    predict.class_names = names if isinstance(names, list) else None
    return predict


def _fitted(images, shape):
    """Return images of the size and the order of axes of a file's input."""
    tf = tensorflow()
    channels = images.shape[-1]
    first = len(shape) == 4 and shape[-1] != channels == shape[1]
    size = shape[2:] if first else shape[1:3]
    if None not in size and tuple(size) != tuple(images.shape[1:3]):
        images = tf.image.resize(images, size)
    return tf.transpose(images, (0, 3, 1, 2)) if first else images


def _not_one(path, inputs, outputs):
    return ValueError(
        "`teacher` must have one input, of images, and one output, of classes. "
        f"Received: {path!r} with {len(inputs)} inputs and {len(outputs)} "
        "outputs"
    )
