"""Lists the pre-training images that are near-duplicates of test images.

    python -m tools.near_duplicates --pretrain=imagenet2012 \\
        --test=cifar10 --test=oxford_iiit_pet --output=list.csv

A data set is a value of --config.data.dataset, or NAME@SPLIT of TFDS or
TFRecords; without a split it is the part on which recipes train, or evaluate.
The list has a line for each pair: the name (in TFRecords), file or index of the
pre-training example, the test set, the test example, and their distance, see
tools/fingerprints.

Arguments after -- are options of Apache Beam. Without them the pipeline runs in
one process of this machine; in several with
    -- --direct_running_mode=multi_processing --direct_num_workers=8
and elsewhere with --runner and the options of that runner; its machines must
have this package and the data.

Reference: section 4.1 of the paper removes near-duplicates of the test sets
from the pre-training sets, without describing the method; the method here is
our own.
"""

import csv
import functools
import io
import itertools
import os
import pathlib
import sys
import typing
from collections.abc import Sequence

import numpy as np

from keras_vit import data
from keras_vit.data import exclusions, records
from keras_vit_cli import beam as beam_runner
from keras_vit_cli import command
from tools import fingerprints

COLUMNS = (exclusions.COLUMN, "test_set", "test", "distance")
# Images that a worker reads, and compares in one matrix product.
PART, BATCH = 4096, 64
# Pairs above this coarse distance are not compared finely: a crop of 5 % at a
# corner.
COARSE_THRESHOLD = 0.3


class Images(typing.NamedTuple):
    """Consecutive images of a data set, from `start` up to `stop`.

    `dataset` and `data_dir` are those of the command line; `role` is "pretrain"
    or "test".
    """

    dataset: str
    role: str
    data_dir: str
    start: int
    stop: int


@command.entry
def main(arguments: list[str]) -> int:
    """Search as the command line specifies, and print a summary."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("--pretrain", required=True, metavar="DATASET")
    add("--test", required=True, action="append", metavar="DATASET")
    add("--output", default="near_duplicates.csv")
    add("--threshold", type=float, default=0.1, help="greatest distance (0.1)")
    add("--data_dir", default="", help="where TFDS keeps data")
    add("--broken", choices=("error", "skip"), default="error")
    add("--dry", action="store_true", help="print what would be compared")
    flags = parser.parse_args(arguments[:cut])
    pretrain = _parts(flags.pretrain, "pretrain", flags.data_dir)
    tests = (_parts(name, "test", flags.data_dir) for name in flags.test)
    test = list(itertools.chain(*tests))
    if not flags.dry:
        counts = search(pretrain, test, flags, options=arguments[cut + 1 :])
        for name, count in sorted(counts.items()):
            print(f"{name}: {count:,}")
        print(f"wrote {flags.output}")
    return 0


def _parts(dataset, role, data_dir):
    """Divide a data set into parts for workers, and print its size."""
    count = _find(dataset, role, data_dir)[0].num_examples
    print(f"{role} {dataset}: {count:,} image{'s' * (count != 1)}")
    starts = range(0, count, PART)
    return [
        Images(dataset, role, data_dir, start, min(start + PART, count))
        for start in starts
    ]


def search(
    pretrain: list[Images], test: list[Images], flags, options: Sequence[str]
) -> dict[str, int]:
    """Find near-duplicates of test images and write the list.

    Every pre-training image is compared with every test image, so that the
    result does not depend on how the work is divided or ordered.

    Args:
        pretrain: The pre-training images.
        test: The test images; a million of them need 1.3 GB in a worker.
        flags: Those of the command line. The output may be in a bucket if Beam
            supports that.
        options: Options of Beam, such as `["--runner=DirectRunner"]`.

    Returns:
        The numbers of images read, broken and flat, and of pairs and
        pre-training images found.
    """
    threshold, broken = flags.threshold, flags.broken
    beam = _beam()
    if not 0 < threshold <= COARSE_THRESHOLD:
        raise ValueError(
            f"`threshold` must be above 0 and at most {COARSE_THRESHOLD}. "
            f"Received: threshold={threshold}"
        )
    pipeline = beam.Pipeline(options=beam_runner.options(options))
    table = (
        pipeline
        | "test parts" >> beam.Create(test)
        | "spread test" >> beam.Reshuffle()
        | "read test" >> beam.FlatMap(_thumbnails, broken)
        | "all test" >> beam.combiners.ToList()
        | "table" >> beam.Map(_table)
    )
    rows = (
        pipeline
        | "pretrain parts" >> beam.Create(pretrain)
        | "spread pretrain" >> beam.Reshuffle()
        | "compare"
        >> beam.FlatMap(
            _compare, beam.pvalue.AsSingleton(table), threshold, broken
        )
        | "all pairs" >> beam.combiners.ToList()
    )
    # One element, since the lines of a file may be written in any order.
    _ = (
        rows
        | "text" >> beam.Map(_text)
        | "write"
        >> beam.io.WriteToText(
            flags.output,
            shard_name_template="",
            append_trailing_newlines=False,
        )
    )
    _ = rows | "count" >> beam.Map(_count_found)
    result = pipeline.run()
    result.wait_until_finish()
    own = beam.metrics.MetricsFilter().with_namespace(__name__)
    counters = result.metrics().query(own)["counters"]
    return {x.key.metric.name: x.committed or x.attempted for x in counters}


def _beam():
    return beam_runner.library("Looking for near-duplicates")


def _count(name, by=1):
    _beam().metrics.Metrics.counter(__name__, name).inc(by)


@functools.cache
def _find(dataset, role, data_dir):
    """Return the source of a data set, and what reads TFRecords, else None.

    Of NAME without @SPLIT, "pretrain" is the part on which recipes train,
    "test" that on which they evaluate.
    """
    name, split = dataset, ""
    if "@" in dataset and not os.path.exists(dataset):
        name, split = dataset.rsplit("@", 1)
    # A data set may have a single split, which then serves as both.
    parts = data.load(
        name, train_split=split, eval_split=split, data_dir=data_dir
    )
    path, read = os.path.expanduser(name), None
    if records.exists(path):
        own = "train" if role == "pretrain" else records.evaluation_split(path)
        read = records.read(path, split or own)
    return parts[role == "test"], read


def _examples(images):
    """Yield the names and images of a part; of paths, their bytes."""
    source, read = _find(images.dataset, images.role, images.data_dir)
    start, stop = images.start, images.stop
    if read is not None:
        for name, image in read(start, stop).as_numpy_iterator():
            yield name.decode(), image
    elif source.stream is not None:
        examples = source.stream(start, stop).as_numpy_iterator()
        for i, (image, _) in enumerate(examples, start):
            yield str(i), image
    else:
        names = exclusions.names_of(source)
        for i in range(start, stop):
            if source.paths is None:
                yield names[i], source.images[i]
            else:
                yield names[i], pathlib.Path(source.paths[i]).read_bytes()


def _thumbnails(images, broken):
    """Yield (data set, name, thumbnail) of the comparable images."""
    for name, image in _examples(images):
        _count(f"{images.role} images")
        try:
            thumbnail = fingerprints.thumbnail(image)
        except ValueError as error:
            if broken == "error":
                raise ValueError(
                    f"{name!r} of {images.dataset!r} is broken; pass over such "
                    f"images with --broken=skip. {error}"
                ) from error
            _count(f"{images.role} images that are broken, passed over")
            continue
        if thumbnail is None:
            _count(f"{images.role} images of one flat shade, passed over")
        else:
            yield images.dataset, name, thumbnail


def _table(rows):
    """Combine test images: (names, thumbnails, coarse features)."""
    rows = sorted(rows, key=lambda row: row[:2])
    thumbnails = np.array([row[2] for row in rows])
    names = [row[:2] for row in rows]
    return names, thumbnails, fingerprints.coarse(thumbnails)


def _compare(images, table, threshold, broken):
    """Yield (pretrain name, test set, test name, distance) of near ones."""
    test_names, test_thumbnails, test_coarse = table
    rows = list(_thumbnails(images, broken))
    for first in range(0, len(rows), BATCH):
        batch = rows[first : first + BATCH]
        coarse = fingerprints.coarse([row[2] for row in batch])
        distances = fingerprints.coarse_distances(coarse, test_coarse)
        for i, j in np.argwhere(distances <= COARSE_THRESHOLD):
            _, name, thumbnail = batch[i]
            distance = fingerprints.distance(thumbnail, test_thumbnails[j])
            if distance <= threshold:
                yield name, *test_names[j], distance


def _text(rows):
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for *names, distance in sorted(rows):
        writer.writerow([*names, f"{distance:.4f}"])
    return file.getvalue()


def _count_found(rows):
    _count("pairs found", len(rows))
    _count("pretrain images to leave out", len({row[0] for row in rows}))


if __name__ == "__main__":
    # Beam's workers look functions up by the name of their module.
    from tools import near_duplicates

    sys.exit(near_duplicates.main())
