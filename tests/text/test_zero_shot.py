"""Classifiers of words: the towers' logits, saved, opened, served, refused."""

import json

import keras
import numpy as np
import pytest
import realistic
from small_runs import small_config

import keras_vit
from keras_vit import data
from recipes import evaluate, fewshot, fields, finetune
from tests.text.test_two_towers import (
    GOLDENS,
    TEXT,
    VIT,
    golden,
    make,
    near,
    numpy,
)

NAMES = ("red car", "car", "red")


def towers_and_images(name):
    if name == "siglip":
        _, images, _ = golden(name)
        model = keras_vit.from_pretrained(GOLDENS / name)
        model.tokenizer = keras_vit.text.word_tokenizer(["red", "car"], 12)
        return model, images
    return make("clip"), np.random.default_rng(0).uniform(
        0, 255, (3, 16, 16, 3)
    )


@pytest.mark.parametrize("name", ["projected", "siglip"])
def test_a_classifier_has_the_logits_of_the_towers(name):
    model, images = towers_and_images(name)
    classifier = keras_vit.zero_shot(model, NAMES, "name")
    found = classifier.predict(images, verbose=0)
    near(found, model.logits(images, list(NAMES)), 1e-6)
    assert classifier.class_names == NAMES


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["projected", "siglip"])
def test_a_head_that_is_quantised_or_low_rank_is_still_that(name, tmp_path):
    """Keras calls a quantised layer by another method."""
    model, images = towers_and_images(name)
    classifier = keras_vit.zero_shot(model, NAMES, "name")
    expected = numpy(classifier(images))
    for layer in classifier.head._flatten_layers():
        layer.enable_lora(2)
    near(classifier(images), expected, 1e-6)
    keras.models.clone_model(classifier)
    for change, tolerance in (
        (lambda: None, 1e-6),
        (lambda: classifier.quantize("int8"), 0.05),
    ):
        change()
        classifier.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        found = numpy(classifier(images))
        near(again(images), found, 1e-6)
        near(found, expected, tolerance)


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
@pytest.mark.filterwarnings("ignore:.*is cut off")
@pytest.mark.parametrize(
    ("names", "templates"),
    [
        (("red", "Red"), "name"),
        (("red", "apple", "pear"), "photo"),  # of no known words
        (("red", "car"), (f"{'a ' * 12} {{}}",)),  # cut off before the name
    ],
)
def test_a_warning_names_classes_of_the_same_tokens(names, templates):
    with pytest.warns(UserWarning, match="have the same tokens"):
        keras_vit.zero_shot(make("clip"), names, templates)


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
    turned = keras_vit.from_pretrained(path, class_names=NAMES[::-1])
    np.testing.assert_array_equal(numpy(turned(images)), expected[:, ::-1])
    other = keras_vit.from_pretrained(path, classes=5)
    assert type(other.head) is keras_vit.layers.ClassificationHead
    with pytest.raises(ValueError, match="no library has a place"):
        keras_vit.save_checkpoint(classifier, tmp_path / "own.npz")
    classifier.compile("sgd", "mse")
    classifier.fit(images, np.eye(3, dtype="float32"), verbose=0)
    assert not np.array_equal(numpy(classifier(images)), expected)


@pytest.mark.backend("tensorflow", "jax")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of jax2tf
@pytest.mark.parametrize(
    ("kind", "activation"),
    [("clip", "softmax"), ("siglip", "sigmoid")],
)
@pytest.mark.thorough("jax")
@pytest.mark.usefixtures("plain_serving")
def test_it_is_served_from_bytes_to_class_names(kind, activation, tmp_path):
    tf = pytest.importorskip("tensorflow")
    model = make(kind, logit_bias=-3.0 if kind == "siglip" else None)
    classifier = keras_vit.zero_shot(model, NAMES, "name")
    keras_vit.export_savedmodel(classifier, tmp_path / "words" / "1", top_k=2)
    served = tf.saved_model.load(tmp_path / "words" / "1").signatures
    pixels = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 3), "uint8")
    logits = model.logits(pixels.astype("float32"), list(NAMES))
    files = tf.stack([tf.io.encode_png(image) for image in pixels])
    found = served["serving_default"](image_bytes=files)
    order = np.argsort(-logits, axis=1)[:, :2]
    names = [[NAMES[i].encode() for i in row] for row in order]
    assert found["classes"].numpy().tolist() == names
    scores = numpy(getattr(keras.ops, activation)(logits))
    best = np.take_along_axis(scores, order, axis=1)
    np.testing.assert_allclose(found["scores"], best, rtol=1e-4)
    raw = served["logits"](images=tf.constant(pixels, "float32"))["logits"]
    near(raw.numpy(), logits, 1e-6)


@pytest.mark.backend("torch")
def test_recipes_take_it_as_any_classifier(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(finetune, "_draw", lambda *arguments: ([], False))
    names = [str(i) for i in reversed(range(10))]  # not in the data's order
    text = keras_vit.text.text_tower(
        "clip", **TEXT, tokenizer=keras_vit.text.word_tokenizer(names, 6)
    )
    vit = VIT | dict(patch_size=4, input_shape=(8, 8, 1), include_top=False)
    model = realistic.fill(keras_vit.two_towers(keras_vit.ViT(**vit), text))
    path = str(tmp_path / "zero_shot.keras")
    keras_vit.zero_shot(model, names, "name").save(path)
    train, held_out = data.load("digits")
    logits = model.logits(held_out.images, names)
    right = np.take(names, logits.argmax(1)).astype(int) == held_out.labels
    assert evaluate.main([path, "--dataset=digits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["classes"] == "by name, in another order"
    assert found["top_1"] == pytest.approx(right.mean())
    # Fine-tuned, it starts from the words. Without a rate it stays there.
    config = small_config(base_lr=1e-9)
    config.model.weights = path
    config.model.architecture = finetune.Architecture()
    tuned = finetune.run(config, str(tmp_path / "tuned"))
    assert tuned["accuracy"] == pytest.approx(right.mean(), abs=1e-3)
    config = fields.changed(
        fewshot.Config(), {"model.weights": path, "data.max_train_images": 100}
    )
    config.shots, config.num_draws, config.neighbours = (1,), 1, (1,)
    found = fewshot.run(config, str(tmp_path / "fewshot"))
    assert 0.1 < found["few_shot"][0]["accuracies"][0] <= 1


@pytest.mark.backend("torch")
def test_wrong_words_are_refused():
    model = make()
    for names, templates, message in (
        ((), "name", "`class_names`"),
        (("a", "a"), "name", "differ from one another"),
        (("a",), "banana", "`templates` must be one of"),
        (("a",), ("a photo",), "must have {} in each"),
        (("car",), "name", "at least two"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_vit.zero_shot(model, names, templates)
    with pytest.raises(ValueError, match="two towers"):
        keras_vit.zero_shot(model.image_tower, ("a",))
    model.image_tower.head.quantize("int8")
    with pytest.raises(ValueError, match="quantised already, to int8"):
        keras_vit.zero_shot(model, ("a",), "name")
