"""Dev splits and few shots of every kind of source."""

import dataclasses
import itertools

import numpy as np
import pytest
import sources

from keras_vit import data

tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]


@pytest.fixture
def arrays():
    """40 images that hold their index in every pixel, 10 of each class."""
    images = np.zeros((40, 2, 2, 1), "uint8")
    images[:] = np.arange(40).reshape(-1, 1, 1, 1)
    return sources.of_arrays(images, classes="abcd")


@pytest.fixture
def stream(arrays):
    """The same, encoded, in a stream."""
    encoded = np.array([tf.io.encode_png(i).numpy() for i in arrays.images])

    def read(start, stop, seed=None, cache=False):
        return tf.data.Dataset.from_tensor_slices(
            (encoded[start:stop], arrays.labels[start:stop])
        )

    return dataclasses.replace(arrays, labels=None, images=None, stream=read)


def contents(source):
    """(index, label) of every example, in order."""
    if source.stream is None:
        pixels = source.images[:, 0, 0, 0].tolist()
        return list(zip(pixels, source.labels.tolist(), strict=True))
    return [
        (int(tf.io.decode_png(image)[0, 0, 0]), int(label))
        for image, label in source.stream(0, source.num_examples)
    ]


@pytest.fixture(params=["arrays", "stream"])
def source(request):
    return request.getfixturevalue(request.param)


def test_dev_split_and_training_split_partition_the_set(source):
    train, dev = data.hold_out_dev(source, 0.2, seed=0)
    assert (train.num_examples, dev.num_examples) == (32, 8)
    train, dev = contents(train), contents(dev)
    assert sorted(train + dev) == [(i, i % 4) for i in range(40)]
    assert np.bincount([label for _, label in dev]).tolist() == [2, 2, 2, 2]


def test_shots_are_as_many_of_each_class_and_follow_the_seed(source):
    kept = contents(data.keep_shots(source, 3, seed=0))
    assert np.bincount([label for _, label in kept]).tolist() == [3, 3, 3, 3]
    assert all(index % 4 == label for index, label in kept)
    assert kept == contents(data.keep_shots(source, 3, seed=0))
    assert kept != contents(data.keep_shots(source, 3, seed=1))


def test_streams_and_arrays_keep_the_same_shots(arrays, stream):
    assert contents(data.keep_shots(arrays, 2, seed=5)) == contents(
        data.keep_shots(stream, 2, seed=5)
    )


def test_a_number_of_images_is_part_of_every_larger_number(source):
    sizes = (3, 8, 21, 40)
    parts = [contents(data.keep_images(source, n, seed=1)) for n in sizes]
    assert [len(part) for part in parts] == list(sizes)
    for smaller, larger in itertools.pairwise(parts):
        assert set(smaller) < set(larger)
    assert parts[-1] == contents(source)


def test_a_number_of_images_has_each_class_by_its_share(arrays):
    labels = np.repeat([0, 1, 2, 3], [24, 8, 4, 4])
    uneven = dataclasses.replace(arrays, labels=labels)
    for count, expected in ((10, [6, 2, 1, 1]), (30, [18, 6, 3, 3])):
        for seed in range(3):
            kept = data.keep_images(uneven, count, seed)
            counts = np.bincount(kept.labels, minlength=4)
            np.testing.assert_allclose(counts, expected, atol=1)
    one, other = (data.keep_images(uneven, 10, seed) for seed in (0, 1))
    assert contents(one) != contents(other)


def test_images_of_several_labels_are_drawn_alike(arrays):
    several = dataclasses.replace(
        arrays, labels=np.eye(4, dtype="uint8")[arrays.labels], multi_label=True
    )
    few, more = (data.keep_images(several, n, seed=0) for n in (6, 20))
    assert few.labels.shape == (6, 4)
    pixels = [set(part.images[:, 0, 0, 0].tolist()) for part in (few, more)]
    assert pixels[0] < pixels[1]
    assert pixels[0] != set(range(6))


def test_a_dev_split_trains_from_any_step(source):
    train, _ = data.hold_out_dev(source, 0.25, seed=0)
    arguments = dict(batch_size=10, image_size=(2, 2), channels=1, flip=False)
    batches = data.train_batches(train, **arguments, crop="none")
    third = list(batches.take(3).as_numpy_iterator())[2]
    later = data.train_batches(train, **arguments, crop="none", start_step=2)
    np.testing.assert_array_equal(
        third["images"], next(later.as_numpy_iterator())["images"]
    )


def test_too_much_is_refused(source):
    with pytest.raises(
        ValueError, match="`shots` must be at most .* class, 10"
    ):
        data.keep_shots(source, 11, seed=0)
    with pytest.raises(ValueError, match="at most the training images .* 40"):
        data.keep_images(source, 41, seed=0)
    with pytest.raises(ValueError, match="`fraction` must be a number betw"):
        data.hold_out_dev(source, 1.0, seed=0)


def test_a_dev_split_of_nothing_is_refused(stream):
    with pytest.raises(ValueError, match="must leave examples"):
        data.hold_out_dev(stream, 0.001, seed=0)


def test_bytes_of_kept_shots_end_as_the_files_do(stream):
    def read(start, stop, seed=None, cache=False):
        examples = stream.stream(start, stop, seed, cache)
        return examples.map(lambda image, label: (image + b"\0\0", label))

    padded = dataclasses.replace(stream, stream=read)
    kept = data.keep_shots(padded, 1, seed=0)
    for image, _ in kept.stream(0, 4).as_numpy_iterator():
        assert image.endswith(b"\0\0")
