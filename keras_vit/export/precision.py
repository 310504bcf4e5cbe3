"""Copies of a model in fewer bits, and a report of the differences."""

import typing
import warnings
from typing import Literal

import keras
import numpy as np

from keras_vit import layers
from keras_vit._arguments import Count, checked
from keras_vit.heads.task_model import Task
from keras_vit.layers.keras_layers import check_float

Precision = Literal["float32", "bfloat16", "float16", "int8"]
PRECISIONS = typing.get_args(Precision)

# Pixels up to 255 and the scores are float32 in every precision.
_ALWAYS_FLOAT32 = (
    keras.layers.InputLayer,
    layers.EnsureShape,
    keras.layers.Rescaling,
    layers.ClassificationHead,
    layers.DistilledHead,
    Task,
)


@checked
def in_precision(model: keras.Model, precision: Precision) -> keras.Model:
    """Return a copy of a model that holds and computes in a precision.

    "bfloat16" and "float16" store every weight and compute in that type, except
    for the computations that the layers of this package and Keras' norms
    perform in float32 under any policy: softmax, means and variances, the
    scaling of pixels, the head. "int8" stores the kernels of all dense layers,
    including the head, in 8 bits, with one scale per output, and multiplies
    them with activations that are rounded to 8 bits row by row; everything else
    stays float32, including the patch embedding and the stem of a hybrid.

    Fewer bits save memory, not always time: on a CPU TensorFlow runs ViT-B/16
    in int8 at less than half its float32 speed. `export_onnx` and
    `export_litert` with `precision="int8"` write files that are faster.

    Scores are float32. The output of a model without a head has its compute
    type. The copy has no optimizer, but the loss, which states what makes
    probabilities of the scores. It is saved and loaded like any other model;
    the 8-bit kernels of an int8 copy cannot be trained.

    Args:
        model: A functional model of this package, in any float precision.
        precision: "float32", "bfloat16", "float16" or "int8".

    Raises:
        ValueError: If `precision` is unknown, or `model` is quantised already,
            not functional, or has a model inside.
    """
    config = _functional_config(model)
    own = {layer.name: layer for layer in model.layers}
    for entry in config["layers"]:
        layer = own.get(entry["name"])  # None is an operation, without a type
        if layer is not None and not isinstance(layer, _ALWAYS_FLOAT32):
            entry["config"]["dtype"] = (
                "float32" if precision == "int8" else precision
            )
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    if precision == "int8":
        copy.quantize("int8", filters=layers.quantizable)
    if getattr(model, "loss", None) is not None:
        copy.compile(optimizer=None, loss=model.loss)
    return copy


@checked
def compare(
    model: keras.Model,
    other: keras.Model,
    images: np.ndarray,
    batch_size: Count = 32,
) -> dict:
    """Measure the differences of the outputs of two models on images.

    Args:
        model: The model to compare with.
        other: The model that is compared, such as a copy in fewer bits.
        images: Input of both, `[B, H, W, C]`.
        batch_size: Images at a time.

    Returns:
        `images`, their number; `max_difference`, the largest difference of two
        outputs; `relative_difference`, its ratio to the largest output of
        `model`; `top1_agreement`, the share of images (or positions, if `model`
        scores each) whose largest output is the same. The differences are
        infinite if outputs are not finite, for example after an overflow in
        float16.

    Raises:
        ValueError: If there are no images, they do not fit a model, or the
            outputs of the models differ in shape or are several.
    """
    images = np.asarray(images)
    shapes = [each.output_shape for each in (model, other)]
    is_one = not isinstance(getattr(model, "output", None), (dict, list))
    if shapes[0] != shapes[1] or not is_one:
        raise ValueError(
            "`model` and `other` must have one output of the same shape, and "
            "no dictionary of outputs. "
            f"Received: {shapes[0]} and {shapes[1]}"
        )
    for argument, each in (("model", model), ("other", other)):
        if images.shape[1:] != each.input_shape[1:]:
            raise ValueError(
                f"`images` must be a batch of the size `{argument}` "
                f"takes, {each.input_shape[1:]}. Received: shape {images.shape}"
            )
    if not len(images):
        raise ValueError("`images` must hold one image at least. Received: 0")
    expected, outputs = (
        each.predict(images, batch_size=batch_size, verbose=0)
        for each in (model, other)
    )
    return compare_outputs(expected, outputs)


def compare_outputs(expected: np.ndarray, outputs: np.ndarray) -> dict:
    """Return what `compare` measures, for outputs `[B, ..., K]`."""
    expected, outputs = (
        np.asarray(each, "float32") for each in (expected, outputs)
    )
    difference, relative = differences(expected, outputs)
    same = expected.argmax(axis=-1) == outputs.argmax(axis=-1)
    return dict(
        images=len(expected),
        max_difference=difference,
        relative_difference=relative,
        top1_agreement=float(same.mean()),
    )


def differences(
    expected: np.ndarray, outputs: np.ndarray
) -> tuple[float, float]:
    """Return max |outputs - expected|, and its ratio to max |expected|.

    Both are infinite if a number of either is not finite. The ratio is zero if
    nothing differs, even if all numbers are zero.
    """
    if not (np.isfinite(expected).all() and np.isfinite(outputs).all()):
        return float("inf"), float("inf")
    difference = float(np.abs(outputs - expected).max())
    largest = float(np.abs(expected).max())
    if largest == 0:
        return difference, float("inf") if difference else 0.0
    return difference, difference / largest


def report_text(precision: str, comparison: dict) -> str:
    """Return the result of `compare` as a line of text."""
    images = comparison["images"]
    on = f"{precision}: on {images} image{'' if images == 1 else 's'}"
    if not np.isfinite(comparison["max_difference"]):
        return f"{on} some outputs are not finite numbers"
    return (
        f"{on} outputs differ by at most {comparison['max_difference']:.3g} "
        f"({comparison['relative_difference']:.2%} of the largest), and the "
        f"first class is the same on {comparison['top1_agreement']:.1%}"
    )


def warn_of_slow_int8(model: keras.Model, stacklevel: int):
    """Warn before the export of a model that Keras quantised to int8.

    Measured on a CPU: SavedModels with ViT-B/16, ONNX with ViT-S/16.
    """
    if any(weight.dtype == "int8" for weight in model.weights):
        warnings.warn(
            "A model in int8 takes a quarter of the space of float32 and, in "
            "TensorFlow and in ONNX files of it, more than twice its time on a "
            "CPU. Faster than float32 are the files of export_litert and "
            'export_onnx(float32_model, path, precision="int8"): keras-vit '
            "export MODEL.keras model.tflite --precision int8.",
            stacklevel=stacklevel,
        )


def weights_bytes(model: keras.Model) -> int:
    """Return the size of a model's weights in memory, in bytes."""
    return sum(
        int(np.prod(weight.shape)) * np.dtype(weight.dtype).itemsize
        for weight in model.weights
    )


def _functional_config(model):
    """Return the configuration of a functional model of layers."""
    config = model.get_config() if isinstance(model, keras.Model) else {}
    if "input_layers" not in config:
        raise ValueError(
            "`model` must be a functional model, as keras_vit's constructors "
            f"return. Received: {model!r}"
        )
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            raise ValueError(
                "`model` must be made of layers alone. Received: a model with "
                f"the model `{layer.name}` inside"
            )
    check_float(model, "model")
    return config
