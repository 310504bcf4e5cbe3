"""Runs of records: files in an order drawn anew, kept in memory if asked."""

import os

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import shards

tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]

COUNTS = [3, 1, 5, 2]


@pytest.fixture
def paths(tmp_path):
    """Four files of 11 records that are their own numbers."""
    paths, number = [], 0
    for i, count in enumerate(COUNTS):
        paths.append(str(tmp_path / f"{i}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                writer.write(str(number).encode())
                number += 1
    return paths


def numbers(dataset):
    return [int(record) for record in dataset.as_numpy_iterator()]


def test_records_come_in_order_without_a_seed(paths):
    read = shards.read_shards(paths, [0] * 4, COUNTS)
    assert numbers(read) == list(range(11))
    read = shards.read_shards(paths, [1, 0, 2, 0], [2, 1, 2, 1])
    assert numbers(read) == [1, 2, 3, 6, 7, 9]


def test_a_seed_draws_the_order_of_files_alone(paths):
    orders = set()
    for i in range(5):
        found = numbers(shards.read_shards(paths, [0] * 4, COUNTS, (7, i)))
        assert sorted(found) == list(range(11))
        place = found.index(4)
        assert found[place : place + 5] == [4, 5, 6, 7, 8]
        orders.add(tuple(found))
    assert len(orders) > 2
    again = numbers(shards.read_shards(paths, [0] * 4, COUNTS, (7, 4)))
    assert again == found


def test_what_is_kept_comes_in_the_same_order_and_from_memory(paths):
    def epochs(cache):
        stream = shards.stream_of(
            paths, [0] * 4, COUNTS, lambda record: (record, 0)
        )
        return tf.data.Dataset.counter().flat_map(
            lambda epoch: stream(
                1, 10, seed=tf.stack([epoch, epoch]), cache=cache
            ).map(lambda record, _: record)
        )

    expected = numbers(epochs(False).take(45))
    iterator = iter(epochs(True))
    found = [int(next(iterator)) for _ in range(9)]
    for path in paths:
        os.remove(path)
    found += [int(next(iterator)) for _ in range(36)]
    assert found == expected


def test_arguments_of_one_length(paths):
    with pytest.raises(ValueError, match="4, 4 and 3"):
        shards.read_shards(paths, [0] * 4, COUNTS[:3])
    with pytest.raises(ValueError, match="at least 1"):
        shards.read_shards([], [], [])


def stream_source(paths):
    def parse(record):
        shade = tf.strings.to_number(record, "int32")
        image = tf.cast(tf.fill((4, 4, 3), shade), "uint8")
        return tf.io.encode_png(image), tf.constant(0, "int64")

    return data.Source(
        name="shards",
        class_names=("a", "b"),
        num_examples=11,
        image_shape=(4, 4, 3),
        stream=shards.stream_of(paths, [0] * 4, COUNTS, parse),
    )


def test_training_starts_at_any_step_with_or_without_a_cache(
    paths, monkeypatch
):
    monkeypatch.setattr("keras_vit.data.order.SHUFFLE_BUFFER", 2)
    source = stream_source(paths)

    def read(start_step, cache):
        batches = data.train_batches(
            source,
            batch_size=4,
            image_size=(4, 4),
            seed=3,
            start_step=start_step,
            cache=cache,
        )
        return [b["images"] for b in batches.take(9).as_numpy_iterator()]

    run = read(0, False)
    np.testing.assert_array_equal(read(0, True), run)
    np.testing.assert_array_equal(read(5, False)[:4], run[5:])
    shades = np.concatenate(run)[:33, 0, 0, 0].reshape(3, 11)
    assert all(sorted(epoch) == list(range(11)) for epoch in shades.tolist())
    # Files as well as neighbours change places from one epoch to the next.
    assert len({epoch[0] for epoch in shades.tolist()}) > 1


def test_a_folder_is_kept_in_memory(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(4):
            image = np.full((4, 4, 3), 10 * i, "uint8")
            (tmp_path / name / f"{i}.png").write_bytes(
                tf.io.encode_png(image).numpy()
            )
    source, _ = data.load(str(tmp_path), eval_fraction=0.01)
    arguments = dict(batch_size=3, image_size=(4, 4))
    plain = data.train_batches(source, **arguments)
    expected = list(plain.take(6).as_numpy_iterator())
    kept = iter(data.train_batches(source, **arguments, cache=True))
    found = [next(kept)]
    assert found[0]["images"].shape == (3, 4, 4, 3)
    found += [next(kept), next(kept)]
    for path in source.paths:
        os.remove(path)
    found += [next(kept) for _ in range(3)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a["images"], b["images"])
