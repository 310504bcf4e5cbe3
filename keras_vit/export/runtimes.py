"""Runs and describes files of ONNX, LiteRT and OpenVINO, by their libraries."""

import contextlib
import os
import zipfile
from importlib import metadata

import numpy as np

from keras_vit.export import description


def run_file(
    path: str, images: np.ndarray
) -> np.ndarray | dict[str, np.ndarray]:
    """Return the output of a file that was exported here, on the CPU.

    `images` are float32 `[B, H, W, C]`, pixels in [0, 255]. Of several outputs,
    as of a model with a head, it returns a dictionary.
    """
    suffix = os.path.splitext(path)[1]
    run = {".onnx": run_onnx, ".tflite": run_litert, ".xml": run_openvino}
    return run[suffix](path, images)


def run_onnx(path, images):
    """Do what `run_file` does, by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised as exceptions anyway
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, {session.get_inputs()[0].name: images})
    return _one_or_all(names, found)


def run_litert(path, images):
    """Do what `run_file` does, by LiteRT's interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    # The names of the outputs are those of the signature, not of the tensors.
    run = Interpreter(path).get_signature_runner()
    (name,) = run.get_input_details()
    found = run(**{name: images})
    return _one_or_all(list(found), list(found.values()))


def _one_or_all(names, found):
    """Return the only output, or all by their names."""
    return found[0] if len(found) == 1 else dict(zip(names, found, strict=True))


def run_openvino(path, images):
    """Do what `run_file` does, by OpenVINO."""
    core = openvino_library().Core()
    # The default on some processors is bfloat16.
    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    model = core.compile_model(path, "CPU", hints)
    found = model(images)
    names = [output.get_any_name() for output in model.outputs]
    return _one_or_all(names, [found[output] for output in model.outputs])


def describe_onnx(path, fields):
    """Write the fields of a description into a file."""
    import onnx

    model = onnx.load(path)
    onnx.helper.set_model_props(model, description.as_json(fields))
    # PyTorch notes which lines of code, by their paths on this machine, made
    # each operation.
    for node in model.graph.node:
        node.ClearField("metadata_props")
    onnx.save(model, path)


def describe_litert(path, fields):
    """Write the fields of a description into a file."""
    # The format of TensorFlow Lite's own metadata tool: an archive of the
    # associated files after the model, which readers of the model ignore.
    with zipfile.ZipFile(path, "a") as archive:
        for name, text in description.as_files(fields).items():
            archive.writestr(name, text)


def describe_openvino(path, fields):
    """Write the fields of a description into a file."""
    openvino = openvino_library()
    # Read into memory, because the same files are overwritten.
    with open(path, "rb") as structure:
        with open(path.removesuffix(".xml") + ".bin", "rb") as weights:
            model = openvino.Core().read_model(structure.read(), weights.read())
    for name, text in description.as_json(fields).items():
        model.set_rt_info(text, ["keras_vit", name])
    openvino.serialize(model, path)


DESCRIBE = dict(
    onnx=describe_onnx, litert=describe_litert, openvino=describe_openvino
)


def openvino_library():
    """Import OpenVINO without statistics of its use, unless the user agreed."""
    with contextlib.suppress(ImportError):
        import openvino_telemetry

        # There is one object. With the question enabled it sends nothing before
        # the user has agreed; otherwise OpenVINO, when it is imported, makes
        # one that sends without asking.
        openvino_telemetry.Telemetry(
            app_name="OpenVINO",
            app_version=metadata.version("openvino"),
            tid="",
            backend="ga4",
            enable_opt_in_dialog=True,
        )
    import openvino

    return openvino
