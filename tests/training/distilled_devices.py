"""Trains student and teacher on one device and on four, in one process."""

import json

import keras
import numpy as np
import start_recipe

from keras_vit import distribution
from tests.training import distilled


def train(devices, changes):
    with devices.scope():
        model = distilled.make(**changes)
        model.compile(keras.optimizers.SGD(1e-3))
    with devices.training_scope():
        history = model.fit(
            distilled.batch(16),
            np.zeros(16),
            batch_size=8,
            shuffle=False,
            verbose=0,
        )
    logs = {k: v[-1] for k, v in history.history.items()}
    weights = [keras.ops.convert_to_numpy(v) for v in model.variables]
    return dict(
        loss=[logs[k] for k in sorted(logs)],
        weights=[w.tolist() for w in weights],
    )


def main(path):
    start_recipe.pretend_devices(4)
    one = distribution.Devices(kind="cpu", num_devices=1, num_replicas=1)
    four = distribution.setup("cpu")
    assert four.num_devices == 4
    found = {}
    for name, changes in (("dino", {}), ("dinov2", distilled.V2)):
        found[name] = {"4": train(four, changes), "1": train(one, changes)}
    path.write_text(json.dumps(found))
