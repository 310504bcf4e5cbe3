"""Augmentation by name: reproducible, from any step, in any process."""

import keras
import numpy as np
import pytest
import sources

from keras_vit import data
from keras_vit.data import augment, crops, views

tf = pytest.importorskip("tensorflow")

SIZE = (8, 6)


def source_of(count=8, channels=3):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *SIZE, channels)).astype("uint8")
    return sources.of_arrays(images)


def batches_of(source, *texts, **arguments):
    arguments = dict(batch_size=4, crop="none", flip=False) | arguments
    return data.train_batches(
        source, image_size=SIZE, augment=texts, **arguments
    )


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        for key in b:
            np.testing.assert_array_equal(a[key], b[key])


@pytest.mark.parametrize(
    "texts",
    [("RandomBrightness(0.3)", "RandomTranslation(0.2, 0.2)")]
    + [
        pytest.param(texts, marks=pytest.mark.backend("torch"))
        for texts in (
            ("RandomErasing", "batch:RandomContrast(factor=0.5)"),
            ("RandomGrayscale()", "CutMix()", "MixUp(alpha=0.5)"),
            ("batch:RandomHue(0.4)", "RandomBrightness(0.5)"),
        )
    ],
)
class TestRandomness:
    def test_a_run_can_start_at_any_step(self, texts):
        run = take(batches_of(source_of(), *texts, seed=7), 5)
        later = batches_of(source_of(), *texts, seed=7, start_step=3)
        assert_equal(take(later, 2), run[3:])
        plain = take(batches_of(source_of(), seed=7), 5)
        other = take(batches_of(source_of(), *texts, seed=8), 1)
        for batches in (plain, other):
            assert not np.array_equal(run[0]["images"], batches[0]["images"])


def joined(batches):
    return {
        key: np.concatenate([b[key] for b in batches]) for key in batches[0]
    }


@pytest.mark.backend_independent
def test_processes_draw_the_batches_of_a_single_process():
    texts = ("RandomBrightness(0.3)", "RandomErasing")
    (expected,) = take(batches_of(source_of(), *texts), 1)
    shards = [
        take(batches_of(source_of(), *texts, shard_index=i, num_shards=2), 1)[0]
        for i in range(2)
    ]
    assert_equal([joined(shards)], [expected])


@pytest.mark.backend_independent
def test_replicas_do_not_change_mixing():
    run = take(batches_of(source_of(), "MixUp"), 2)
    split = take(batches_of(source_of(), "MixUp", num_replicas=2), 4)
    assert split[0]["images"].shape == (2, *SIZE, 3)
    assert_equal([joined(split[:2]), joined(split[2:])], run)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    "text", ["CutMix", "Equalization", "RandomColorJitter(hue_factor=0.5)"]
)
def test_the_global_data_format_changes_nothing(text):
    expected = take(batches_of(source_of(), text), 1)
    keras.config.set_image_data_format("channels_first")
    try:
        found = take(batches_of(source_of(), text), 1)
    finally:
        keras.config.set_image_data_format("channels_last")
    assert_equal(found, expected)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    "text",
    [
        "RandomBrightness(0.3)",
        "RandomErasing(factor=(1.0, 1.0), scale=(0.4, 0.6))",
    ],
)
def test_each_epoch_and_example_has_other_draws(text):
    source = source_of(count=1)
    images = np.concatenate(
        [batch["images"] for batch in take(batches_of(source, text), 2)]
    )
    assert len({image.tobytes() for image in images}) == 8
    source.images[:] = 100
    twins = sources.of_arrays(np.full((4, *SIZE, 3), 100, "uint8"))
    (batch,) = take(batches_of(twins, text), 1)
    assert len({image.tobytes() for image in batch["images"]}) == 4


class OwnMixUp(keras.layers.MixUp):
    """A layer of the user's own that mixes images."""


@pytest.mark.parametrize(
    "text",
    [
        "MixUp(alpha=1.0)",
        "CutMix(factor=1.0)",
        pytest.param(
            f"{__name__}:OwnMixUp(alpha=1.0)",
            marks=pytest.mark.backend("torch"),
        ),
    ],
)
def test_labels_are_mixed_as_images_are(text):
    shades = np.array([0, 100, 200])
    images = np.tile(shades[:, None, None, None], (1, 16, 16, 3))
    batches = data.train_batches(
        sources.of_arrays(images.astype("uint8")),
        batch_size=12,
        image_size=(16, 16),
        crop="none",
        augment=(text,),
    )
    (batch,) = take(batches, 1)
    np.testing.assert_allclose(batch["labels"].sum(-1), 1, rtol=1e-5)
    assert ((batch["labels"] > 0.05).sum(-1) == 2).sum() >= 2
    # CutMix counts the area of a box whose edges lie between the pixels.
    np.testing.assert_allclose(
        batch["images"].mean((1, 2, 3)),
        batch["labels"] @ shades,
        atol=25 if "CutMix" in text else 0.05,
    )


# JAX draws in the graph of a pipeline alone.
@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.parametrize("prefix", ["", "batch:"])
def test_two_layers_of_a_kind_draw_apart(prefix):
    image, changes = np.full((1, 4, 4, 3), 100.0, "float32"), []
    for count in (1, 2):
        texts = (f"{prefix}RandomBrightness(factor=0.1)",) * count
        of_image, of_batch = augment.find_layers(texts, 2)
        found = augment.augment_image(of_image, image[0], (0, 1))
        batch = dict(images=image + found - image[0], labels=np.zeros((1, 2)))
        batch = {k: keras.ops.convert_to_numpy(v) for k, v in batch.items()}
        batch = {k: augment.tensorflow().constant(v) for k, v in batch.items()}
        found = augment.augment_batch(of_batch, batch, (0, 1))["images"]
        changes.append(float(found[0, 0, 0, 0]) - 100)
    assert abs(changes[0]) > 1 and abs(changes[1] - 2 * changes[0]) > 1


# On JAX Keras' own takes minutes, which is why there is another.
@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.thorough("torch")
def test_our_rand_augment_equals_that_of_keras():
    arguments = dict(num_ops=2, factor=0.4, seed=0, dtype="float32")
    ours, theirs = (
        augment._Seeded(kind(**arguments), "")
        for kind in (augment.RandAugment, keras.layers.RandAugment)
    )
    image = source_of(1).images[0].astype("float32")
    seeds = tf.data.Dataset.range(24)

    def both(i):
        seed = tf.stack([i, i])
        return ours(image, seed), theirs(image, seed)

    pairs = list(seeds.map(both).as_numpy_iterator())
    for a, b in pairs:
        np.testing.assert_allclose(a, b, atol=1e-3)
    assert len({a.tobytes() for a, _ in pairs}) > 12


@pytest.mark.backend_independent
def test_equalization_spreads_the_values_evenly():
    (layer,), _ = augment.find_layers(("Equalization()",), 2)
    image = np.arange(48, dtype="float32").reshape(*SIZE, 1)
    (found,) = (
        tf.data.Dataset.from_tensors(image)
        .map(lambda image: layer(image, (0, 0)))
        .as_numpy_iterator()
    )
    np.testing.assert_allclose(
        found.ravel(), np.round(np.arange(48) * 255 / 47), atol=1e-3
    )


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("name", "num_ops", "factor", "alpha"),
    [
        ("none", 0, 0, 0),
        ("light0", 2, 0, 0),
        ("light1", 2, 0.3, 0.2),
        ("medium1", 2, 0.45, 0.2),
        ("medium2", 2, 0.45, 0.5),
        ("strong1", 2, 0.6, 0.5),
        ("strong2", 2, 0.6, 0.8),
    ],
)
def test_settings_of_the_augreg_models(name, num_ops, factor, alpha):
    of_image, of_batch = augment.find_layers((name,), 3)
    assert [(x.layer.num_ops, x.layer.factor) for x in of_image] == [
        (num_ops, (0, factor))
    ] * (num_ops > 0)
    assert [x.layer.alpha for x in of_batch] == [alpha] * (alpha > 0)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RandomErase()", ["RandomErasing", "'RandomErase()'"]),
        ("medium3", ["'medium3'", "medium1"]),
        ("Dense(3)", ["augmentation layers of keras.layers"]),
        ("RandomErasing(factr=1)", ["'factr'", "factor"]),
        ("RandomErasing(seed=1)", ["'seed'"]),
        ("RandomErasing(factor=7)", ["'RandomErasing(factor=7)'", "7"]),
        ("RandomErasing(factor=print(1))", ["literal"]),
        ("RandomErasing(*[1])", ["literal"]),
        ("os.Thing()", ["'module:Layer'"]),
        ("keras_cv.GridMask()", ["layers of Keras", "resumed"]),
    ],
)
def test_bad_texts_are_refused_with_the_reason(text, words):
    with pytest.raises(ValueError) as error:
        augment.find_layers((text,), 3)
    for word in ["`augment`", *words]:
        assert word in str(error.value)


@pytest.mark.backend_independent
def test_a_layer_that_cannot_take_the_images_is_named():
    with pytest.raises(ValueError, match="(?s)8, 6, 1.*RandomHue.0.1"):
        batches_of(source_of(channels=1), "RandomHue(0.1)", channels=1)


@pytest.mark.backend_independent
def test_crop_flip_and_augmentation_draw_from_seeds_of_their_own(monkeypatch):
    def add_seed(image, seed):
        seed = tf.cast(tf.reshape(seed, (1, 2, 1)), "int64")
        return tf.concat([tf.cast(image, "int64"), seed], axis=0)

    def drawn(self, image, seed, cropping):
        return add_seed(tf.zeros((0, 2, 1), "int64"), seed)

    monkeypatch.setattr(views.Views, "drawn", drawn)
    monkeypatch.setattr(crops, "flip", add_seed)
    monkeypatch.setattr(
        augment,
        "augment_image",
        lambda layers, image, seed: add_seed(image, seed),
    )
    (batch,) = take(batches_of(source_of(), flip=True), 1)
    seeds = batch["images"][..., 0].reshape(-1, 2)
    assert len(seeds) == 3 * len(batch["images"])
    assert len({tuple(seed) for seed in seeds}) == len(seeds)
