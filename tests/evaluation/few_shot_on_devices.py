"""Trains with FewShot on two devices: `few_shot_on_devices.py STRATEGY FILE`.

A program of its own, because the number of devices is fixed when a backend
starts. Saves the model and prints what the last epoch logged.
"""

import json
import sys

import keras
import numpy as np
from test_callback import make_vit, parts

import keras_vit
from keras_vit import evaluation


def main(strategy, path):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    devices = keras_vit.distribution.setup("cpu", strategy)
    assert devices.num_devices == 2, devices
    keras.utils.set_random_seed(0)
    with devices.scope():
        model = make_vit()
        model.compile("sgd", "mse")
    few_shot = evaluation.FewShot("digits", *parts(), num_classes=10)
    with devices.training_scope():
        history = model.fit(
            np.zeros((8, 8, 8, 1), "uint8"),
            np.ones((8, 10)),
            batch_size=4,
            epochs=1,
            callbacks=[few_shot],
            verbose=0,
        )
    keras_vit.distribution.whole(model, devices).save(path)
    print(json.dumps(history.history["digits/5-shot"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
