"""Measures an input pipeline stage by stage and names its bottleneck.

    python -m tools.benchmark_data [--dataset path/to/images] [--compare]
    python -m tools.benchmark_data --augment medium1 --image_size 224

Each stage is measured together with the previous ones: reading in shuffled
order, decoding within the Inception crop, resizing, flips and augmentation,
batching (including the mixing of a batch). Without --dataset it writes smooth
noise as JPEGs of 500 x 375 pixels to a temporary directory. --compare also
measures a loop that consists only of `decode_and_crop_jpeg` and `resize` with
the same crops. --accelerator takes the images per second that a model trains
with, and prints how many cores feed it: as many as this machine's rate per core
asks for, provided that reading keeps up.
"""

import math
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

from keras_vit import data
from keras_vit.data import augment, crops, order
from keras_vit.data.seeds import fold
from keras_vit_cli import command
from tools.benchmark import measure

SEED = 0
_MIN_CROPS = 8192


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print the table."""
    parser = command.Parser(description=__doc__)
    add, count = parser.add_argument, command.count
    add("--dataset", default="", help="as in data.load; '' synthesises one")
    add("--data_dir", default="", help="where TFDS keeps prepared data")
    add("--images", type=count, default=256, help="how many to synthesise")
    add("--image_size", type=count, default=224, help="pixels of a side")
    add("--batch_size", type=count, default=64)
    add("--augment", nargs="*", default=[], help="layers or settings by name")
    add("--seconds", type=float, default=3.0, help="for a stage and round")
    add("--rounds", type=count, default=3)
    add("--compare", action="store_true", help="to a bare loop")
    add("--accelerator", type=float, default=0.0, help="a model's images/s")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if not options.dataset:
            write_noise(folder, options.images)
        source, _ = data.load(
            options.dataset or folder,
            data_dir=options.data_dir,
            eval_fraction=0.01,
        )
        sizes: dict = dict(batch_size=options.batch_size)
        sizes["image_size"] = (options.image_size,) * 2
        pipelines = stages(source, tuple(options.augment), **sizes)
        if options.compare:
            ours = data.train_batches(source, **sizes, flip=False, seed=SEED)
            pipelines |= dict(ours=ours, bare=bare_loop(source, **sizes))
        rates = measure.rates(
            {name: batches.__iter__ for name, batches in pipelines.items()},
            options.batch_size,
            options.seconds,
            options.rounds,
        )
    print(_table(summarise(rates, measure.processors(), options.accelerator)))
    return 0


def stages(
    source: data.Source,
    augment_texts: tuple[str, ...],
    *,
    image_size: tuple[int, int],
    batch_size: int,
) -> dict:
    """Return the pipelines of `train_batches` up to each of its stages."""
    shard = order.Shard(batch_size)
    reading = order.Reading(shard=shard, seed=SEED)
    of_image, _ = augment.find_layers(augment_texts, len(source.class_names))

    def up_to(last):
        def work(seed, image, label):
            if last == "reading":
                return tf.size(image) if source.images is not None else image
            image = crops.decode_window(image, 3, seed)
            if last != "decoding":
                image = tf.image.resize(image, image_size)
            if last == "augmentation":
                image = crops.flip(image, fold(seed, 1))
                image = augment.augment_image(of_image, image, fold(seed, 2))
            # A single number, so that batching costs nothing yet, which
            # TensorFlow cannot compute without the work.
            return image[0, 0, 0]

        shuffled = order.shuffled(source, reading, work).batch(batch_size)
        return shuffled.prefetch(tf.data.AUTOTUNE)

    names = ("reading", "decoding", "resizing", "augmentation")
    complete = data.train_batches(
        source,
        batch_size=batch_size,
        image_size=image_size,
        augment=augment_texts,
        seed=SEED,
    )
    return {name: up_to(name) for name in names} | {"batching": complete}


def bare_loop(
    source: data.Source, image_size: tuple[int, int], batch_size: int
):
    """Return decoding and resizing of JPEGs in the crops of the first epochs.

    The crops are drawn beforehand, at least `_MIN_CROPS`: the crops of a single
    epoch of few images may be easier to decode than others.
    """
    paths = source.paths or ()
    suffixes = {os.path.splitext(path)[1].lower() for path in paths}
    if not suffixes or not suffixes <= {".jpg", ".jpeg"}:
        raise ValueError(
            "`--compare` needs a folder of JPEG files. "
            f"Received: {source.name!r}"
        )
    count = len(paths)
    epochs = -(-_MIN_CROPS // count)
    files = tf.constant(paths)

    def draw(position):
        epoch, index = position // count, position % count
        shape = tf.io.extract_jpeg_shape(tf.io.read_file(files[index]))
        begin, size = crops.sample_window(shape, fold((SEED, 0), epoch, index))
        return files[index], tf.concat([begin[:2], size[:2]], 0)

    drawn = tf.data.Dataset.range(epochs * count).map(
        draw, num_parallel_calls=tf.data.AUTOTUNE
    )
    drawn = drawn.batch(epochs * count).get_single_element()

    def work(path, window):
        encoded = tf.io.read_file(path)
        image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
        return tf.image.resize(image, image_size)

    return (
        tf.data.Dataset.from_tensor_slices(drawn)
        .repeat()
        .map(work, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )


def summarise(
    rounds: dict[str, list[float]], processors: int, accelerator: float = 0.0
) -> dict:
    """Find the stage that adds the most time to an image.

    Args:
        rounds: Images per second by stage and round, each stage including the
            previous ones; "ours" and "bare" are not stages. The best round
            counts: other programs disturbed it least.
        processors: Number of cores that the pipelines used.
        accelerator: Images per second that a model needs; 0 if unknown.

    Returns:
        Milliseconds that each stage adds, images per second of the complete
        pipeline and one core ("per_core"); if asked for, the median "ratio" of
        ours to bare, and the "cores" that feed the model.
    """
    rates = {name: max(found) for name, found in rounds.items()}
    before, added = 0.0, {}
    for name, rate in rates.items():
        if name not in ("ours", "bare"):
            added[name] = max(1000 / rate - before, 0.0)
            before = max(1000 / rate, before)
    report: dict = {
        "images_per_second": rates,
        "milliseconds": added,
        "bottleneck": max(added, key=lambda name: added[name]),
        "per_core": rates["batching"] / processors,
    }
    if accelerator:
        report["cores"] = math.ceil(accelerator / report["per_core"])
    if "bare" in rates:
        ratios = np.divide(rounds["ours"], rounds["bare"])
        report["ratio"] = float(np.median(ratios))
    return report


def write_noise(folder: str, count: int) -> None:
    """Write JPEGs of smooth noise, 500 x 375 pixels, in two class folders."""
    rng = np.random.default_rng(SEED)
    for name in ("a", "b"):
        os.makedirs(os.path.join(folder, name))
    for i in range(count):
        # Coarse shapes and fainter fine ones, as in photographs.
        image = 128 + sum(
            tf.image.resize(
                rng.normal(0, 200 / side, (side, side, 3)), (375, 500)
            )
            for side in (4, 16, 64, 256)
        )
        pixels = tf.cast(tf.clip_by_value(image, 0, 255), "uint8")
        path = os.path.join(folder, "ab"[i % 2], f"{i}.jpg")
        tf.io.write_file(path, tf.io.encode_jpeg(pixels, quality=90))


def _table(report):
    lines = [f"{'up to':14}{'images/s':>10}{'adds ms':>10}"]
    for name, rate in report["images_per_second"].items():
        added = report["milliseconds"].get(name, "")
        added = added and f"{added:.2f}"
        lines.append(f"{name:14}{rate:10.0f}{added:>10}".rstrip())
    lines.append(f"Bottleneck: {report['bottleneck']}.")
    if "ratio" in report:
        lines.append(
            f"Ours without flips reaches {report['ratio']:.3f} of a bare loop "
            "of decode_and_crop_jpeg and resize."
        )
    lines.append(f"{report['per_core']:.0f} images/s per core.")
    if "cores" in report:
        lines.append(f"The accelerator needs {report['cores']} such cores.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
