"""Several processes read one epoch between them; evaluation is exact."""

import itertools
import pathlib

import keras
import numpy as np
import pytest
import sources

from keras_vit import data

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("plain_decoding")


def source_of(count):
    """Images that hold their index in every pixel."""
    images = np.arange(count, dtype="uint8")[:, None, None, None]
    return sources.of_arrays(np.tile(images, (1, 4, 4, 3)))


def stream_of(count):
    source = source_of(count)
    encoded = [tf.io.encode_png(image).numpy() for image in source.images]
    return data.Source(
        name="stream",
        class_names=source.class_names,
        num_examples=count,
        image_shape=source.image_shape,
        stream=lambda start, stop, **_: (
            tf.data.Dataset.from_tensor_slices((encoded, source.labels))
            .skip(start)
            .take(stop - start)
        ),
    )


def folder_of(root, count=6):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir()
        for i in range(count):
            image = rng.integers(0, 256, (20 + i, 24, 3)).astype("uint8")
            (root / name / f"{i}.jpg").write_bytes(
                tf.io.encode_jpeg(image).numpy()
            )
    return data.load(str(root), eval_fraction=0.01)[0]


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def joined(batches_of_shards):
    """The batches that the shards make together."""
    return [
        {key: np.concatenate([b[key] for b in batches]) for key in batches[0]}
        for batches in zip(*batches_of_shards, strict=True)
    ]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])


def indices(batches):
    """Indices of the examples, read off their pixels, without padding."""
    return [
        int(image[0, 0, 0])
        for batch in batches
        for image, label in zip(batch["images"], batch["labels"], strict=True)
        if label.any()
    ]


@pytest.mark.backend_independent
class TestTraining:
    arguments = dict(batch_size=8, image_size=(8, 8), seed=3)

    def read(self, source, steps, **arguments):
        arguments = {**self.arguments, **arguments}
        return take(data.train_batches(source, **arguments), steps)

    def check(self, source, count, steps, **arguments):
        expected = self.read(source, steps, **arguments)
        shards = [
            self.read(
                source, steps, shard_index=i, num_shards=count, **arguments
            )
            for i in range(count)
        ]
        assert all(len(b["images"]) == 8 // count for b in shards[0])
        assert_equal(joined(shards), expected)

    def test_shards_of_arrays_make_the_batch(self):
        # The epoch ends within the second of these steps.
        self.check(source_of(100), 4, 3, crop="pad", pad=1, start_step=11)

    def test_shards_of_a_folder_make_the_batch(self, tmp_path):
        # 10 images: epochs end within the second, third and fourth step.
        self.check(folder_of(tmp_path), 2, 4, start_step=1)

    def test_a_process_opens_only_its_own_files(self, tmp_path):
        source = folder_of(tmp_path)
        steps = source.num_examples // 2
        arguments = dict(
            batch_size=2, shard_index=1, num_shards=2, crop="none", flip=False
        )
        before = self.read(source, steps, **arguments)
        # One epoch: what the other process reads is what this one does not.
        own = np.concatenate([batch["images"] for batch in before])
        num_removed = 0
        for path in source.paths:
            image = data.read_image(path, (8, 8))
            if not (own == image).all((1, 2, 3)).any():
                pathlib.Path(path).unlink()
                num_removed += 1
        assert num_removed == source.num_examples // 2
        assert_equal(self.read(source, steps, **arguments), before)
        with pytest.raises(tf.errors.NotFoundError):
            self.read(source, steps, batch_size=2, shard_index=0, num_shards=2)

    def test_shards_of_a_stream_see_each_example_once_an_epoch(self):
        source, count = stream_of(13), 3
        arguments = dict(batch_size=count, crop="none", flip=False)
        arguments["image_size"] = (4, 4)
        orders = []
        for i in range(count):
            size = 13 // count + (i < 13 % count)
            found = self.read(
                source, 2 * size, shard_index=i, num_shards=count, **arguments
            )
            found = indices(found)
            assert sorted(found[:size]) == sorted(found[size:])
            assert found[:size] != found[size:]
            orders += found[:size]
        assert sorted(orders) == list(range(13))

    def test_a_share_of_a_stream_starts_at_any_step(self):
        source = stream_of(13)
        arguments = dict(batch_size=4, shard_index=1, num_shards=2)
        run = self.read(source, 8, **arguments)
        assert_equal(self.read(source, 3, start_step=5, **arguments), run[5:])

    def test_augmentation_of_a_stream_is_that_of_one_process(self):
        source = stream_of(13)
        arguments = dict(crop="pad", pad=2, image_size=(4, 4), seed=1)

        def examples(index, count):
            size = 13 // count + (index < 13 % count)
            batches = data.train_batches(
                source,
                batch_size=count,
                shard_index=index,
                num_shards=count,
                **arguments,
            )
            images = [batch["images"][0] for batch in take(batches, size)]
            # Only zeros are padded, so the largest value is the index.
            return {int(image.max()): image for image in images}

        together = examples(0, 1)
        shards = [examples(i, 2) for i in range(2)]
        for index, image in itertools.chain(*map(dict.items, shards)):
            np.testing.assert_array_equal(image, together[index])

    @pytest.mark.parametrize("kind", [source_of, stream_of])
    def test_replicas_read_consecutive_pieces_of_a_shard(self, kind):
        arguments = dict(shard_index=1, num_shards=2, start_step=1)
        shard = self.read(kind(10), 4, **arguments)
        split = self.read(kind(10), 8, num_replicas=2, **arguments)
        assert split[0]["images"].shape == (2, 8, 8, 3)
        assert_equal(joined([split[::2], split[1::2]]), shard)

    def test_a_far_step_of_random_access_reads_nothing_before_it(self):
        far = 10**12
        (batch,) = self.read(source_of(10), 1, start_step=far)
        assert batch["images"].shape == (8, 8, 8, 3)

    def test_a_stream_has_an_example_for_each_process(self):
        with pytest.raises(ValueError, match="num_shards=4 .*2 examples"):
            self.read(stream_of(2), 1, shard_index=2, num_shards=4)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("kind", "crop"),
    [
        (source_of, dict()),
        (source_of, dict(crop="none")),
        (stream_of, dict(crop="pad", pad=1)),
    ],
)
def test_shapes_are_static(kind, crop):
    arguments = dict(
        batch_size=8, image_size=(5, 4), shard_index=1, num_shards=2
    )
    for batches in (
        data.train_batches(kind(10), **crop, **arguments),
        data.eval_batches(kind(10), **arguments),
    ):
        spec = batches.element_spec
        assert spec["images"].shape == (4, 5, 4, 3)
        assert spec["labels"].shape == (4, 3)
        if "weights" in spec:
            assert spec["weights"].shape == (4,)


@pytest.mark.backend_independent
class TestEvaluation:
    @pytest.mark.parametrize(
        ("kind", "num_examples", "count"),
        [(source_of, 2, 4), (source_of, 10, 2), (stream_of, 5, 4)],
    )
    def test_shards_see_each_example_once(self, kind, num_examples, count):
        source = kind(num_examples)
        shards = []
        for i in range(count):
            batches = data.eval_batches(
                source,
                batch_size=4,
                image_size=(4, 4),
                shard_index=i,
                num_shards=count,
            )
            shards.append(list(batches.as_numpy_iterator()))
            assert len(shards[-1]) == len(batches) == -(-num_examples // 4)
            for batch in shards[-1]:
                assert batch["images"].shape == (4 // count, 4, 4, 3)
        found = [i for shard in shards for i in indices(shard)]
        assert found == list(range(num_examples))
        weights = np.concatenate([b["weights"] for b in sum(shards, [])])
        assert weights.dtype == np.float32
        assert (weights > 0).sum() == num_examples
        np.testing.assert_allclose(weights.mean(), 1, rtol=1e-6)
        labels = np.concatenate([b["labels"] for b in sum(shards, [])])
        np.testing.assert_array_equal(labels.any(-1), weights > 0)

    def test_replicas_read_consecutive_pieces_of_a_shard(self):
        arguments = dict(
            batch_size=8, image_size=(4, 4), shard_index=1, num_shards=2
        )
        shard = data.eval_batches(source_of(10), **arguments)
        split = data.eval_batches(source_of(10), num_replicas=2, **arguments)
        assert len(split) == 2 * len(shard)
        split = list(split.as_numpy_iterator())
        assert_equal(joined([split[::2], split[1::2]]), take(shard, -1))

    @pytest.mark.parametrize("stated", [9, 11])
    def test_a_stream_of_another_size_than_stated_stops(self, stated):
        stream = stream_of(10).stream
        source = data.Source(
            name="misstated",
            class_names=("a", "b", "c"),
            num_examples=stated,
            image_shape=(4, 4, 3),
            stream=lambda start, stop, **_: stream(0, 10),
        )
        batches = data.eval_batches(source, batch_size=4, image_size=(4, 4))
        with pytest.raises(tf.errors.FailedPreconditionError):
            take(batches, -1)


def test_loss_and_accuracy_are_those_of_the_examples():
    """Whatever the batch size and the number of processes."""
    source = source_of(50)
    model = keras.Sequential(
        [
            keras.Input((4, 4, 3)),
            keras.layers.Rescaling(1 / 25, offset=-1),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.CategoricalAccuracy(name="hits")],
    )

    def evaluate(batch_size, **shard):
        batches = data.eval_batches(
            source, batch_size=batch_size, image_size=(4, 4), **shard
        )
        return model.evaluate(
            data.as_pairs(batches), return_dict=True, verbose=0
        )

    kernel, bias = (w.astype("float64") for w in model.get_weights())
    logits = (source.images / 25 - 1).reshape(50, -1) @ kernel + bias
    right = logits[np.arange(50), source.labels]
    loss = np.mean(np.log(np.exp(logits).sum(-1)) - right)
    hits = np.mean(logits.argmax(-1) == source.labels)
    assert 0 < hits < 1
    for batch_size in (1, 7, 32, 1000):
        found = evaluate(batch_size)
        np.testing.assert_allclose(found["loss"], loss, rtol=1e-6)
        np.testing.assert_allclose(found["hits"], hits, rtol=1e-6)
    losses = [
        evaluate(12, shard_index=i, num_shards=4)["loss"] for i in range(4)
    ]
    np.testing.assert_allclose(np.mean(losses), loss, rtol=1e-6)


@pytest.mark.backend_independent
@pytest.mark.parametrize("batches", [data.train_batches, data.eval_batches])
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (dict(shard_index=2, num_shards=2), "shard_index=2, num_shards=2"),
        (dict(shard_index=0.0), "at least 0. Received: shard_index=0.0"),
        (dict(num_shards="2"), "at least 1. Received: num_shards='2'"),
        (dict(num_replicas=0), "num_replicas=0"),
        (
            dict(num_shards=2, num_replicas=3),
            "batch_size=8, num_shards=2, num_replicas=3",
        ),
    ],
)
def test_bad_shards_are_named(batches, arguments, word):
    with pytest.raises(ValueError, match=word):
        batches(source_of(10), batch_size=8, image_size=(4, 4), **arguments)


@pytest.mark.backend_independent
@pytest.mark.parametrize("batches", [data.train_batches, data.eval_batches])
def test_an_unknown_argument_is_refused_with_the_nearest_name(batches):
    with pytest.raises(TypeError, match="'shard_indx'.*'shard_index'"):
        batches(source_of(4), batch_size=2, image_size=(4, 4), shard_indx=0)
