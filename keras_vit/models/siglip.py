"""The image towers of SigLIP and SigLIP 2.

Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training" (2303.15343);
Tschannen et al. 2025, "SigLIP 2" (2502.14786). Checked against
timm/models/vision_transformer.py and siglip of transformers. A ViT without a
class token, whose tokens are read by attention from a learned probe.
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

__all__ = [
    "SigLIP",
    "SigLIPB32",
    "SigLIPB16",
    "SigLIPL16",
    "SigLIPSo400m14",
    "SigLIPSo400m16",
    "SigLIPGiantOpt16",
]


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class SigLIPConfig:
    """The architecture of the image tower of a SigLIP.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads, also of the pooling; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer, also of the pooling.
        pooling: What the head reads: "map", attention from a learned probe;
            "gap", the mean of the patches. "map".
        activation: Of the MLPs: "gelu_tanh" (the authors, transformers) or
            "gelu" (most names of timm); "gelu_tanh".
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-6.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    pooling: Literal["map", "gap"] = inherited("map")
    activation: Activation = inherited("gelu_tanh")
    drop_path_rate: Rate = 0.0
    layer_norm_epsilon: Epsilon = inherited(1e-6)

    def __post_init__(self):  # noqa: D105
        arguments.check_heads(self)


class SigLIPArguments(ModelArguments, total=False):
    """The fields of `SigLIPConfig`, as arguments."""

    patch_size: Pair | None
    hidden_size: Count | None
    num_layers: Count | None
    num_heads: Count | None
    mlp_dim: Count | None
    pooling: Literal["map", "gap"] | None
    activation: Activation | None
    drop_path_rate: Rate | None
    layer_norm_epsilon: Epsilon | None


def forward(config: SigLIPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`.

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
    x = layers.AddPositionEmbs(
        embedding.grid_size, class_token=False, name="posembed_input"
    )(x)
    x = encoder.encode(config, x)
    return encoder.read_out(config, x, 0)


_BASE = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)

# The shape-optimised ViT of Alabdulmohsin et al. 2023 (2305.13035).
_SO400M = dict(hidden_size=1152, num_layers=27, num_heads=16, mlp_dim=4304)

VARIANTS = {
    "SigLIPB32": dict(patch_size=32, **_BASE),
    "SigLIPB16": dict(patch_size=16, **_BASE),
    "SigLIPL16": dict(
        patch_size=16,
        hidden_size=1024,
        num_layers=24,
        num_heads=16,
        mlp_dim=4096,
    ),
    "SigLIPSo400m14": dict(patch_size=14, **_SO400M),
    "SigLIPSo400m16": dict(patch_size=16, **_SO400M),
    "SigLIPGiantOpt16": dict(
        patch_size=16,
        hidden_size=1536,
        num_layers=40,
        num_heads=16,
        mlp_dim=6144,
    ),
}

FAMILY = register(
    Family(
        "siglip",
        "SigLIP",
        SigLIPConfig,
        forward,
        encoder.EncoderBlock,
        VARIANTS,
        encoder.LAYERS,
        small=encoder.SMALL,
    )
)


def SigLIP(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of a SigLIP of any size."""
    return construct(FAMILY, "SigLIP", kwargs)


def SigLIPB32(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of SigLIP 2, ViT-B/32."""
    return construct(FAMILY, "SigLIPB32", kwargs)


def SigLIPB16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of SigLIP, ViT-B/16."""
    return construct(FAMILY, "SigLIPB16", kwargs)


def SigLIPL16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of SigLIP, ViT-L/16."""
    return construct(FAMILY, "SigLIPL16", kwargs)


def SigLIPSo400m14(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of SigLIP, So400m/14."""
    return construct(FAMILY, "SigLIPSo400m14", kwargs)


def SigLIPSo400m16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of SigLIP, So400m/16."""
    return construct(FAMILY, "SigLIPSo400m16", kwargs)


def SigLIPGiantOpt16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """The image tower of SigLIP 2, giant-opt/16."""
    return construct(FAMILY, "SigLIPGiantOpt16", kwargs)
