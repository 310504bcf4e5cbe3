"""A small backbone of any family of ViTs, and images for it."""

import numpy as np

import keras_vit

TINY = dict(patch_size=8, hidden_size=16, num_layers=3, num_heads=2, mlp_dim=16)
IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 16, 24, 3))


def backbone(constructor, **changes):
    make = getattr(keras_vit, constructor)
    return make(**TINY | changes, include_top=False, input_shape=(16, 24, 3))
