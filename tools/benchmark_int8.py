"""Compares int8 with float32 in the files and runtimes of each format.

    python -m tools.benchmark_int8 [--model ViTS16] [--batch_sizes 1 8]

Exports the model with random weights, in float32 and int8, as a SavedModel, for
ONNX Runtime and for LiteRT, and prints milliseconds a batch (interleaved, with
the same pixels and all cores), sizes, and the differences from the float32
model on 32 images of noise.
"""

import functools
import os
import statistics
import sys
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.export import export_litert, export_onnx, precision
from keras_vit_cli import command
from tools.benchmark import measure

# Images of noise whose scores are compared.
NUM_COMPARED = 32


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print a table."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--model", default="ViTS16")
    parser.add_argument(
        "--batch_sizes", type=command.count, nargs="+", default=[1, 8]
    )
    parser.add_argument("--rounds", type=command.count, default=9)
    options = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)
    model = getattr(keras_vit, options.model)(weights=None)
    head = model.get_layer("head").kernel
    head.assign(keras.random.normal(head.shape, stddev=0.05, seed=0))
    rng = np.random.default_rng(0)
    count = max(NUM_COMPARED, *options.batch_sizes)
    shape = (count, *model.input_shape[1:])
    images = rng.uniform(0, 255, shape).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        candidates = _export(model, folder)
        sizes = {k: measure.bytes_of(p) for k, (p, _) in candidates.items()}
        runs = {name: load(path) for name, (path, load) in candidates.items()}
    print(f"{options.model}, {os.cpu_count()} cores, {options.rounds} rounds")
    for batch_size in options.batch_sizes:
        calls: dict = {
            name: functools.partial(run, images[:batch_size])
            for name, run in runs.items()
        }
        for name, seconds in measure.rounds(calls, options.rounds).items():
            low, high = 1e3 * min(seconds), 1e3 * max(seconds)
            middle = 1e3 * statistics.median(seconds)
            print(
                f"batch {batch_size}, {name}: {middle:.0f} ms "
                f"[{low:.0f}, {high:.0f}]"
            )
    images = images[:NUM_COMPARED]
    expected = model.predict_on_batch(images)
    for name, run in runs.items():
        found = precision.compare_outputs(expected, run(images))
        text = precision.report_text(name, found)
        print(f"{text}; {sizes[name] / 1e6:.1f} MB")
    return 0


def _export(model, folder):
    """Return name -> path and the function that loads it."""
    small = precision.in_precision(model, "int8")
    candidates = {}
    for kind in ("float32", "int8"):
        path = os.path.join(folder, kind, "1")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A model in int8")
            keras_vit.export_savedmodel(
                small if kind == "int8" else model, path
            )
        candidates[f"SavedModel {kind}"] = path, _saved_model
        path = os.path.join(folder, f"{kind}.onnx")
        candidates[f"ONNX {kind}"] = export_onnx(model, path, kind), _onnx
        path = os.path.join(folder, f"{kind}.tflite")
        candidates[f"LiteRT {kind}"] = export_litert(model, path, kind), _litert
    return candidates


def _saved_model(path):
    serve = tf.saved_model.load(path).signatures["logits"]
    return lambda images: serve(images=tf.constant(images))["logits"].numpy()


def _onnx(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def _litert(path):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=os.cpu_count())
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    (answer,) = interpreter.get_output_details()

    def run(images):
        shape = interpreter.get_input_details()[0]["shape"]
        if tuple(shape) != images.shape:
            interpreter.resize_tensor_input(given["index"], images.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(answer["index"])

    return run


if __name__ == "__main__":
    sys.exit(main())
