"""The image towers of SigLIP and SigLIP 2.

Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training" (2303.15343);
Tschannen et al. 2025, "SigLIP 2" (2502.14786). Checked against
timm/models/vision_transformer.py and siglip of transformers. A ViT without a
class token, whose tokens are read by attention from a learned probe.
"""

from typing import Literal, Unpack

import keras

from keras_vit import layers
from keras_vit.layers.mlp_block import Activation
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
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


@architecture
class SigLIPConfig(encoder.EncoderConfig):
    """The architecture of the image tower of a SigLIP.

    Args:
        pooling: What the head reads: "map", attention from a learned probe;
            "gap", the mean of the patches. "map".
        activation: Of the MLPs: "gelu_tanh" (the authors, transformers) or
            "gelu" (most names of timm); "gelu_tanh".
    """

    pooling: Literal["map", "gap"] = "map"
    activation: Activation = "gelu_tanh"


class SigLIPArguments(encoder.EncoderArguments, total=False):
    """The fields of `SigLIPConfig`, as arguments."""

    pooling: Literal["map", "gap"] | None
    activation: Activation | None


def forward(config: SigLIPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(config, x)  # [B, N, D]
    x = layers.AddPositionEmbs(
        grid_size, class_token=False, name="posembed_input"
    )(x)
    x = encoder.encode(config, x)
    return encoder.read_out(config, x, 0)


# The shape-optimised ViT of Alabdulmohsin et al. 2023 (2305.13035).
_SO400M = dict(hidden_size=1152, num_layers=27, num_heads=16, mlp_dim=4304)

VARIANTS = {
    "SigLIPB32": dict(patch_size=32, **encoder.BASE),
    "SigLIPB16": dict(patch_size=16, **encoder.BASE),
    "SigLIPL16": dict(patch_size=16, **encoder.LARGE),
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

FAMILY = encoder.family(
    "siglip", "SigLIP", SigLIPConfig, forward, variants=VARIANTS
)


def SigLIP(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of a SigLIP of any size."""
    return construct(FAMILY, "SigLIP", kwargs)


def SigLIPB32(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of SigLIP 2, ViT-B/32."""
    return construct(FAMILY, "SigLIPB32", kwargs)


def SigLIPB16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of SigLIP, ViT-B/16."""
    return construct(FAMILY, "SigLIPB16", kwargs)


def SigLIPL16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of SigLIP, ViT-L/16."""
    return construct(FAMILY, "SigLIPL16", kwargs)


def SigLIPSo400m14(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of SigLIP, So400m/14."""
    return construct(FAMILY, "SigLIPSo400m14", kwargs)


def SigLIPSo400m16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of SigLIP, So400m/16."""
    return construct(FAMILY, "SigLIPSo400m16", kwargs)


def SigLIPGiantOpt16(**kwargs: Unpack[SigLIPArguments]) -> ImageModel:
    """Build the image tower of SigLIP 2, giant-opt/16."""
    return construct(FAMILY, "SigLIPGiantOpt16", kwargs)
