"""Compares the pipeline of video files with a bare loop of PyAV.

    python -m tools.benchmark_video [--dataset path/to/videos]

The bare loop only opens the same files, seeks to the frames of the first epoch,
decodes the clip and converts its frames to RGB of the given size, in as many
threads as there are cores. Both run in turns. Without --dataset it writes noise
as H.264 of 320 x 240 pixels to a temporary directory.
"""

import concurrent.futures
import functools
import itertools
import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow as tf

from keras_vit import data
from keras_vit.data.seeds import fold
from keras_vit_cli import command
from tools.benchmark import measure

SEED = 0


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print clips per second."""
    parser = command.Parser(description=__doc__)
    add, count = parser.add_argument, command.count
    add("--dataset", default="", help="folder of videos; '' synthesises one")
    add("--videos", type=count, default=16, help="how many to synthesise")
    add("--num_frames", type=count, default=16, help="frames of a clip")
    add("--frame_step", type=count, default=4, help="frames between them")
    add("--image_size", type=count, default=224, help="pixels of a side")
    add("--batch_size", type=count, default=8)
    add("--seconds", type=float, default=5.0, help="for each in a round")
    add("--rounds", type=count, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if not options.dataset:
            write_noise(folder, options.videos)
        source, _ = data.load(options.dataset or folder, eval_fraction=0.01)
        rates = measure_both(source, options)
    for name, rate in rates.items():
        print(f"{name:6}{rate:10.2f} clips/s")
    ratio = rates["ours"] / rates["bare"]
    print(f"Ours reaches {ratio:.3f} of a bare loop of PyAV.")
    return 0


def measure_both(source: data.Source, options) -> dict[str, float]:
    """Return the clips per second of both, in the best round."""
    ours = data.train_batches(
        source,
        batch_size=options.batch_size,
        image_size=(options.image_size,) * 2,
        num_frames=options.num_frames,
        frame_step=options.frame_step,
        crop="none",
        flip=False,
        seed=SEED,
    )
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bare = functools.partial(bare_loop, source, options, pool)
        rates = measure.rates(
            dict(ours=ours.as_numpy_iterator, bare=bare),
            *(options.batch_size, options.seconds, options.rounds),
        )
    return {name: max(found) for name, found in rates.items()}


def bare_loop(source: data.Source, options, pool):
    """Yield batches of clips, each decoded by a separate thread."""
    import av

    step = options.frame_step
    pixels = dict(format="rgb24", interpolation="BILINEAR")
    pixels |= dict(width=options.image_size, height=options.image_size)
    span = (options.num_frames - 1) * step + 1

    def read(path, place):
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_count = 1
            first = int(place * max(1, stream.frames - span + 1))
            start = int(first / stream.average_rate / stream.time_base)
            container.seek(start, stream=stream)
            frames = (x for x in container.decode(stream) if x.pts >= start)
            kept = [
                frame.to_ndarray(**pixels)
                for frame in itertools.islice(frames, 0, span, step)
            ]
        if len(kept) < options.num_frames:
            raise ValueError(f"{path!r} is shorter than {span} frames.")
        return np.stack(kept)

    # As `train_batches` draws them in the first epoch.
    def place(i):
        seed = fold((SEED, 0), np.int64(0), np.int64(i))
        return float(tf.random.stateless_uniform([], fold(seed, 3)))

    paths = source.paths or ()
    examples = itertools.cycle([(x, place(i)) for i, x in enumerate(paths)])

    def start():
        return pool.submit(read, *next(examples))

    # As many batches in progress as the pipeline prefetches.
    waiting = [start() for _ in range(2 * options.batch_size)]
    while True:
        batch = []
        for _ in range(options.batch_size):
            batch.append(waiting.pop(0).result())
            waiting.append(start())
        yield np.stack(batch)


def write_noise(folder: str, count: int, num_frames: int = 150) -> None:
    """Write videos of moving noise, 320 x 240 pixels, in two class folders."""
    import av

    rng = np.random.default_rng(SEED)
    for i in range(count):
        coarse = rng.integers(0, 200, (30, 40, 3)).repeat(8, 0).repeat(8, 1)
        fine = rng.integers(0, 56, (240, 320, 3))
        path = pathlib.Path(folder, "ab"[i % 2], f"{i}.mp4")
        path.parent.mkdir(exist_ok=True)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=30)
            stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
            for t in range(num_frames):
                pixels = np.roll(coarse, (t, 2 * t), (0, 1)) + fine
                frame = av.VideoFrame.from_ndarray(
                    pixels.astype("uint8"), format="rgb24"
                )
                container.mux(stream.encode(frame))
            container.mux(stream.encode())


if __name__ == "__main__":
    sys.exit(main())
