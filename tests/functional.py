"""The authors' data of a family, and how far a model is from them."""

import pathlib

import keras
import numpy as np

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "numerics"


def golden(case):
    """Returns the authors' data, and the path of their checkpoint."""
    with np.load(GOLDENS / f"{case}.io.npz") as archive:
        data = dict(archive)
    return data, str(GOLDENS / f"{case}.ckpt.npz")


def difference(model, images, expected):
    """Largest difference of the output, relative to the largest expected."""
    found = model.predict(images, verbose=0)
    return np.abs(found - expected).max() / np.abs(expected).max()


def arrays_of(path):
    with np.load(path) as archive:
        return dict(archive)


def values_of(model):
    return {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
