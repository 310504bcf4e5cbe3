"""Trains without labels on one device and on several, in one process."""

import json

import keras
import numpy as np
import start_recipe

import keras_vit
from keras_vit import distribution
from keras_vit.training import masked_images, masked_patch
from recipes import mae, unlabelled
from tests.training import distilled

SIZE, PATCHES = 8, 16


def dino(**changes):
    """A model, its loss and metrics, and arrays of fit."""
    model, batch = distilled.make(**changes), distilled.batch(SIZE)
    return model, None, [], (batch, np.zeros(SIZE))


def backbone():
    keras.utils.set_random_seed(0)
    return keras_vit.ViT(**distilled.TINY)


def pixels_and_order():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (SIZE, 8, 8, 3)).astype("float32")
    order = rng.permuted(np.tile(np.arange(PATCHES), (SIZE, 1)), axis=1)
    return pixels, order.astype("int32")


def autoencoder():
    config = unlabelled.Config(
        mae=mae.Mae(
            decoder_num_layers=1,
            decoder_hidden_size=8,
            decoder_num_heads=2,
            decoder_mlp_dim=8,
        )
    )
    model = mae.objective(config, None).predictor(backbone())
    pixels, order = pixels_and_order()
    x = {"images": pixels, "visible": order[:, : PATCHES // 4]}
    return model, masked_images.OutputLoss(), [], (x, np.zeros(SIZE))


def patches():
    model = masked_patch.predictor(backbone())
    pixels, order = pixels_and_order()
    sources = np.where(order < 8, PATCHES, np.arange(PATCHES)).astype("int32")
    weights = 2.0 * (order < 8)
    return (
        *(model, masked_patch.loss(), masked_patch.metrics()),
        ({"images": pixels, "sources": sources}, order, weights),
    )


CASES = {
    "dino": dino,
    "dinov2": lambda: dino(**distilled.V2),
    "mae": autoencoder,
    "masked_patch": patches,
}


def train(devices, make):
    with devices.scope():
        model, loss, metrics, arrays = make()
        optimizer = keras.optimizers.SGD(1e-3)
        # Tracing the steps of replicas takes a minute.
        model.compile(
            optimizer, loss, weighted_metrics=metrics or None, run_eagerly=True
        )
    distribution.synchronize(model)
    first, count = devices.process_index, devices.num_processes
    arrays = keras.tree.map_structure(lambda x: x[first::count], arrays)
    with devices.training_scope():
        history = model.fit(
            *arrays[:2],
            sample_weight=arrays[2] if arrays[2:] else None,
            batch_size=SIZE // count,
            shuffle=False,
            verbose=0,
        )
    logs = {k: v[-1] for k, v in history.history.items()}
    weights = [keras.ops.convert_to_numpy(v) for v in model.variables]
    return dict(
        loss=[logs[k] for k in sorted(logs)],
        weights=[w.tolist() for w in weights],
    )


def main(path, names):
    start_recipe.pretend_devices(2)
    one = distribution.Devices(kind="cpu", num_devices=1, num_replicas=1)
    several = distribution.setup("cpu")
    assert several.num_devices == 2
    found = {}
    for name in names:
        make = CASES[name]
        found[name] = dict(several=train(several, make), one=train(one, make))
    path.write_text(json.dumps(found))
