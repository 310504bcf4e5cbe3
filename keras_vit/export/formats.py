"""Exports a model to a file for another runtime: ONNX, LiteRT and OpenVINO.

Keras writes the files. The supported backends were measured with Keras 3.15.1.
Each file is run and compared with the model before it is moved to its path, so
an error of a later Keras or of a converter raises ValueError and leaves no
wrong file.

Only backends that write files for any number of images are supported. PyTorch
is not: its tracers fix the batch size, or else fail on the batch size of the
class token, and its LiteRT converter rejects the stem of a hybrid (`tfl.pow`).
"""

import importlib.util
import os
import sys
import tempfile
import zipfile

import keras
import numpy as np

from keras_vit.export import description, precision

# Largest difference from the model's own outputs, relative to the largest
# output. In an int8 model a difference in the last bit of a float moves some
# activations to the next of their 255 steps: for ViT-B/16, `call` and `predict`
# of Keras itself differ by 1.3e-2, and the ONNX file by 1.8e-2. The tolerance
# only detects a wrong file.
TOLERANCES = dict(float32=1e-3, int8=5e-2)
# ONNX and LiteRT address their contents with 31 bits.
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
    "openvino": (
        "An OpenVINO model takes any number of images as float32 pixels in "
        "[0, 255], decoded and of the model's size; it holds neither JPEG "
        "decoding nor resizing. The weights are in the .bin file beside it. "
        "Made of float32 models, on TensorFlow."
    ),
}

_SUFFIXES = dict(onnx=".onnx", litert=".tflite", openvino=".xml")
# Format -> backend -> modules that Keras or the check import -> pip packages.
_NEEDS = {
    "onnx": {
        "tensorflow": dict(tf2onnx="tf2onnx", onnxruntime="onnxruntime"),
        "jax": dict(jax2onnx="jax2onnx", onnxruntime="onnxruntime"),
    },
    "litert": {"tensorflow": dict(ai_edge_litert="ai-edge-litert")},
    "openvino": {"tensorflow": dict(openvino="openvino")},
}
_DTYPES = dict(
    onnx=("float32", "int8"), litert=("float32",), openvino=("float32",)
)


def export_onnx(model: keras.Model, path: str) -> str:
    """Writes a model as an ONNX file, checked with ONNX Runtime.

    The file takes float32 images `[B, H, W, C]` of any batch size, scales
    pixels as the model does, and returns the model's outputs. It does not
    decode or resize images. For a model from `in_precision(model, "int8")` it
    contains the 8-bit kernels. Its metadata contain the fields that
    `keras_vit.export.description` lists, each as JSON.

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
    return _export(model, path, "onnx", _run_onnx, _describe_onnx)


def export_litert(model: keras.Model, path: str) -> str:
    """Writes a model as a LiteRT (TFLite) file, checked with its interpreter.

    The file takes float32 images `[1, H, W, C]`, or `[B, H, W, C]` after the
    interpreter's `resize_tensor_input`, scales pixels as the model does, and
    returns the model's outputs. It does not decode or resize images. It needs
    no TensorFlow operators, so LiteRT alone can run it. The file is also a zip
    archive of associated files: `labels.txt`, one class name per line, and
    `description.json` (`keras_vit.export.description`).

    Args:
        model: A float32 model of this package, below 2 GiB.
        path: The file, `*.tflite`. It appears when complete and checked.

    Returns:
        `path`.

    Raises:
        ValueError: As for `export_onnx`.
    """
    return _export(model, path, "litert", _run_litert, _describe_litert)


def export_openvino(model: keras.Model, path: str) -> str:
    """Writes a model for OpenVINO, checked with its runtime.

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
    return _export(model, path, "openvino", _run_openvino, _describe_openvino)


def _export(model, path, file_format, run, describe):
    """Writes a file beside `path`, runs it, then moves it to `path`."""
    path = os.fspath(path)
    tolerance = TOLERANCES[_check(model, path, file_format)]
    fields = description.describe(model)
    # Two images: a file with a fixed batch size of one would reject them.
    images = np.random.default_rng(0).uniform(
        0, 255, (2, *model.input_shape[1:])
    )
    images = images.astype("float32")
    # On the CPU, as in the runtimes: GPUs round products of float32. The model
    # is called rather than `predict`, because Keras exports only models that
    # were called.
    with keras.device("cpu:0"):
        expected = keras.ops.convert_to_numpy(model(images, training=False))
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    # A temporary folder in the same file system: the move is atomic, and a
    # failure leaves nothing behind.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as parts:
        part = os.path.join(parts, "model" + _SUFFIXES[file_format])
        # Converters and runtimes raise many kinds of exceptions.
        try:
            if file_format == "openvino":
                _openvino()
            if file_format == "onnx" and keras.backend.backend() != "jax":
                _prepare_tf2onnx()
            model.export(part, format=file_format, verbose=False)
            describe(part, fields)
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
        stem = path.removesuffix(_SUFFIXES[file_format])
        # Move the weights first: a model without them would not load.
        for name in sorted(os.listdir(parts)):
            suffix = os.path.splitext(name)[1]
            os.replace(os.path.join(parts, name), stem + suffix)
    return path


def _prepare_tf2onnx():
    """Adds the operation in TensorFlow's exact GELU, erfc(x) = 1 - erf(x).

    It also stops tf2onnx from copying the graph, with all weights, before each
    of 36 optimizations, which took 60 % of the time, to continue without those
    that fail: a file that is wrong is found when it is run.
    """
    from tf2onnx.handler import tf_op

    os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "FALSE")

    @tf_op("Erfc")
    class _:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            [x], [y] = node.input, node.output
            shape, dtype = ctx.get_shape(y), ctx.get_dtype(y)
            ctx.remove_node(node.name)
            one = ctx.make_const(f"{node.name}/one", np.array(1, "float32"))
            erf = ctx.make_node("Erf", [x]).output[0]
            ctx.make_node(
                "Sub",
                [one.output[0], erf],
                outputs=[y],
                shapes=[shape],
                dtypes=[dtype],
            )


def _check(model, path, file_format):
    """Raises early for an export that would fail; returns the precision."""
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
    """Returns the remedy that works for every model."""
    return (
        "Save the model as .keras and export it with KERAS_BACKEND=tensorflow"
        f" (pip install tensorflow "
        f"{' '.join(_NEEDS[file_format]['tensorflow'].values())})."
    )


def _run_onnx(path, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised as exceptions anyway
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


def _run_openvino(path, images):
    core = _openvino().Core()
    # The default on some processors is bfloat16.
    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    return core.compile_model(path, "CPU", hints)(images)[0]


def _describe_onnx(path, fields):
    import onnx

    model = onnx.load(path)
    onnx.helper.set_model_props(model, description.as_json(fields))
    onnx.save(model, path)


def _describe_litert(path, fields):
    # The format of TensorFlow Lite's own metadata tool: an archive of the
    # associated files after the model, which readers of the model ignore.
    with zipfile.ZipFile(path, "a") as archive:
        for name, text in description.as_files(fields).items():
            archive.writestr(name, text)


def _describe_openvino(path, fields):
    openvino = _openvino()
    # Read into memory, because the same files are overwritten.
    with open(path, "rb") as structure:
        with open(path.removesuffix(".xml") + ".bin", "rb") as weights:
            model = openvino.Core().read_model(structure.read(), weights.read())
    for name, text in description.as_json(fields).items():
        model.set_rt_info(text, ["keras_vit", name])
    openvino.serialize(model, path)


def _openvino():
    """Imports OpenVINO without its telemetry."""
    sys.modules.setdefault("openvino_telemetry", None)
    import openvino

    return openvino
