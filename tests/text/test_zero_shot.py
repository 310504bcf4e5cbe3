"""Classifiers of words: the towers' logits, saved, opened, refused."""

import keras
import numpy as np
import pytest

import keras_vit
from tests.text.test_two_towers import GOLDENS, golden, make, near, numpy

NAMES = ("red car", "car", "red")


@pytest.mark.parametrize("name", ["projected", "siglip"])
def test_a_classifier_has_the_logits_of_the_towers(name):
    if name == "siglip":
        _, images, _ = golden(name)
        model = keras_vit.from_pretrained(GOLDENS / name)
        model.tokenizer = keras_vit.text.word_tokenizer(["red", "car"], 12)
    else:
        model = make("clip")
        images = np.random.default_rng(0).uniform(0, 255, (3, 16, 16, 3))
    classifier = keras_vit.zero_shot(model, NAMES, "name")
    found = classifier.predict(images, verbose=0)
    near(found, model.logits(images, list(NAMES)), 1e-6)
    assert classifier.class_names == NAMES


@pytest.mark.backend("torch")
def test_the_embedding_of_a_class_is_the_mean_of_its_prompts():
    model = make("clip")
    templates = ("a {}", "{} red", "{}")
    classifier = keras_vit.zero_shot(model, ["car", "bike"], templates)
    each = model.encode_texts(["a car", "car red", "car"]).mean(axis=0)
    scale = numpy(model.similarity.scale())
    expected = scale * each / np.linalg.norm(each)
    near(classifier.head.kernel[:, 0], expected)
    assert len(keras_vit.text.TEMPLATES["imagenet"]) == 80
    assert len(set(keras_vit.text.TEMPLATES["imagenet"])) == 80


@pytest.mark.backend("torch")
def test_a_classifier_is_the_start_of_others(tmp_path):
    images = np.random.default_rng(0).uniform(0, 255, (3, 16, 16, 3))
    classifier = keras_vit.zero_shot(make("clip"), NAMES, "name")
    expected = numpy(classifier(images))
    path = tmp_path / "model.keras"
    classifier.save(path)
    for again in (
        keras.models.load_model(path),
        keras_vit.from_pretrained(path),  # as recipes open weights
    ):
        np.testing.assert_array_equal(numpy(again(images)), expected)
        assert again.class_names == NAMES
    other = keras_vit.from_pretrained(path, classes=5)
    assert type(other.head) is keras_vit.layers.ClassificationHead
    with pytest.raises(ValueError, match="no library has a place"):
        keras_vit.save_checkpoint(classifier, tmp_path / "own.npz")
    classifier.compile("sgd", "mse")
    classifier.fit(images, np.eye(3, dtype="float32"), verbose=0)
    assert not np.array_equal(numpy(classifier(images)), expected)


@pytest.mark.backend("torch")
def test_wrong_words_are_refused():
    model = make()
    for names, templates, message in (
        ((), "name", "`class_names`"),
        (("a", "a"), "name", "differ from one another"),
        (("a",), "banana", "`templates` must be one of"),
        (("a",), ("a photo",), "must have {} in each"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_vit.zero_shot(model, names, templates)
    with pytest.raises(ValueError, match="two towers"):
        keras_vit.zero_shot(model.image_tower, ("a",))
