"""SigLIP 2 for images of any shape: the library's numbers, and one shape."""

import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.text import naflex
from keras_vit_cli import words
from tests.text.test_two_towers import GOLDENS, near, numpy

FOLDER = GOLDENS / "siglip2"
DATA = np.load(FOLDER / "io.npz")
IMAGES = [DATA[name] for name in sorted(DATA.files) if "image_" in name[:6]]
PATCHES = {name: DATA[name] for name in ("patches", "mask", "grids")}


def test_the_golden_has_the_librarys_numbers():
    model = keras_vit.from_pretrained(FOLDER)
    inputs = PATCHES | dict(ids=DATA["input_ids"].astype("int32"))
    found = realistic.run(model, inputs)
    near(found["image_embeddings"], DATA["out/image_embeds"])
    near(found["text_embeddings"], DATA["out/text_embeds"])
    near(found["logits"], DATA["out/logits_per_image"])


@pytest.mark.backend("torch")
def test_images_of_any_shape_become_the_librarys_patches(tmp_path):
    model = keras_vit.from_pretrained(FOLDER)
    found = model.image_tower.patches(IMAGES)
    for name in ("mask", "grids"):
        np.testing.assert_array_equal(found[name], PATCHES[name])
    # A level of some pixels: Pillow's weights are whole numbers.
    difference = np.abs(found["patches"] - PATCHES["patches"]) * 127.5
    assert difference.max() < 1.01 and (difference > 0.01).mean() < 0.005
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    near(again.encode_images(PATCHES), DATA["out/image_embeds"])
    # Where the last digits of the search decide, and where it ends.
    assert naflex.size_of((2992, 2161), (16, 16), 256) == (18 * 16, 14 * 16)
    assert naflex.size_of((1, 1), (16, 16), 256) == (7 * 16, 7 * 16)
    for shape in ((4, 4), (4, 0, 3)):
        with pytest.raises(ValueError, match=r"shape \[H, W, 3\]"):
            model.encode_images([np.zeros(shape)])
    with pytest.raises(ValueError, match="input_shape="):
        keras_vit.zero_shot(model, ["a"])


@pytest.mark.backend("torch")
def test_images_of_one_shape_are_those_of_a_siglip(tmp_path):
    model = keras_vit.from_pretrained(FOLDER)
    image = IMAGES[-1].reshape(8, 32, 3).astype("float32")
    fixed = keras_vit.from_pretrained(FOLDER, input_shape=image.shape)
    assert type(fixed) is keras_vit.text.TwoTowers
    near(fixed.encode_images(image[None]), model.encode_images([image]), 1e-5)
    model.tokenizer = lambda texts: DATA["input_ids"][: len(texts)]
    named = words.model_of(model, "a cat, a dog")
    squares = keras_vit.from_pretrained(FOLDER, input_shape=named.image_shape)
    squares.tokenizer = model.tokenizer
    expected = keras_vit.zero_shot(squares, ["a cat", "a dog"], ["{}"])
    images = np.random.default_rng(0).uniform(0, 255, (2, *named.image_shape))
    near(numpy(named(images)), numpy(expected(images)))
    classifier = keras_vit.from_pretrained(FOLDER, classes=3)
    assert classifier.output_shape == (None, 3)
    alone = keras_vit.from_pretrained(FOLDER, towers="image")
    assert isinstance(alone, keras_vit.text.NaFlexModel)
    with pytest.raises(ValueError, match="`model` must take images"):
        keras_vit.save_checkpoint(alone, tmp_path, format="huggingface")
    found = numpy(alone(alone.patches([image])))
    expected = numpy(fixed.image_tower(image[None]))
    near(found, expected)


@pytest.mark.backend("torch")
def test_the_most_patches_are_those_of_the_file(tmp_path):
    model = keras_vit.from_pretrained(FOLDER, max_patches=9)
    keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    again = keras_vit.from_pretrained(tmp_path)
    assert again.image_tower.max_patches == 9
    near(again.encode_images(IMAGES), model.encode_images(IMAGES))
    changed = keras_vit.from_pretrained(tmp_path, max_patches=4)
    assert changed.image_tower.max_patches == 4
    with pytest.raises(ValueError, match="`max_patches`"):
        keras_vit.from_pretrained(tmp_path, max_patches=0)
