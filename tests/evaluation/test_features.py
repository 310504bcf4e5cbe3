"""Representations of a whole data set, of any model and layer."""

import keras
import numpy as np
import pytest
import sources
from small_runs import small_vit

import keras_vit
from keras_vit import data, evaluation

pytestmark = pytest.mark.backend("torch")

COUNT, SIDE, WIDTH = 7, 8, 12


def make_vit(**changes):
    sizes = dict(hidden_size=WIDTH, num_layers=2, num_heads=2)
    images = dict(input_shape=(SIDE, SIDE, 3), classes=3)
    if "num_registers" in changes:
        sizes |= dict(patch_size=4, mlp_dim=8)
        return keras_vit.DINOv2(**sizes | images | changes)
    return small_vit(**sizes | images | changes)


@pytest.fixture(scope="module")
def source():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (COUNT, SIDE, SIDE, 3), "uint8")
    return sources.of_arrays(images, rng.integers(0, 3, COUNT))


def batches(source, batch_size):
    return data.eval_batches(
        source, batch_size=batch_size, image_size=(SIDE, SIDE)
    )


def direct(model, layer, images):
    part = keras.Model(model.input, model.get_layer(layer).output)
    return keras.ops.convert_to_numpy(part(images, training=False))


@pytest.mark.parametrize("batch_size", [2, 16])
def test_every_image_counts_once_whatever_the_batch(source, batch_size):
    model = make_vit()
    found, labels = evaluation.features(model, batches(source, batch_size))
    np.testing.assert_array_equal(labels, source.labels)
    expected = direct(model, "encoder_norm", source.images)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found.dtype == "float32"


def test_it_is_what_the_head_reads(source):
    model = make_vit(representation_size=5)
    found, _ = evaluation.features(model, batches(source, 4))
    expected = direct(model, "pre_logits", source.images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    headless = make_vit(include_top=False)
    found, _ = evaluation.features(headless, batches(source, 4))
    np.testing.assert_allclose(
        found, headless.predict(source.images, verbose=0), rtol=1e-4, atol=1e-5
    )


def test_both_tokens_of_deit_are_read(source):
    sizes = dict(patch_size=4, hidden_size=WIDTH, num_layers=1, num_heads=2)
    shape = dict(input_shape=(SIDE, SIDE, 3), classes=3, mlp_dim=8)
    model = keras_vit.DeiT(**sizes | shape)
    expected = direct(model, "encoder_norm", source.images)[:, :2].mean(axis=1)
    for layer in (None, "encoder_norm"):
        found, _ = evaluation.features(model, batches(source, 4), layer)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "layer", "read"),
    [
        ({}, "encoderblock_0", lambda x: x[:, 0]),
        # No class token is among these yet, and never here.
        ({}, "embedding", lambda x: x.mean(axis=1)),
        ({"pooling": "gap"}, "encoderblock_0", lambda x: x.mean(axis=1)),
        (
            {"pooling": "gap_norm", "class_token": True},
            "encoderblock_0",
            lambda x: x[:, 1:].mean(axis=1),
        ),
        ({"num_registers": 3}, "encoderblock_0", lambda x: x[:, 0]),
        (
            {
                "num_registers": 3,
                "class_token": False,
                "pooling": "gap",
                "position_prefix": 0,
            },
            "encoderblock_0",
            lambda x: x[:, 3:].mean(axis=1),
        ),
    ],
)
def test_tokens_are_read_as_a_classifier_would(source, changes, layer, read):
    model = make_vit(**changes)
    found, _ = evaluation.features(model, batches(source, 4), layer)
    expected = read(direct(model, layer, source.images))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_class_tokens_are_found_behind_pooling_too():
    model = keras_vit.MViT(
        depths=(1, 1),
        hidden_sizes=(8, 16),
        num_heads=(1, 2),
        cube_stride=(2, 4, 4),
        key_value_stride=(1, 2, 2),
        input_shape=(4, SIDE, SIDE, 3),
        classes=3,
    )
    clips = np.random.default_rng(0).integers(0, 256, (2, 4, SIDE, SIDE, 3))
    batch = {"images": clips, "labels": np.zeros(2, int)}
    found, _ = evaluation.features(model, [batch], "blocks_0")
    expected = direct(model, "blocks_0", clips)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_models_of_others_and_integer_labels_do(source):
    images = keras.Input((SIDE, SIDE, 3))
    maps = keras.layers.Conv2D(6, 3, name="maps")(images)
    scores = keras.layers.Dense(2)(keras.layers.Flatten()(maps))
    model = keras.Model(images, scores)
    elements = [
        {"images": source.images[i : i + 3], "labels": source.labels[i : i + 3]}
        for i in (0, 3, 6)
    ]
    found, labels = evaluation.features(model, elements, "maps")
    np.testing.assert_array_equal(labels, source.labels)
    expected = direct(model, "maps", source.images).mean(axis=(1, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)


def test_half_precision_gives_float32(source):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_vit()
    finally:
        keras.config.set_dtype_policy("float32")
    found, _ = evaluation.features(model, batches(source, 4), "encoderblock_1")
    assert found.dtype == "float32" and found.shape == (COUNT, WIDTH)


def test_layers_that_are_not_there_or_no_vectors_are_refused(source):
    model = make_vit()
    with pytest.raises(ValueError, match="Received: layer='encoder'"):
        evaluation.representation(model, "encoder")
    images = keras.Input((SIDE, SIDE, 3))
    deep = keras.layers.Reshape((SIDE, SIDE, 3, 1), name="deep")(images)
    with pytest.raises(ValueError, match="`layer` must give"):
        evaluation.representation(keras.Model(images, deep), "deep")
    several = keras.Model([images, deep], images + deep[..., 0])
    with pytest.raises(ValueError, match="functional, with one input"):
        evaluation.representation(several)


def test_a_sequential_model_has_features():
    model = keras.Sequential(
        [
            keras.Input((2, 2, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(3, name="head"),
        ]
    )
    batch = dict(images=np.arange(8.0).reshape(2, 2, 2, 1), labels=np.eye(2, 3))
    found, _ = evaluation.features(model, [batch])
    np.testing.assert_array_equal(found, [[0, 1, 2, 3], [4, 5, 6, 7]])
    best, _, labels = evaluation.predictions(model, [batch], top_k=1)
    assert best.shape == (2, 1) and labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "at least one"),
        ([(np.ones((2, 4)), np.ones(2))], "dictionaries with 'images'"),
        ([dict(images=np.ones((2, 4)), labels=[1])], "for each image"),
        ([dict(images=np.ones((2, 4)), labels=[0, 0.5])], "numbers of classes"),
    ],
)
def test_batches_of_another_form_are_refused(batches, message):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    with pytest.raises(ValueError, match=f"`(batches|labels)`.*{message}"):
        evaluation.features(model, batches)
    with pytest.raises(ValueError, match="`batches`"):
        evaluation.predictions(model, batches, top_k=1)


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_predictions_are_those_of_keras(source):
    model = make_vit()
    rng = np.random.default_rng(1)
    model.get_layer("head").kernel.assign(rng.normal(size=(WIDTH, 3)))
    best, losses, labels = evaluation.predictions(
        model, batches(source, 3), top_k=2
    )
    logits = model.predict(source.images, verbose=0).astype("float64")
    np.testing.assert_array_equal(best, np.argsort(-logits)[:, :2])
    np.testing.assert_array_equal(labels, source.labels)
    normed = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(
        losses, -normed[np.arange(COUNT), labels], rtol=1e-3, atol=1e-4
    )
    softmax = keras.Model(model.input, keras.ops.softmax(model.output))
    _, of_probabilities, _ = evaluation.predictions(
        softmax, batches(source, 3), top_k=1, from_logits=False
    )
    np.testing.assert_allclose(of_probabilities, losses, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="`top_k` must be at most 3"):
        evaluation.predictions(model, [], top_k=4)


def test_labels_may_have_an_axis_of_one():
    from keras_vit.evaluation.features import labels_of

    batch = dict(labels=np.array([[3], [7], [1]]))
    assert labels_of(batch).tolist() == [3, 7, 1]
