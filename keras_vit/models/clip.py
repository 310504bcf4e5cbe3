"""The image towers of CLIP.

Radford et al. 2021, "Learning Transferable Visual Models From Natural Language
Supervision" (2103.00020). Checked against timm/models/vision_transformer.py and
clip of transformers. A ViT with a LayerNorm before the blocks, whose patches
have no bias. The head is the projection to the space shared with texts.
"""

from typing import Literal, Unpack

import keras

from keras_vit import layers
from keras_vit._arguments import Epsilon
from keras_vit.layers.mlp_block import Activation
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
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


@architecture
class CLIPConfig(encoder.EncoderConfig):
    """The architecture of the image tower of a CLIP.

    Args:
        pooling: What the head reads: "token", the class token; "gap", the
            mean of the patches; "gap_norm", the same before the last
            LayerNorm; "token".
        activation: Of the MLPs: "quick_gelu" (OpenAI's models) or "gelu"
            (LAION's); "quick_gelu".
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-5.
    """

    pooling: Literal["token", "gap", "gap_norm"] = "token"
    activation: Activation = "quick_gelu"
    layer_norm_epsilon: Epsilon = 1e-5


class CLIPArguments(encoder.EncoderArguments, total=False):
    """The fields of `CLIPConfig`, as arguments."""

    pooling: Literal["token", "gap", "gap_norm"] | None
    activation: Activation | None


def forward(config: CLIPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(config, x, use_bias=False)  # [B, N, D]
    x = layers.ClassToken(1e-6, name="class_token")(x)
    x = layers.AddPositionEmbs(grid_size, name="posembed_input")(x)
    x = encoder.norm(config, "pre_norm")(x)
    x = encoder.encode(config, x)
    return encoder.read_out(config, x, 1)


# Table 20, and the larger ones of OpenCLIP (Cherti et al. 2023, 2212.07143).
# Their activation is that of the weights: LAION's were trained with GELU,
# MetaCLIP's of the same sizes with QuickGELU.
VARIANTS = {
    "CLIPB32": dict(patch_size=32, **encoder.BASE),
    "CLIPB16": dict(patch_size=16, **encoder.BASE),
    "CLIPL14": dict(patch_size=14, **encoder.LARGE),
    "CLIPH14": dict(patch_size=14, **encoder.HUGE),
    "CLIPG14": dict(patch_size=14, **encoder.GIANT),
    "CLIPBigG14": dict(patch_size=14, **encoder.GIGANTIC),
}

FAMILY = encoder.family("clip", "CLIP", CLIPConfig, forward, variants=VARIANTS)


def CLIP(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of a CLIP of any size."""
    return construct(FAMILY, "CLIP", kwargs)


def CLIPB32(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of CLIP, ViT-B/32."""
    return construct(FAMILY, "CLIPB32", kwargs)


def CLIPB16(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of CLIP, ViT-B/16."""
    return construct(FAMILY, "CLIPB16", kwargs)


def CLIPL14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of CLIP, ViT-L/14."""
    return construct(FAMILY, "CLIPL14", kwargs)


def CLIPH14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of OpenCLIP, ViT-H/14."""
    return construct(FAMILY, "CLIPH14", kwargs)


def CLIPG14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of OpenCLIP, ViT-g/14."""
    return construct(FAMILY, "CLIPG14", kwargs)


def CLIPBigG14(**kwargs: Unpack[CLIPArguments]) -> ImageModel:
    """Build the image tower of OpenCLIP, ViT-bigG/14."""
    return construct(FAMILY, "CLIPBigG14", kwargs)
