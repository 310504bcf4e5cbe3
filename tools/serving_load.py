"""Measures what merging requests does to their latency, at several loads.

    python -m tools.serving_load [--model ViTB16] [--figure load.png]

Exports the model with random weights, and sends requests of one JPEG each to
`serving_default` at random times (a Poisson process), as many users do. One
thread answers, as TensorFlow Serving does with `num_batch_threads` 1: it takes
what has arrived, waits at most 5 ms for more, and runs a batch, padded to 1, 2,
4, ... images. Prints the images per second of each size of batch, and for loads
relative to the fastest the median and the 95th percentile of the latency.
"""

import functools
import os
import pathlib
import queue
import sys
import tempfile
import threading
import time

import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit_cli import command
from tools import markdown, pictures
from tools.benchmark import measure as timing

WAIT = 0.005  # seconds, of deployment/batching.config


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print two tables."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--model", default="ViTB16")
    parser.add_argument("--seconds", type=float, default=20.0)
    several: dict = dict(type=command.several(float), metavar="A,B,...")
    parser.add_argument("--batches", default=[1, 4, 16], **several)
    parser.add_argument("--loads", default=[0.25, 0.5, 0.75, 0.9], **several)
    parser.add_argument("--figure", type=pathlib.Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "1")
        keras_vit.export_savedmodel(getattr(keras_vit, options.model)(), path)
        serve = tf.saved_model.load(path).signatures["serving_default"]
        measured = measure(
            serve, options.batches, options.loads, options.seconds
        )
    print(report(*measured))
    if options.figure:
        pictures.save(draw(*measured), options.figure)
    return 0


def measure(serve, batches, loads, seconds: float):
    """Return the speed of batches, and latencies under each load.

    Args:
        serve: A signature that takes files.
        batches: Largest batches.
        loads: Requests per second, relative to the images per second of the
            fastest batch.
        seconds: Duration of each measurement.

    Returns:
        Images per second of each batch; and requests per second -> largest
        batch -> median and 95th percentile in ms.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), "uint8")
    image = tf.io.encode_jpeg(pixels).numpy()

    def answer(count):
        size = 1 << (count - 1).bit_length()  # padded, as the server does
        serve(image_bytes=tf.constant([image] * size))["scores"].numpy()

    def answers(count):
        while True:
            yield answer(count)

    rates = {}
    for n in map(int, batches):
        repeated = dict(batch=functools.partial(answers, n))
        ((rates[n],),) = timing.rates(repeated, n, seconds / 4, 1).values()
    found: dict = {}
    for rate in (load * max(rates.values()) for load in loads):
        found[rate] = {}
        for n in rates:
            of_load = latencies(answer, n, rate, seconds)
            found[rate][n] = 1e3 * np.quantile(of_load, (0.5, 0.95))
    return rates, found


def report(rates, found) -> str:
    """Return what `measure` does as two tables."""
    rows = [[str(n), f"{rate:.1f}"] for n, rate in rates.items()]
    text = markdown.table(["batch", "images/s"], rows)
    best = max(rates.values())
    rows = [
        [f"{rate / best:.0%}", f"{rate:.1f}"]
        + [f"{low:.0f}, {high:.0f} ms" for low, high in of_load.values()]
        for rate, of_load in found.items()
    ]
    header = ["load", "requests/s", *(f"batches to {n}" for n in rates)]
    return f"{text}\n\n{markdown.table(header, rows)}"


def draw(rates, found):
    """Return a figure of the latencies that `measure` does."""
    figure, axes = pictures.axes_of(6, 3.5)
    for i, n in enumerate(rates):
        low, high = np.array([of_load[n] for of_load in found.values()]).T
        style: dict = dict(color=f"C{i}", marker="o", markersize=4)
        axes.plot(list(found), low, label=f"batches to {n}", **style)
        axes.plot(list(found), high, linestyle="dotted", **style)
    axes.set(xlabel="requests/s", ylabel="ms: median, dotted 95 %", ylim=0)
    axes.legend(frameon=False)
    pictures.plain(axes)
    return figure


def latencies(answer, most: int, rate: float, seconds: float) -> list[float]:
    """Return the seconds from each request to its answer.

    Args:
        answer: Runs a batch of a number of images.
        most: The largest batch.
        rate: Requests per second.
        seconds: Duration in which requests arrive.
    """
    arrived: queue.SimpleQueue = queue.SimpleQueue()
    count = max(1, int(rate * seconds))
    gaps = np.random.default_rng(1).exponential(1 / rate, count)
    threading.Thread(target=_send, args=(arrived, gaps)).start()
    found: list[float] = []
    request = arrived.get()
    while request is not None:
        batch, end = [request], time.perf_counter() + WAIT
        while len(batch) < most and batch[-1] is not None:
            try:
                left = max(0.0, end - time.perf_counter())
                batch.append(arrived.get(timeout=left))
            except queue.Empty:
                break
        is_last = batch[-1] is None
        batch = batch[: len(batch) - is_last]
        answer(len(batch))
        now = time.perf_counter()
        found += [now - start for start in batch]
        request = None if is_last else arrived.get()
    return found


def _send(arrived, gaps):
    """Put the time of each request into a queue when it arrives, then None."""
    due = time.perf_counter()
    for gap in gaps:
        due += gap
        time.sleep(max(0.0, due - time.perf_counter()))
        arrived.put(due)
    arrived.put(None)


if __name__ == "__main__":
    sys.exit(main())
