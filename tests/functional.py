"""The authors' data of a family, and how far a model is from them."""

import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import families
from tests.drawn_folders import drawn_checkpoint

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "numerics"


def golden(case):
    """Returns the authors' data, and the path of their checkpoint."""
    with np.load(GOLDENS / f"{case}.io.npz") as archive:
        data = dict(archive)
    path = GOLDENS / f"{case}.ckpt.npz"
    return data, str(path if path.exists() else drawn_checkpoint(case))


def difference(model, images, expected):
    """Largest difference of the output, relative to the largest expected."""
    found = model.predict(images, verbose=0)
    return np.abs(found - expected).max() / np.abs(expected).max()


def arrays_of(path):
    with np.load(path) as archive:
        return dict(archive)


def values_of(model):
    return {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}


def check_authors_names(model, folder, shapes, **unseen):
    """A state dict has arrays of these names and shapes, and is read again.

    `unseen` are arguments that arrays do not show, and that a config.json does.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.uniform(0.1, 1, weight.shape))
    builder = getattr(keras_vit, families.FAMILIES[model.family].title)
    given = dict(format="authors", allow_differences=True)  # of pixels
    keras_vit.save_checkpoint(model, folder / "out.pth", **given)
    state = torch.load(folder / "out.pth", weights_only=True)
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    keras_vit.save_checkpoint(model, folder / "directory", **given)
    shape = model.input_shape[1:]
    for weights, needed in (
        (folder / "out.pth", dict(input_shape=shape, **unseen)),
        (folder / "directory", {}),
    ):
        again = builder(weights=str(weights), **needed)
        assert again.image_shape == shape
        for key, value in values_of(again).items():
            np.testing.assert_array_equal(value, values_of(model)[key])
    assert again.architecture == model.architecture
