"""Distilled DeiT.

Touvron et al. 2021, "Training data-efficient image transformers & distillation
through attention" (2012.12877). Checked against timm/models/deit.py and deit of
transformers. A ViT with a second token, which learns from a teacher and has a
classifier of its own. DeiT without distillation is a ViT (`models/vit.py`).
"""

import dataclasses
from typing import Literal, Unpack

import keras

from keras_vit import layers
from keras_vit._arguments import Count, Epsilon, Pair, Rate, checked
from keras_vit.layers import arguments
from keras_vit.layers.mlp_block import Activation
from keras_vit.models import encoder
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import Family, inherited, register
from keras_vit.models.image_model import ImageModel

__all__ = ["DeiT", "DeiTTi16", "DeiTS16", "DeiTB16"]


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DeiTConfig:
    """The architecture of a distilled DeiT.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        pooling: What the head reads: "distilled", the class token and the
            distillation token, each by a classifier, whose logits are averaged;
            "token", the class token alone (transformers'
            DeiTForImageClassification). "distilled".
        activation: Of the MLPs: "gelu", "gelu_tanh" or "quick_gelu"; "gelu".
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-6.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    pooling: Literal["distilled", "token"] = inherited("distilled")
    activation: Activation = inherited("gelu")
    drop_path_rate: Rate = 0.0
    layer_norm_epsilon: Epsilon = inherited(1e-6)

    def __post_init__(self):  # noqa: D105
        arguments.check_heads(self)


class DeiTArguments(ModelArguments, total=False):
    """The fields of `DeiTConfig`, as arguments."""

    patch_size: Pair | None
    hidden_size: Count | None
    num_layers: Count | None
    num_heads: Count | None
    mlp_dim: Count | None
    pooling: Literal["distilled", "token"] | None
    activation: Activation | None
    drop_path_rate: Rate | None
    layer_norm_epsilon: Epsilon | None


def forward(config: DeiTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Returns the class and the distillation token, `[B, 2, D]`.

    With pooling="token" the class token, `[B, D]`.

    Args:
        config: The architecture.
        x: Scaled images, `[B, H, W, C]`.
    """
    embedding = layers.PatchEmbedding(
        config.patch_size,
        config.hidden_size,
        initializer="uniform",
        name="embedding",
    )
    x = embedding(x)  # [B, N, D]
    x = layers.ClassToken(0.02, name="distillation_token")(x)
    x = layers.ClassToken(1e-6, name="class_token")(x)  # [B, N + 2, D]
    x = layers.AddPositionEmbs(
        embedding.grid_size, class_token=2, name="posembed_input"
    )(x)
    x = encoder.encode(config, x)
    x = encoder.norm(config, "encoder_norm")(x)
    return x[:, :2] if config.pooling == "distilled" else x[:, 0]


# Table 1.
VARIANTS = {
    "DeiTTi16": dict(
        patch_size=16, hidden_size=192, num_layers=12, num_heads=3, mlp_dim=768
    ),
    "DeiTS16": dict(
        patch_size=16, hidden_size=384, num_layers=12, num_heads=6, mlp_dim=1536
    ),
    "DeiTB16": dict(
        patch_size=16,
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        mlp_dim=3072,
    ),
}

FAMILY = register(
    Family(
        "deit",
        "DeiT",
        DeiTConfig,
        forward,
        encoder.EncoderBlock,
        VARIANTS,
        encoder.LAYERS,
        small=encoder.SMALL,
    )
)


def DeiT(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """A distilled DeiT of any size."""
    return construct(FAMILY, "DeiT", kwargs)


def DeiTTi16(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """The distilled DeiT-Ti."""
    return construct(FAMILY, "DeiTTi16", kwargs)


def DeiTS16(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """The distilled DeiT-S."""
    return construct(FAMILY, "DeiTS16", kwargs)


def DeiTB16(**kwargs: Unpack[DeiTArguments]) -> ImageModel:
    """The distilled DeiT-B."""
    return construct(FAMILY, "DeiTB16", kwargs)
