"""A family's `forward` as a plain model, filled from arrays by its rules."""

import json
import pathlib

import keras
import numpy as np
from keras import ops

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "numerics"


def golden(case):
    """Returns the authors' data, their configuration and their weights."""
    with np.load(GOLDENS / f"{case}.io.npz") as archive:
        data = dict(archive)
    with np.load(GOLDENS / f"{case}.ckpt.npz") as archive:
        arrays = dict(archive)
    return data, json.loads(str(data.pop("config"))), arrays


def classifier(family, config, input_shape, classes):
    """Returns a functional model: `forward` and a head."""
    images = keras.Input(input_shape)
    x = family.forward(config, images)
    x = keras.layers.Dense(classes, name="head")(x)
    return keras.Model(images, x)


def load(model, arrays, rules):
    """Fills every variable; every array is used, and comes back the same."""
    rules = {rule.path: rule for rule in rules}
    used = set()
    for variable in model.weights:
        rule = rules.pop(variable.path)
        variable.assign(rule.transform.join(*map(arrays.get, rule.sources)))
        back = rule.transform.split(ops.convert_to_numpy(variable))
        for name, array in zip(rule.sources, back, strict=True):
            np.testing.assert_array_equal(array, arrays[name])
        used.update(rule.sources)
    assert not rules
    assert used == set(arrays)


def difference(model, images, expected):
    """Largest difference of the output, relative to the largest expected."""
    found = model.predict(images, verbose=0)
    return np.abs(found - expected).max() / np.abs(expected).max()
