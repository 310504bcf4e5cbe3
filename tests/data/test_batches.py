"""Batches: order, crops, formats; and every example counted once."""

import numpy as np
import pytest
import sources

from keras_vit import data
from keras_vit.data import order, seeds

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend_independent
plain_decoding = pytest.mark.usefixtures("plain_decoding")


def source_of(count=10, channels=3):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 6, 5, channels)).astype("uint8")
    return sources.of_arrays(images)


def stream_of(count=10, labels=None):
    """A source of PNG bytes, as TFDS gives them."""
    images = source_of(count).images
    encoded = [tf.io.encode_png(image).numpy() for image in images]
    labels = np.arange(count) % 3 if labels is None else np.array(labels)
    source = data.Source(
        name="stream",
        class_names=("a", "b", "c"),
        num_examples=count,
        image_shape=(6, 5, 3),
        stream=lambda start, stop, **_: tf.data.Dataset.from_tensor_slices(
            (encoded[start:stop], labels[start:stop])
        ),
    )
    return source, images


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


TRAIN = dict(batch_size=4, image_size=(6, 5))


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("cut", [1, 1024])
def test_order_and_seeds_are_functions_of_epoch_and_example(
    repeats, cut, monkeypatch
):
    monkeypatch.setattr("keras_vit.data.order._INDICES_AT_ONCE", cut)
    source = source_of(5)
    reading = order.Reading(
        shard=order.Shard(12, index=1, num_shards=3),
        repeats=repeats,
        start_step=3,
        seed=7,
    )
    found = order.shuffled(source, reading, lambda *example: example)
    positions = [
        p for step in (3, 4, 5) for p in range(12 * step + 4, 12 * step + 8)
    ]
    for position, (seed, image, _) in zip(
        positions, found.take(12), strict=True
    ):
        epoch, offset = divmod(position // repeats, 5)
        index = tf.random.experimental.index_shuffle(
            offset, tf.constant([7, epoch], "int64"), 4
        )
        expected = seeds.fold((7, 0), np.int64(epoch), np.int64(index))
        if repeats > 1:
            expected = seeds.fold(expected, np.int64(position % repeats))
        assert seed.numpy().tolist() == expected.numpy().tolist()
        np.testing.assert_array_equal(image, source.images[int(index)])


def order_of(batches, images):
    seen = np.concatenate([batch["images"] for batch in batches])
    return [
        int(np.flatnonzero((images == image).all((1, 2, 3)))[0])
        for image in seen
    ]


@plain_decoding
@pytest.mark.parametrize("is_stream", [True, False])
def test_every_epoch_has_each_example_once_in_its_own_order(is_stream):
    source, images = stream_of()
    if not is_stream:
        source = source_of()
    batches = data.train_batches(
        source, batch_size=5, image_size=(6, 5), crop="none", flip=False
    )
    order = order_of(take(batches, 6), images)
    epochs = [order[:10], order[10:20], order[20:]]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


@plain_decoding
def test_a_stream_is_evaluated_in_order_and_keeps_its_bytes():
    source, images = stream_of()
    batches = data.eval_batches(source, batch_size=4, image_size=(6, 5))
    found = [batch["images"] for batch in batches.as_numpy_iterator()]
    assert [len(batch) for batch in found] == [4, 4, 4]
    np.testing.assert_array_equal(np.concatenate(found)[:10], images)
    assert found[0].dtype == np.uint8


@plain_decoding
@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize("of_source", [data.eval_batches, data.train_batches])
def test_labels_outside_the_classes_stop_the_run(of_source, label):
    source, _ = stream_of(4, labels=[0, 1, label, 2])
    batches = of_source(source, batch_size=4, image_size=(6, 5))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"0 to 2[^\0]*\s\[?{label}\b"
    ):
        take(batches, 1)


def test_labels_are_one_hot_of_the_image():
    source = source_of(count=8)
    (batch,) = take(
        data.train_batches(source, **TRAIN, crop="none", flip=False), 1
    )
    assert batch["labels"].dtype == np.float32
    for image, label in zip(batch["images"], batch["labels"], strict=True):
        index = np.flatnonzero((source.images == image).all((1, 2, 3)))[0]
        np.testing.assert_array_equal(label, np.eye(3)[index % 3])


@pytest.mark.parametrize("batch_size", [3, 99])
def test_evaluation_sees_each_example_once_in_order(batch_size):
    source = source_of()
    dataset = data.eval_batches(
        source, batch_size=batch_size, image_size=(6, 5)
    )
    batches = list(dataset.as_numpy_iterator())
    images = np.concatenate([batch["images"] for batch in batches])
    np.testing.assert_array_equal(images[:10], source.images)
    assert not images[10:].any()
    assert len(batches) == len(dataset) == -(-10 // batch_size)


def test_bytes_stay_bytes_where_nothing_needs_float():
    def dtype(**arguments):
        dataset = data.train_batches(source_of(), **{**TRAIN, **arguments})
        return dataset.element_spec["images"].dtype

    assert dtype(crop="none") == tf.uint8
    assert dtype(crop="pad", pad=1) == tf.uint8
    assert dtype(crop="inception") == tf.float32
    assert dtype(crop="none", image_size=(7, 7)) == tf.float32


def test_flips_half_of_the_time():
    source = source_of(count=200)
    (batch,) = take(
        data.train_batches(
            source, batch_size=200, image_size=(6, 5), crop="none"
        ),
        1,
    )
    upright = 0
    for image in batch["images"]:
        same = (source.images == image).all((1, 2, 3)).any()
        mirrored = (source.images[:, :, ::-1] == image).all((1, 2, 3)).any()
        assert same != mirrored
        upright += same
    assert 70 <= upright <= 130


def test_pad_crop_moves_by_up_to_the_padding():
    square = np.full((1, 6, 6, 1), 9, "uint8")
    (batch,) = take(
        data.train_batches(
            sources.of_arrays(square),
            batch_size=300,
            image_size=(6, 6),
            channels=1,
            crop="pad",
            pad=2,
        ),
        1,
    )
    filled = (batch["images"][..., 0] > 0).sum(axis=(1, 2))
    assert set(filled) == {h * w for h in (4, 5, 6) for w in (4, 5, 6)}


def test_inception_crops_have_areas_within_the_bounds():
    rows, columns = np.meshgrid(np.arange(60), np.arange(80), indexing="ij")
    image = np.stack([rows, columns, 0 * rows], axis=-1).astype("uint8")
    ramp = sources.of_arrays(image[np.newaxis])
    (batch,) = take(
        data.train_batches(
            ramp, batch_size=300, image_size=(32, 32), flip=False
        ),
        1,
    )
    # The slope of the ramp is the scale of the crop.
    height = (batch["images"][:, 30, 0, 0] - batch["images"][:, 1, 0, 0]) / 29
    width = (batch["images"][:, 0, 30, 1] - batch["images"][:, 0, 1, 1]) / 29
    area = height * width * 32 * 32 / (60 * 80)
    assert 0.03 < area.min() < 0.15 and 0.8 < area.max() < 1.05
    aspect = width / height
    assert 0.7 < aspect.min() and aspect.max() < 1.42


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (dict(batch_size=0), "batch_size"),
        (dict(batch_size=2.5), "batch_size"),
        (dict(image_size=(0, 4)), "image_size"),
        (dict(image_size=8), "image_size"),
        (dict(channels=2), "channels"),
        (dict(crop="centre"), "centre"),
        (dict(pad=-1), "pad=-1"),
        (dict(start_step=-1), "start_step=-1"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        data.train_batches(source_of(), **{**TRAIN, **arguments})


def test_arrays_of_many_channels_keep_them():
    source = source_of(channels=5)
    (batch,) = take(data.train_batches(source, **TRAIN, channels=5), 1)
    assert batch["images"].shape == (4, 6, 5, 5)
    with pytest.raises(ValueError, match="5 channels"):
        data.train_batches(source, **TRAIN, channels=3)
    # Of others a level of grey is rounded: 1.8 here.
    colour = np.broadcast_to(np.uint8([1, 2, 3]), (1, 6, 5, 3)).copy()
    options = dict(batch_size=1, image_size=(6, 5), channels=1)
    batches = data.eval_batches(sources.of_arrays(colour), **options)
    (batch,) = batches.as_numpy_iterator()
    assert (batch["images"] == 2).all()


def test_a_source_states_one_number_of_examples():
    images = np.zeros((4, 2, 2, 1), "uint8")
    for wrong in (
        dict(num_examples=5),
        dict(labels=None),
        dict(labels=np.zeros(3, int)),
        dict(paths=("a", "b", "c", "d")),
        dict(images=None),
    ):
        fields = dict(images=images, labels=np.zeros(4, int), num_examples=4)
        with pytest.raises(ValueError, match="`(paths|num_examples)`"):
            data.Source(name="few", class_names=("a",), **fields | wrong)


def test_only_dictionaries_become_pairs():
    pairs = data.as_pairs(
        data.eval_batches(
            sources.of_arrays(np.zeros((4, 2, 2, 1), "uint8")),
            batch_size=2,
            image_size=(2, 2),
            channels=1,
        )
    )
    for wrong in (pairs, [dict(images=1, labels=2)]):
        with pytest.raises(ValueError, match="`dataset` must be"):
            data.as_pairs(wrong)
