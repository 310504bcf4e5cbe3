"""Labelled images as tf.data pipelines, for every backend."""

from keras_vit.data.batches import as_pairs, eval_batches, train_batches
from keras_vit.data.checks import explain_broken, warn_if_scaled
from keras_vit.data.decode import decode_image, find_broken, read_image
from keras_vit.data.sources import Source, load, sample

__all__ = [
    "Source",
    "as_pairs",
    "decode_image",
    "eval_batches",
    "explain_broken",
    "find_broken",
    "load",
    "read_image",
    "sample",
    "train_batches",
    "warn_if_scaled",
]
