"""Images that were scaled already are noticed before they cost accuracy."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit import data

pytestmark = pytest.mark.backend("torch")


def make_images(low, high):
    return np.random.default_rng(0).uniform(low, high, (4, 8, 8, 3))


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return make_images(0, 1), np.zeros(4)


@pytest.mark.parametrize(
    ("low", "high", "problem"),
    [
        (0, 1, "seem to be scaled already"),
        (-1, 1, "seem to be scaled already"),
        (-2.5, 2.7, "seem to be scaled already"),
        (0, 65535, "are out of range"),
        (-128, 127, "are out of range"),
        (np.nan, 255, "hold NaN or infinity"),
    ],
)
def test_what_is_no_pixel_warns(low, high, problem):
    images = make_images(0, 255)
    images[0] = high
    images[1] = low
    if high <= 127:
        images = np.linspace(low, high, images.size).reshape(images.shape)
    with pytest.warns(UserWarning, match=rf"{problem}, but .* \[0, 255\]"):
        data.check_pixels(images.astype("float32"))


@pytest.mark.parametrize("form", ["tensor", "pairs", "dataset", "PyDataset"])
def test_what_fit_takes_is_looked_at(form):
    images = make_images(0, 1)
    if form == "tensor":
        images = keras.ops.convert_to_tensor(images)
    elif form == "pairs":
        images = iter([[images, np.zeros(4)]])  # as a DataLoader of PyTorch
    elif form == "PyDataset":
        images = Batches()
    elif form == "dataset":
        tf = pytest.importorskip("tensorflow")
        images = tf.data.Dataset.from_tensors((images, np.zeros(4)))
    with pytest.warns(UserWarning, match="scaled already"):
        data.check_pixels(images)


@pytest.mark.parametrize(
    "images", [[], None, 3, "a.png", [[0.5]], np.zeros((0, 8, 8, 3))]
)
def test_what_holds_no_images_is_refused(images):
    with pytest.raises(ValueError, match="`images` must be"):
        data.check_pixels(images)


def test_images_of_dictionaries_are_looked_at():
    with pytest.warns(UserWarning, match="seem to be scaled"):
        data.check_pixels([dict(images=make_images(0, 1), labels=[1])])


def test_pixels_and_uniform_images_do_not_warn():
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        data.check_pixels(make_images(0, 255))
        data.check_pixels(make_images(-20, 270))  # resized with overshoot
        data.check_pixels(make_images(0, 255).astype("uint8"))
        data.check_pixels(np.ones((2, 8, 8, 1), "uint8"))
        data.check_pixels(np.zeros((2, 8, 8, 3), "float32"))
    assert not warned
