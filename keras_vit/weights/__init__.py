"""Checkpoints: names and bytes, in NumPy. Independent of the models."""

from keras_vit import _installation  # refuses another project's files
from keras_vit.weights.augreg import best
from keras_vit.weights.checkpoint import Checkpoint, open_checkpoint
from keras_vit.weights.class_names import (
    decode_predictions,
    imagenet_classes,
    imagenet_synsets,
)
from keras_vit.weights.registry import list_weights
from keras_vit.weights.save import save_checkpoint

__all__ = [
    "Checkpoint",
    "best",
    "decode_predictions",
    "imagenet_classes",
    "imagenet_synsets",
    "list_weights",
    "open_checkpoint",
    "save_checkpoint",
]
