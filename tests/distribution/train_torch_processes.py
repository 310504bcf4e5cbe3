"""Trains with losses of whole batches in one process of PyTorch and in two.

Each of the two processes compares with what it computes alone.
"""

import functools

import keras
import numpy as np

from keras_vit import distribution, training
from keras_vit.text.layers import Similarity
from tests.distribution import train_set_losses
from tests.training import contrastive_devices, distilled_devices


def contrastive(devices, bias):
    """Returns the loss and the weights after a step."""
    keras.utils.set_random_seed(1)
    names = ("images", "texts")
    inputs = {k: keras.Input((contrastive_devices.D,), name=k) for k in names}
    towers = [
        keras.layers.UnitNormalization()(keras.layers.Dense(4)(inputs[k]))
        for k in names
    ]
    outputs = dict(
        image_embeddings=towers[0],
        text_embeddings=towers[1],
        logits=Similarity(logit_bias=bias, name="similarity")(*towers),
    )
    model = keras.Model(inputs, outputs)
    training.set_loss(model, training.ContrastiveLoss())
    model.compile(keras.optimizers.SGD(0.1))
    distribution.synchronize(model)
    first, count = devices.process_index, devices.num_processes
    rows = [x[first::count] for x in contrastive_devices.embeddings()]
    history = model.fit(
        dict(zip(names, rows, strict=False)),
        {"valid": rows[2]},
        batch_size=contrastive_devices.B // count,
        shuffle=False,
        verbose=0,
    )
    weights = map(keras.ops.convert_to_numpy, model.trainable_weights)
    return [np.array(history.history["loss"]), *weights]


def normalised(devices):
    """Returns the moving mean of a BatchNormalization after a step."""
    norm = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((3,)), norm, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    distribution.synchronize(model)
    first, count = devices.process_index, devices.num_processes
    x = np.random.default_rng(0).normal(size=(8, 3))[first::count]
    model.fit(x, x[:, :1], batch_size=8 // count, shuffle=False, verbose=0)
    return [keras.ops.convert_to_numpy(norm.moving_mean)]


def unlabelled(devices, make):
    found = distilled_devices.train(devices, make)
    return [np.array(x) for x in (found["loss"], *found["weights"])]


CASES = (
    normalised,
    *(
        functools.partial(train_set_losses.step, make=make)
        for make in (train_set_losses.detection, train_set_losses.segmentation)
    ),
    *(functools.partial(contrastive, bias=bias) for bias in (None, -10.0)),
    *(
        functools.partial(unlabelled, make=make)
        for make in distilled_devices.CASES.values()
    ),
)


def main():
    alone = [case(distribution.Devices(kind="cpu")) for case in CASES]
    two = distribution.setup("cpu")
    assert two.num_processes == 2
    for case, expected in zip(CASES, alone, strict=True):
        for ours, theirs in zip(case(two), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
