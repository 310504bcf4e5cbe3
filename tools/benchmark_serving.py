"""Compares an exported SavedModel with its model.

    python -m tools.benchmark_serving [--model ViTB16] [--requests 10000]

Exports the model with random weights to a temporary directory and prints: the
size of the files against that of the weights, the time to load, images per
second of `model.predict` and of the SavedModel (interleaved, on the same
pixels), and the latency of many requests of one JPEG, first tenth against
last, with the number of graphs before and after.
"""

import os
import statistics
import sys
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit_cli import command
from tools.benchmark import measure


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print each result."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--model", default="ViTB16")
    parser.add_argument("--requests", type=command.count, default=10_000)
    parser.add_argument("--request_model", default="ViTTi16")
    parser.add_argument("--batch_size", type=command.count, default=8)
    parser.add_argument("--rounds", type=command.count, default=5)
    options = parser.parse_args(arguments)
    print(f"Keras {keras.__version__} on {keras.backend.backend()}")
    model, loaded = _exported(options.model)
    _throughput(model, loaded, options.batch_size, options.rounds)
    _, loaded = _exported(options.request_model)
    _latency(loaded, options)
    return 0


def _exported(name):
    """Return a model with random weights and its SavedModel; print sizes."""
    model = getattr(keras_vit, name)()
    kernel = model.get_layer("head").kernel
    rng = np.random.default_rng(0)
    kernel.assign(rng.normal(size=kernel.shape) * 0.02)
    with tempfile.TemporaryDirectory() as folder:
        path, start = os.path.join(folder, "1"), time.perf_counter()
        keras_vit.export_savedmodel(model, path)
        print(f"{name}: exported in {_since(start):.1f} s")
        files, start = measure.bytes_of(path), time.perf_counter()
        loaded = tf.saved_model.load(path)
        print(f"  loaded in {_since(start):.2f} s")
    weights = sum(
        int(np.prod(w.shape)) * np.dtype(w.dtype).itemsize
        for w in model.weights
    )
    print(
        f"  {files:,} bytes of files for {weights:,} of weights: "
        f"{files / weights:.4f}"
    )
    return model, loaded


def _since(start):
    return time.perf_counter() - start


def _throughput(model, loaded, batch_size, rounds):
    shape = (batch_size, *model.input_shape[1:])
    images = np.random.default_rng(0).uniform(0, 255, shape).astype("float32")
    serve, constant = loaded.signatures["logits"], tf.constant(images)
    candidates = {
        "model.predict": lambda: model.predict(images, batch_size, verbose=0),
        "SavedModel": lambda: serve(images=constant)["logits"].numpy(),
    }
    rates = {
        name: batch_size / statistics.median(found)
        for name, found in measure.rounds(candidates, rounds).items()
    }
    for name, rate in rates.items():
        print(f"  {name}: {rate:.2f} images a second, batches of {batch_size}")
    print(f"  ratio {rates['SavedModel'] / rates['model.predict']:.3f}")


def _latency(loaded, options):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (300, 400, 3)).astype("uint8")
    request = tf.constant([tf.io.encode_jpeg(pixels).numpy()])
    serve = loaded.signatures["serving_default"]
    serve(image_bytes=request)
    traced = _graphs()
    seconds = []
    for _ in range(options.requests):
        start = time.perf_counter()
        serve(image_bytes=request)["scores"].numpy()
        seconds.append(_since(start))
    tenth = max(1, len(seconds) // 10)
    first, last = seconds[:tenth], seconds[-tenth:]
    print(
        f"{options.request_model}: {len(seconds)} requests of one JPEG, median "
        f"{1e3 * statistics.median(seconds):.1f} ms; first tenth "
        f"{1e3 * statistics.median(first):.1f}, last tenth "
        f"{1e3 * statistics.median(last):.1f}; functions {traced} before, "
        f"{_graphs()} after"
    )


def _graphs():
    """Return the number of TensorFlow's functions: each tracing adds one."""
    from tensorflow.python.eager import context

    return len(context.context().list_function_names())


if __name__ == "__main__":
    sys.exit(main())
