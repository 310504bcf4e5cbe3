"""A model as one file for another runtime: ONNX and LiteRT.

Keras writes both. What it writes from which backend was measured with Keras
3.15.1; the file is run before it is handed over, so a later Keras, or a model
that a converter gets wrong, ends in an error and not in a wrong file.

Only backends are offered that write files for any number of images. PyTorch
does not: its tracers fix the batch, or where they do not, fail on the class
token's, and its LiteRT converter refuses the stem of a hybrid (`tfl.pow`).
"""

import importlib.util
import os
import tempfile

import keras
import numpy as np

from keras_vit.export import precision

# Largest difference to the model's own outputs, by the largest output. In an
# int8 model a difference in a float's last bit moves some activations to the
# next of their 255 steps: on ViT-B/16 calling and predicting differ by 1.3e-2
# in Keras itself, its ONNX file by 1.8e-2. That finds a wrong file, no more.
TOLERANCES = dict(float32=1e-3, int8=5e-2)
# Both formats address their content with 31 bits.
MAX_BYTES = 2**31 - 1

LIMITS = {
    "onnx": (
        "An ONNX file takes any number of images as float32 pixels in "
        "[0, 255], decoded and of the model's size; it holds neither JPEG "
        "decoding nor resizing, and less than 2 GiB. Made of float32 and int8 "
        "models, on TensorFlow or JAX (hybrids: TensorFlow)."
    ),
    "litert": (
        "A LiteRT file takes float32 pixels in [0, 255], decoded and of the "
        "model's size, one image unless the interpreter resizes its input; it "
        "holds neither JPEG decoding nor resizing, and less than 2 GiB. Made "
        "of float32 models, on TensorFlow."
    ),
}

_SUFFIXES = dict(onnx=".onnx", litert=".tflite")
# Format -> backend -> modules that Keras or the check import, as pip has them.
_NEEDS = {
    "onnx": {
        "tensorflow": dict(tf2onnx="tf2onnx", onnxruntime="onnxruntime"),
        "jax": dict(jax2onnx="jax2onnx", onnxruntime="onnxruntime"),
    },
    "litert": {"tensorflow": dict(ai_edge_litert="ai-edge-litert")},
}
_DTYPES = dict(onnx=("float32", "int8"), litert=("float32",))


def export_onnx(model: keras.Model, path: str) -> str:
    """Writes a model as an ONNX file, checked with ONNX Runtime.

    The file takes float32 images `[B, H, W, C]` of any batch size, with what
    scaling of pixels the model has, and gives what the model gives. Decoding
    and resizing of images are not in it. Of a model that
    `in_precision(model, "int8")` made it keeps the 8-bit kernels.

    Args:
        model: A float32 or int8 model of this package, below 2 GiB.
        path: The file, `*.onnx`. It appears when it is complete and checked.

    Returns:
        `path`.

    Raises:
        ValueError: If the backend cannot write the format, a library is
            missing, the format cannot hold the model, or the file's outputs
            differ from the model's by more than 1e-3 of the largest (5e-2
            for int8).
    """
    return _export(model, path, "onnx", _run_onnx)


def export_litert(model: keras.Model, path: str) -> str:
    """Writes a model as a LiteRT (TFLite) file, checked with its interpreter.

    The file takes float32 images `[1, H, W, C]`, or `[B, H, W, C]` after the
    interpreter's `resize_tensor_input`, with what scaling of pixels the model
    has, and gives what the model gives. Decoding and resizing of images are
    not in it. It needs no TensorFlow operators, so LiteRT runs it alone.

    Args:
        model: A float32 model of this package, below 2 GiB.
        path: The file, `*.tflite`. It appears when complete and checked.

    Returns:
        `path`.

    Raises:
        ValueError: As for `export_onnx`.
    """
    return _export(model, path, "litert", _run_litert)


def _export(model, path, file_format, run):
    """Writes beside `path`, runs what was written, then moves it there."""
    path = os.fspath(path)
    tolerance = TOLERANCES[_check(model, path, file_format)]
    # Two images: a file that fixed the batch to one would not take them.
    images = np.random.default_rng(0).uniform(
        0, 255, (2, *model.input_shape[1:])
    )
    images = images.astype("float32")
    # On the CPU, as in the runtimes: GPUs round products of float32. Called
    # and not predicted, since Keras exports no model that was never called.
    with keras.device("cpu:0"):
        expected = keras.ops.convert_to_numpy(model(images, training=False))
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    # A folder of its own in the same file system: then the move is atomic,
    # and nothing is left of a failure.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as parts:
        part = os.path.join(parts, "model" + _SUFFIXES[file_format])
        # Converters and runtimes raise what they like.
        try:
            model.export(part, format=file_format, verbose=False)
            outputs = run(part, images)
        except Exception as error:
            raise ValueError(
                f"`model` cannot be written as {file_format} with the backend "
                f"{keras.backend.backend()}: {error}. {_remedy(file_format)}"
            ) from error
        relative = precision.differences(expected, outputs)[1]
        if not relative <= tolerance:
            raise ValueError(
                f"The {file_format} file must give the model's outputs to "
                f"{tolerance:g} of the largest. Received: a difference of "
                f"{relative:.2g}, so {path!r} was not written"
            )
        os.replace(part, path)
    return path


def _check(model, path, file_format):
    """Refuses at once what could only fail later; returns the precision."""
    backend = keras.backend.backend()
    if backend not in _NEEDS[file_format]:
        raise ValueError(
            f"The backend must be one of {tuple(_NEEDS[file_format])} to write "
            f"{file_format}. Received: {backend!r}. {_remedy(file_format)}"
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
    dtypes = {layer.compute_dtype for layer in model.layers}
    dtypes |= {weight.dtype for weight in model.weights}
    if not dtypes <= set(_DTYPES[file_format]):
        raise ValueError(
            f"`model` must be of {' and '.join(_DTYPES[file_format])} to be "
            f"written as {file_format}. Received: {sorted(dtypes)}. Export "
            'in_precision(model, "float32"), or the model an int8 one was '
            "made of."
        )
    size = precision.weights_bytes(model)
    if size > MAX_BYTES:
        raise ValueError(
            f"`model` must have less than 2 GiB of weights to be written as "
            f"{file_format}. Received: {size / 2**30:.2f} GiB"
        )
    return "int8" if "int8" in dtypes else "float32"


def _remedy(file_format):
    """Says what works for every model."""
    return (
        "Save the model as .keras and export it with KERAS_BACKEND=tensorflow"
        f" (pip install tensorflow "
        f"{' '.join(_NEEDS[file_format]['tensorflow'].values())})."
    )


def _run_onnx(path, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors come as exceptions, too
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def _run_litert(path, images):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path)
    index = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(index, images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(index, images)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
