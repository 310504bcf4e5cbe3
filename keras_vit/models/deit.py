"""Distilled DeiT.

Touvron et al. 2021, "Training data-efficient image transformers & distillation
through attention" (2012.12877). Checked against timm/models/deit.py and deit of
transformers. A ViT with a second token, which learns from a teacher and has a
classifier of its own. DeiT without distillation is a ViT (`models/vit.py`).
"""

from typing import Literal, Unpack

import keras

from keras_vit import layers
from keras_vit.layers.mlp_block import Activation
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel

__all__ = ["DeiT", "DeiTTi16", "DeiTS16", "DeiTB16"]


@architecture
class DeiTConfig(encoder.EncoderConfig):
    """The architecture of a distilled DeiT.

    Args:
        pooling: What the head reads: "distilled", the class token and the
            distillation token, each by a classifier, whose logits are averaged;
            "token", the class token alone (transformers'
            DeiTForImageClassification). "distilled".
        activation: Of the MLPs: "gelu", "gelu_tanh" or "quick_gelu"; "gelu".
    """

    pooling: Literal["distilled", "token"] = "distilled"
    activation: Activation = "gelu"


class DeiTArguments(encoder.EncoderArguments, total=False):
    """The fields of `DeiTConfig`, as arguments."""

    pooling: Literal["distilled", "token"] | None
    activation: Activation | None


def forward(config: DeiTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the class and the distillation token, `[B, 2, D]`.

    With pooling="token" the class token, `[B, D]`.
    """
    x, grid_size = encoder.embed(config, x)  # [B, N, D]
    x = layers.ClassToken(0.02, name="distillation_token")(x)
    x = layers.ClassToken(1e-6, name="class_token")(x)  # [B, N + 2, D]
    x = layers.AddPositionEmbs(grid_size, class_token=2, name="posembed_input")(
        x
    )
    x = encoder.encode(config, x)
    x = encoder.norm(config, "encoder_norm")(x)
    return x[:, :2] if config.pooling == "distilled" else x[:, 0]


# Table 1.
VARIANTS = {
    "DeiTTi16": dict(patch_size=16, **encoder.TINY),
    "DeiTS16": dict(patch_size=16, **encoder.SMALL),
    "DeiTB16": dict(patch_size=16, **encoder.BASE),
}

FAMILY = encoder.family("deit", "DeiT", DeiTConfig, forward, variants=VARIANTS)


def DeiT(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """Build a distilled DeiT of any size."""
    return construct(FAMILY, "DeiT", kwargs)


def DeiTTi16(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """Build the distilled DeiT-Ti."""
    return construct(FAMILY, "DeiTTi16", kwargs)


def DeiTS16(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """Build the distilled DeiT-S."""
    return construct(FAMILY, "DeiTS16", kwargs)


def DeiTB16(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """Build the distilled DeiT-B."""
    return construct(FAMILY, "DeiTB16", kwargs)
