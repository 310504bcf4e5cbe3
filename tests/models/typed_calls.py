"""Calls that mypy accepts, and others that it refuses: `make types` reads it.

An ignored error that mypy does not find is an error itself.
"""

import keras_vit
from keras_vit.models.image_model import ImageModel


def accepted(classes: int | None) -> ImageModel:
    keras_vit.ViT(patch_size=(16, 8), hidden_size=64, num_layers=2, remat=True)
    keras_vit.MViTB16(dropout_rate=0.1, input_shape=(224, 224, 3))
    return keras_vit.ViTB16(
        weights="augreg", classes=classes, drop_path_rate=0.1
    )


def refused() -> None:
    keras_vit.ViTB16("augreg")  # type: ignore[call-arg]
    keras_vit.ViTB16(clases=3)  # type: ignore[call-arg]
    keras_vit.ViTB16(classes="3")  # type: ignore[arg-type]
    keras_vit.ViTB16(position_embedding="2d")  # type: ignore[arg-type]
    keras_vit.MixerB16(num_heads=3)  # type: ignore[call-arg]
