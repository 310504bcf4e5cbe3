"""The image towers of CLIP.

Radford et al. 2021, "Learning Transferable Visual Models From Natural Language
Supervision" (2103.00020). Checked against timm/models/vision_transformer.py and
clip of transformers. A ViT with a LayerNorm before the blocks, whose patches
have no bias. The head is the projection to the space shared with texts.
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
    "CLIP",
    "CLIPB32",
    "CLIPB16",
    "CLIPL14",
    "CLIPH14",
    "CLIPG14",
    "CLIPBigG14",
]


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CLIPConfig:
    """The architecture of the image tower of a CLIP.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        pooling: What the head reads: "token", the class token; "gap", the
            mean of the patches; "gap_norm", the same before the last
            LayerNorm; "token".
        activation: Of the MLPs: "quick_gelu" (OpenAI's models) or "gelu"
            (LAION's); "quick_gelu".
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-5.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    pooling: Literal["token", "gap", "gap_norm"] = inherited("token")
    activation: Activation = inherited("quick_gelu")
    drop_path_rate: Rate = 0.0
    layer_norm_epsilon: Epsilon = inherited(1e-5)

    def __post_init__(self):  # noqa: D105
        arguments.check_heads(self)


class CLIPArguments(ModelArguments, total=False):
    """The fields of `CLIPConfig`, as arguments."""

    patch_size: Pair | None
    hidden_size: Count | None
    num_layers: Count | None
    num_heads: Count | None
    mlp_dim: Count | None
    pooling: Literal["token", "gap", "gap_norm"] | None
    activation: Activation | None
    drop_path_rate: Rate | None
    layer_norm_epsilon: Epsilon | None


def forward(config: CLIPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`.

    Args:
        config: The architecture.
        x: Scaled images, `[B, H, W, C]`.
    """
    embedding = layers.PatchEmbedding(
        config.patch_size,
        config.hidden_size,
        use_bias=False,
        initializer="uniform",
        name="embedding",
    )
    x = embedding(x)  # [B, N, D]
    x = layers.ClassToken(1e-6, name="class_token")(x)
    x = layers.AddPositionEmbs(embedding.grid_size, name="posembed_input")(x)
    x = encoder.norm(config, "pre_norm")(x)
    x = encoder.encode(config, x)
    return encoder.read_out(config, x, 1)


_BASE = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)

# Table 20, and the larger ones of OpenCLIP (Cherti et al. 2023, 2212.07143).
# Their activation is that of the weights: LAION's were trained with GELU,
# MetaCLIP's of the same sizes with QuickGELU.
VARIANTS = {
    "CLIPB32": dict(patch_size=32, **_BASE),
    "CLIPB16": dict(patch_size=16, **_BASE),
    "CLIPL14": dict(
        patch_size=14,
        hidden_size=1024,
        num_layers=24,
        num_heads=16,
        mlp_dim=4096,
    ),
    "CLIPH14": dict(
        patch_size=14,
        hidden_size=1280,
        num_layers=32,
        num_heads=16,
        mlp_dim=5120,
    ),
    "CLIPG14": dict(
        patch_size=14,
        hidden_size=1408,
        num_layers=40,
        num_heads=16,
        mlp_dim=6144,
    ),
    "CLIPBigG14": dict(
        patch_size=14,
        hidden_size=1664,
        num_layers=48,
        num_heads=16,
        mlp_dim=8192,
    ),
}

FAMILY = register(
    Family(
        "clip",
        "CLIP",
        CLIPConfig,
        forward,
        encoder.EncoderBlock,
        VARIANTS,
        encoder.LAYERS,
        small=encoder.SMALL,
    )
)


def CLIP(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of a CLIP of any size."""
    return construct(FAMILY, "CLIP", kwargs)


def CLIPB32(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of CLIP, ViT-B/32."""
    return construct(FAMILY, "CLIPB32", kwargs)


def CLIPB16(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of CLIP, ViT-B/16."""
    return construct(FAMILY, "CLIPB16", kwargs)


def CLIPL14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of CLIP, ViT-L/14."""
    return construct(FAMILY, "CLIPL14", kwargs)


def CLIPH14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of OpenCLIP, ViT-H/14."""
    return construct(FAMILY, "CLIPH14", kwargs)


def CLIPG14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of OpenCLIP, ViT-g/14."""
    return construct(FAMILY, "CLIPG14", kwargs)


def CLIPBigG14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """The image tower of OpenCLIP, ViT-bigG/14."""
    return construct(FAMILY, "CLIPBigG14", kwargs)
