"""Exports a model to a file for another runtime: ONNX, LiteRT and OpenVINO.

Keras writes the files. The supported backends were measured with Keras 3.15.1.
Each file is run and compared with the model before it is moved to its path, so
an error of a later Keras or of a converter raises ValueError and leaves no
wrong file. ONNX Runtime and the LiteRT converter quantise their files to int8
themselves, into operations that they run faster than float32.

Only backends that write files for any number of images are supported. For
LiteRT PyTorch is not: its converter rejects the stem of a hybrid (`tfl.pow`).
"""

import importlib.util
import os
import tempfile
from typing import Literal

import keras
import numpy as np

from keras_vit._arguments import checked
from keras_vit.export import description, onnx_files, task_signatures
from keras_vit.export.precision import (
    differences,
    warn_of_slow_int8,
    weights_bytes,
)
from keras_vit.export.runtimes import DESCRIBE, openvino_library, run_file
from keras_vit.heads import TaskModel
from keras_vit.models import ImageModel
from keras_vit.text import TextModel, TwoTowers

# Largest difference from the model's own outputs, relative to the largest
# output. In an int8 model a difference in the last bit of a float moves some
# activations to the next of their 255 steps: for ViT-B/16, `call` and `predict`
# of Keras itself differ by 1.3e-2, and the ONNX file by 1.8e-2. A file that is
# quantised from float32 differs by the quantisation: by 0.02 for ViT-S/16, and
# by 0.07 for the noisy weights of the tests. These tolerances only detect wrong
# files.
TOLERANCES = {"float32": 1e-3, "int8": 5e-2, "float32 to int8": 0.5}
# ONNX and LiteRT address their contents with 31 bits.
MAX_BYTES = 2**31 - 1

LIMITS = {
    "onnx": (
        "An ONNX file takes any number of images as float32 pixels in "
        "[0, 255], decoded and of the model's size; it holds neither JPEG "
        "decoding nor resizing, and less than 2 GiB. Made of float32 and int8 "
        "models, on TensorFlow, PyTorch or JAX (models with pooling: not on "
        "JAX); int8 pays on a CPU if it is made by the export, of a float32 "
        "model."
    ),
    "litert": (
        "A LiteRT file takes float32 pixels in [0, 255], decoded and of the "
        "model's size, one image unless the interpreter resizes its input; it "
        "holds neither JPEG decoding nor resizing, and less than 2 GiB. Made "
        "of float32 models, on TensorFlow, in float32 or int8."
    ),
    "openvino": (
        "An OpenVINO model takes any number of images as float32 pixels in "
        "[0, 255], decoded and of the model's size; it holds neither JPEG "
        "decoding nor resizing, and less than 2 GiB. The weights are in the "
        ".bin file beside it. Made of float32 models, on TensorFlow or PyTorch."
    ),
}

_SUFFIXES = dict(onnx=".onnx", litert=".tflite", openvino=".xml")
# Format -> backend -> modules that Keras or the check import -> pip packages.
_NEEDS = {
    "onnx": {
        "tensorflow": dict(tf2onnx="tf2onnx", onnxruntime="onnxruntime"),
        "jax": dict(jax2onnx="jax2onnx", onnxruntime="onnxruntime"),
        "torch": dict(onnxscript="onnxscript", onnxruntime="onnxruntime"),
    },
    "litert": {"tensorflow": dict(ai_edge_litert="ai-edge-litert")},
    "openvino": {
        "tensorflow": dict(tf2onnx="tf2onnx", openvino="openvino"),
        "torch": dict(onnxscript="onnxscript", openvino="openvino"),
    },
}
# Families whose pooling jax2onnx writes as operations that cannot run.
_POOLS_WITH_JAX = ("axial_resnet", "bit", "conv_mlp", "mvit")
# Data types of the models from which a file is made.
_DTYPES = dict(
    onnx=("float32", "int8"), litert=("float32",), openvino=("float32",)
)


# Formats that quantise a float32 model.
QUANTIZED = ("onnx", "litert")


@checked
def export_onnx(
    model: keras.Model,
    path: str | os.PathLike,
    precision: Literal["float32", "int8"] = "float32",
) -> str:
    """Write a model as an ONNX file, checked with ONNX Runtime.

    The file takes float32 images `[B, H, W, C]` of any batch size, scales
    pixels as the model does, and returns the model's outputs, those of a model
    with a head under their names. It does not decode or resize images. Its
    metadata contain the fields that
    `keras_vit.export.description` lists, each as JSON. That of a text tower
    takes int32 ids, `[B, L]`; of two towers each is a file.

    With `precision="int8"`, ONNX Runtime quantises the kernels of dense layers,
    and activations as they are multiplied with them; this is smaller and, on a
    CPU, faster. The file of a model from `in_precision(model, "int8")` contains
    its 8-bit kernels, and is slower than float32.

    Args:
        model: A float32 or int8 model of this package, below 2 GiB.
        path: The file, `*.onnx`. It appears when it is complete and checked.
        precision: "float32", or "int8" to quantise a float32 model.

    Returns:
        `path`.

    Raises:
        ValueError: If the backend cannot write the format, a library is
            missing, the format cannot hold the model, or the file's outputs
            differ from the model's by more than 1e-3 of the largest (5e-2
            for a model in int8, 0.5 if the file is quantised).
    """
    return _export(model, path, "onnx", precision)


@checked
def export_litert(
    model: keras.Model,
    path: str | os.PathLike,
    precision: Literal["float32", "int8"] = "float32",
) -> str:
    """Write a model as a LiteRT (TFLite) file, checked with its interpreter.

    The file takes float32 images `[1, H, W, C]`, or `[B, H, W, C]` after the
    interpreter's `resize_tensor_input`, scales pixels as the model does, and
    returns the model's outputs; those of a head have their names in the file's
    signature (`get_signature_runner`). It does not decode or resize images. It
    needs no TensorFlow operators, so LiteRT alone can run it. It is also a zip
    archive of associated files: `labels.txt`, one class name per line, and
    `description.json` (`keras_vit.export.description`).

    With `precision="int8"`, the converter quantises the kernels of all layers
    but small ones, and the interpreter quantises activations as it multiplies
    them with those of dense layers ("dynamic range"); this is smaller and, on
    a CPU, faster.

    Args:
        model: A float32 model of this package, below 2 GiB.
        path: The file, `*.tflite`. It appears when complete and checked.
        precision: "float32" or "int8".

    Returns:
        `path`.

    Raises:
        ValueError: As for `export_onnx`.
    """
    return _export(model, path, "litert", precision)


@checked
def export_openvino(model: keras.Model, path: str | os.PathLike) -> str:
    """Write a model for OpenVINO, checked with its runtime.

    It takes float32 images `[B, H, W, C]` of any batch size, scales pixels as
    the model does, and returns the model's outputs. It does not decode or
    resize images. Its `rt_info` has a section "keras_vit" with the fields that
    `keras_vit.export.description` lists, each as JSON.

    Args:
        model: A float32 model of this package, below 2 GiB.
        path: The file, `*.xml`; the weights are written beside it, `*.bin`.

    Returns:
        `path`.

    Raises:
        ValueError: As for `export_onnx`.
    """
    return _export(model, path, "openvino", "float32")


def _export(model, path, file_format, precision):
    """Write a file beside `path`, runs it, then moves it to `path`."""
    path = os.fspath(path)
    tolerance = _check(model, path, file_format, precision)
    fields = description.describe(model)
    if file_format == "litert":
        description.as_files(fields)  # refuses names before the work
    images = _examples(model)
    # On the CPU, as in the runtimes: GPUs round products of float32. The model
    # is called rather than `predict`, because Keras exports only models that
    # were called.
    if isinstance(model, TaskModel):
        model = task_signatures.outputs_of(model)
    with keras.device("cpu:0"):
        expected = keras.tree.map_structure(
            keras.ops.convert_to_numpy, model(images, training=False)
        )
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    # A temporary folder in the same file system: the move is atomic, and a
    # failure leaves nothing behind.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as parts:
        part = os.path.join(parts, "model" + _SUFFIXES[file_format])
        # Converters and runtimes raise many kinds of exceptions.
        try:
            _write(model, part, file_format, precision)
            DESCRIBE[file_format](part, fields)
            outputs = run_file(part, images)
        except Exception as error:
            raise ValueError(
                f"`model` cannot be written as {file_format} with the backend "
                f"{keras.backend.backend()}: {error}. {_remedy(file_format)}"
            ) from error
        relative = _largest_difference(expected, outputs)
        if not relative <= tolerance:
            raise ValueError(
                f"The {file_format} file must give the model's outputs to "
                f"{tolerance:g} of the largest. Received: a difference of "
                f"{relative:.2g}, so {path!r} was not written"
            )
        stem = path.removesuffix(_SUFFIXES[file_format])
        # Move the weights first: a model without them would not load.
        for name in sorted(os.listdir(parts)):
            suffix = os.path.splitext(name)[1]
            os.replace(os.path.join(parts, name), stem + suffix)
    return path


def _examples(model):
    """Return two inputs, which a file for exactly one would reject."""
    rng = np.random.default_rng(0)
    shape = (2, *model.input_shape[1:])
    if isinstance(model, TextModel):
        config = model.architecture
        ids = rng.integers(0, config.vocab_size, shape, "int32")
        if config.pooling == "end":
            ids[:, -1] = config.end_token
        return ids
    return rng.uniform(0, 255, shape).astype("float32")


def _largest_difference(expected, outputs):
    """Return the largest difference of an output, relative to its largest."""
    if not isinstance(expected, dict):
        return differences(expected, outputs)[1]
    if len(expected) == 1:
        outputs = dict.fromkeys(expected, outputs)
    if set(expected) != set(outputs):
        raise ValueError(
            f"The file must have the outputs {sorted(expected)}. Received: "
            f"{sorted(outputs)}"
        )
    return max(differences(x, outputs[name])[1] for name, x in expected.items())


def _write(model, path, file_format, precision):
    """Write the file, quantised if `precision` is "int8"."""
    if file_format == "openvino":
        # OpenVINO's own conversion of TensorFlow's graphs fails for some
        # families, and adds outputs to those of others.
        source = path.removesuffix(".xml") + ".onnx"
        onnx_files.write(model, source, precision)
        openvino = openvino_library()
        openvino.serialize(openvino.Core().read_model(source), path)
        os.remove(source)
    elif file_format == "onnx":
        onnx_files.write(model, path, precision)
    else:
        options = {}
        if precision == "int8":
            import tensorflow as tf

            options["optimizations"] = [tf.lite.Optimize.DEFAULT]
        model.export(path, format=file_format, verbose=False, **options)


def _check(model, path, file_format, precision):
    """Raise early for an export that would fail; returns the tolerance."""
    _check_backend(model, path, file_format)
    dtypes = {layer.compute_dtype for layer in model.layers}
    dtypes |= {weight.dtype for weight in model.weights}
    if not dtypes <= set(_DTYPES[file_format]):
        raise ValueError(
            f"`model` must be of {' and '.join(_DTYPES[file_format])} to be "
            f"written as {file_format}. Received: {sorted(dtypes)}. Export "
            'in_precision(model, "float32"), or the model an int8 one was '
            "made of."
        )
    if precision != "float32" and isinstance(model, TaskModel):
        raise ValueError(
            "`precision` must be 'float32' for a model with a head of "
            f"keras_vit.heads. Received: precision={precision!r}"
        )
    size = weights_bytes(model)
    if size > MAX_BYTES:
        raise ValueError(
            f"`model` must have less than 2 GiB of weights to be written as "
            f"{file_format}. Received: {size / 2**30:.2f} GiB"
        )
    if "int8" not in dtypes:
        quantizes = precision == "int8"
        return TOLERANCES["float32 to int8" if quantizes else "float32"]
    if precision == "int8":
        raise ValueError(
            '`model` must be of float32 for precision="int8". Received: one '
            "that is quantised already. Export the model it was made of."
        )
    warn_of_slow_int8(model, stacklevel=5)
    return TOLERANCES["int8"]


def _check_backend(model, path, file_format):
    """Check that this backend, with what is installed, writes the file."""
    backend = keras.backend.backend()
    if backend not in _NEEDS[file_format]:
        raise ValueError(
            f"The backend must be one of {tuple(_NEEDS[file_format])} to write "
            f"{file_format}. Received: {backend!r}. {_remedy(file_format)}"
        )
    if isinstance(model, TwoTowers):
        raise ValueError(
            "`model` must be one tower: write `model.image_tower` and "
            f"`model.text_tower`, a file each. Received: {model.name!r}"
        )
    task_signatures.check_inputs(model)
    is_text = isinstance(model, TextModel)
    inner = model if is_text else ImageModel.find(model)
    is_hybrid = bool(getattr(inner.architecture, "resnet_depths", ()))
    if (file_format, backend) == ("onnx", "jax") and (
        is_hybrid or getattr(inner, "family", "") in _POOLS_WITH_JAX
    ):
        raise ValueError(
            f"`model` must be none of {_POOLS_WITH_JAX} and no hybrid to be "
            "written as onnx with the backend jax: jax2onnx writes their "
            f"pooling wrongly. Received: {model.name!r}. {_remedy(file_format)}"
        )
    if not path.endswith(_SUFFIXES[file_format]):
        raise ValueError(
            f"`path` must end in {_SUFFIXES[file_format]!r}. Received: {path!r}"
        )
    missing = [
        package
        for module, package in _NEEDS[file_format][backend].items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ValueError(
            f"Writing {path!r} needs {' and '.join(missing)}: "
            f"pip install {' '.join(missing)}"
        )


def _remedy(file_format):
    """Return the remedy that works for every model."""
    return (
        "Save the model as .keras and export it with KERAS_BACKEND=tensorflow"
        f" (pip install tensorflow "
        f"{' '.join(_NEEDS[file_format]['tensorflow'].values())})."
    )
