"""Trains a masked autoencoder on one device and on four, in one process."""

import keras
import numpy as np
import start_recipe

import keras_vit
from keras_vit import distribution, training

BATCH_SIZE = 8


def step(devices):
    """Returns the loss and the weights after a step."""
    with devices.scope():
        keras.utils.set_random_seed(1)
        vit = keras_vit.ViT(
            patch_size=4, hidden_size=16, num_layers=1, num_heads=2,
            mlp_dim=16, input_shape=(16, 16, 3), include_top=False,
        )  # fmt: skip
        whole = keras_vit.heads.mae(
            vit,
            decoder_num_layers=1,
            decoder_hidden_size=8,
            decoder_num_heads=2,
            decoder_mlp_dim=16,
        )
        model = keras.Model(whole.input, whole.output["loss"])
        model.compile(keras.optimizers.SGD(0.1), training.OutputLoss())
    pixels = np.random.default_rng(0).uniform(0, 255, (BATCH_SIZE, 16, 16, 3))
    inputs = whole.inputs_of(pixels.astype("float32"))
    with devices.training_scope():
        history = model.fit(
            inputs,
            np.zeros(BATCH_SIZE, "float32"),
            batch_size=BATCH_SIZE,
            shuffle=False,
            verbose=0,
        )
    weights = map(keras.ops.convert_to_numpy, model.weights)
    return [np.array(history.history["loss"]), *weights]


def main():
    start_recipe.pretend_devices(4)
    one = distribution.Devices(kind="cpu", num_devices=1, num_replicas=1)
    four = distribution.setup("cpu")
    assert four.num_replicas == 4
    for ours, theirs in zip(step(four), step(one), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
