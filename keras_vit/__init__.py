"""Vision Transformers in Keras 3, on TensorFlow, JAX and PyTorch."""

from keras_vit import (
    data,
    distribution,
    evaluation,
    export,
    inspection,
    layers,
    training,
    weights,
)
from keras_vit.export import export_savedmodel
from keras_vit.models import (
    R26ViTB32,
    R26ViTS32,
    R50ViTB16,
    R50ViTL32,
    RViTTi16,
    ViT,
    ViTB8,
    ViTB16,
    ViTB32,
    ViTH14,
    ViTL16,
    ViTL32,
    ViTS16,
    ViTS32,
    ViTTi16,
    list_models,
)
from keras_vit.weights import (
    decode_predictions,
    imagenet_classes,
    imagenet_synsets,
    list_weights,
    save_checkpoint,
)

__version__ = "0.1.0"

__all__ = [
    "R26ViTB32",
    "R26ViTS32",
    "R50ViTB16",
    "R50ViTL32",
    "RViTTi16",
    "ViT",
    "ViTB16",
    "ViTB32",
    "ViTB8",
    "ViTH14",
    "ViTL16",
    "ViTL32",
    "ViTS16",
    "ViTS32",
    "ViTTi16",
    "data",
    "decode_predictions",
    "distribution",
    "evaluation",
    "export",
    "export_savedmodel",
    "imagenet_classes",
    "imagenet_synsets",
    "inspection",
    "layers",
    "list_models",
    "list_weights",
    "save_checkpoint",
    "training",
    "weights",
]
