"""A small student and teacher, and a batch of crops, for tests."""

import keras
import numpy as np

import keras_vit
from keras_vit import training

B, LOCAL, PROTOTYPES = 8, 2, 12
TINY = dict(
    patch_size=2,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    mlp_dim=16,
    input_shape=(8, 8, 3),
    include_top=False,
)
SETTINGS = dict(
    total_steps=10,
    num_prototypes=PROTOTYPES,
    hidden_size=16,
    bottleneck_size=8,
    temperature_steps=4,
    momentum=0.5,
)
V2 = dict(centring="sinkhorn", patch_weight=1.0, koleo_weight=0.1)


def make(**changes):
    keras.utils.set_random_seed(0)
    arguments = {k: changes.pop(k) for k in list(changes) if k in TINY}
    vit = keras_vit.ViT(**TINY | arguments)
    settings = training.DINO(**SETTINGS | changes)
    return training.SelfDistillation(vit, settings, local_size=(4, 4))


def batch(size=B):
    rng = np.random.default_rng(0)

    def pixels(*shape):
        return rng.integers(0, 256, (size, *shape, 3)).astype("float32")

    count = 1 + np.arange(size) % 4  # of 16 patches
    order = rng.permuted(np.tile(np.arange(16), (size, 1)), axis=1)
    masked = np.zeros((size, 16), bool)
    for i, n in enumerate(count):
        masked[i, order[i, :n]] = True
    place = np.arange(4)[None] < count[:, None]
    return {
        "global_crops": pixels(2, 8, 8),
        "local_crops": pixels(LOCAL, 4, 4),
        "sources": np.where(masked, 16, np.arange(16)).astype("int32"),
        "places": np.where(place, order[:, :4], 0).astype("int32"),
        "shares": np.where(place, 1 / count[:, None], 0).astype("float32"),
    }
