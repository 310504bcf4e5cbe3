"""Perception Encoder: a ViT with rotary positions, read by attention.

Bolya et al. 2025, "Perception Encoder" (2504.13181). Checked against
timm/models/eva.py. It has the parts of EVA-02 (`models/eva02.py`).
"""

from typing import Unpack

from keras_vit._arguments import Epsilon, Natural
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.models import encoder, eva02
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.rotary import Order

__all__ = [
    "PerceptionEncoder",
    "PECoreTi16",
    "PECoreS16",
    "PECoreB16",
    "PECoreL14",
]


@architecture
class PerceptionEncoderConfig(eva02.EVA02Config):
    """The architecture of a Perception Encoder: `EVA02Config`, other defaults.

    Args:
        pooling: See `EVA02Config`; "map".
        rotary_offset: Added to indices; 1.
        rotary_order: "ij" for rows first, or "xy"; "xy".
        pre_norm: Whether a LayerNorm precedes the blocks, and patches have no
            bias; True.
        activation: Of the MLPs; "gelu".
        qkv_bias: Biases of the projections; "qkv".
        pooling_heads: Heads of "map", 0 for `num_heads`; 8.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-5.
    """

    pooling: eva02.Pooling = "map"
    rotary_offset: float = 1.0
    rotary_order: Order = "xy"
    pre_norm: bool = True
    activation: Activation = "gelu"
    qkv_bias: Bias = "qkv"
    pooling_heads: Natural = 8
    layer_norm_epsilon: Epsilon = 1e-5


# The smaller models.
VARIANTS = {
    "PECoreTi16": dict(
        patch_size=16, **encoder.TINY, rotary_reference=(24, 24)
    ),
    "PECoreS16": dict(
        patch_size=16, **encoder.SMALL, rotary_reference=(24, 24)
    ),
    "PECoreB16": dict(patch_size=16, **encoder.BASE, rotary_reference=(14, 14)),
    "PECoreL14": dict(
        patch_size=14, **encoder.LARGE, rotary_reference=(24, 24)
    ),
}

FAMILY = encoder.family(
    "perception_encoder",
    "PerceptionEncoder",
    PerceptionEncoderConfig,
    eva02.forward,
    variants=VARIANTS,
    input_shapes={
        "PECoreTi16": (384, 384, 3),
        "PECoreS16": (384, 384, 3),
        "PECoreL14": (336, 336, 3),
    },
)


def PerceptionEncoder(**kwargs: Unpack[eva02.EVA02Arguments]) -> ImageModel:
    """Build a Perception Encoder of any size."""
    return construct(FAMILY, "PerceptionEncoder", kwargs)


def PECoreTi16(**kwargs: Unpack[eva02.EVA02Arguments]) -> ImageModel:
    """Perception Encoder core, T/16."""
    return construct(FAMILY, "PECoreTi16", kwargs)


def PECoreS16(**kwargs: Unpack[eva02.EVA02Arguments]) -> ImageModel:
    """Perception Encoder core, S/16."""
    return construct(FAMILY, "PECoreS16", kwargs)


def PECoreB16(**kwargs: Unpack[eva02.EVA02Arguments]) -> ImageModel:
    """Perception Encoder core, B/16."""
    return construct(FAMILY, "PECoreB16", kwargs)


def PECoreL14(**kwargs: Unpack[eva02.EVA02Arguments]) -> ImageModel:
    """Perception Encoder core, L/14."""
    return construct(FAMILY, "PECoreL14", kwargs)
