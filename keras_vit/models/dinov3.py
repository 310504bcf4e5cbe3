"""DINOv3, and other ViTs with rotary positions and LayerScale.

Heo et al. 2024, "Rotary Position Embedding for Vision Transformer"
(2403.13298); Simeoni et al. 2025, "DINOv3" (2508.10104). Checked against
timm/models/eva.py, which has them all, and dinov3_vit of transformers.
"""

import dataclasses
from typing import Literal

import keras

from keras_vit import layers
from keras_vit._arguments import (
    Count,
    Epsilon,
    Natural,
    Pair,
    Positive,
    Rate,
    checked,
)
from keras_vit.layers import arguments
from keras_vit.layers.encoder_attention import Bias, Norm
from keras_vit.layers.encoder_mlp import Activation
from keras_vit.layers.rotary import Kind, Order
from keras_vit.models import encoder
from keras_vit.models.constructors import constructor
from keras_vit.models.families import Family, inherited, register


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DINOv3Config:
    """The architecture of DINOv3 or another ViT with rotary positions.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        classifier: What the head reads: "token", the class token; "gap", the
            mean of the patches; "gap_norm", the same before the last
            LayerNorm. "token".
        class_token: Whether there is a class token; True.
        num_registers: Number of register tokens; 4.
        rotary: Rotary positions: "centered" (DINOv3), "index" or "mixed"
            (learned frequencies); "centered".
        rotary_theta: Base of their frequencies; 100.
        rotary_reference: Grid onto which indices are stretched, such as (16,
            16); None.
        rotary_offset: Added to indices; 0.
        rotary_order: "ij" for rows first, or "xy"; "ij".
        positions: Whether there are learned positions as well; False.
        position_prefix: Number of tokens before the patches that have a
            learned position; 0.
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "gelu".
        layer_scale: First value of LayerScale; 0 without it; 1e-5.
        qkv_bias: Biases of the projections: "qkv", "qv" or "none"; "qv".
        norm: Kind of the norms, "layer" or "rms" (Sapiens 2); "layer".
        query_key_norm: Whether a norm follows each query and each key; False.
        mlp_scale: Whether LayerScale is that of the MLPs as well; True.
        num_kv_heads: Heads of keys and values, each shared by a group of
            heads; 0 for `num_heads`; 0.
        num_full_blocks: Number of blocks at the beginning, and at the end,
            whose heads share none; 0.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-5.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    classifier: Literal["token", "gap", "gap_norm"] = inherited("token")
    class_token: bool = inherited(True)
    num_registers: Natural = inherited(4)
    rotary: Kind = inherited("centered")
    rotary_theta: Positive = inherited(100.0)
    rotary_reference: tuple[Count, Count] | None = inherited(None)
    rotary_offset: float = inherited(0.0)
    rotary_order: Order = inherited("ij")
    positions: bool = inherited(False)
    position_prefix: Natural = inherited(0)
    activation: Activation = inherited("gelu")
    layer_scale: Rate = inherited(1e-5)
    qkv_bias: Bias = inherited("qv")
    norm: Norm = inherited("layer")
    query_key_norm: bool = inherited(False)
    mlp_scale: bool = inherited(True)
    num_kv_heads: Natural = inherited(0)
    num_full_blocks: Natural = inherited(0)
    drop_path_rate: Rate = 0.0
    layer_norm_epsilon: Epsilon = inherited(1e-5)

    def __post_init__(self):  # noqa: D105
        arguments.check_heads(self)
        encoder.check_prefix(self)
        arguments.check_groups(self.num_kv_heads, self.num_heads, self.qkv_bias)


def forward(config: DINOv3Config, x: keras.KerasTensor) -> keras.KerasTensor:
    """Returns the representation, `[B, D]`.

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
    x = encoder.add_prefix(config, x, embedding.grid_size, stddev=0.02)
    x = encoder.encode(
        config,
        x,
        rescaled=True,
        grid_size=embedding.grid_size,
        rotary=encoder.rotary(config),
    )
    return encoder.read_out(
        config, x, config.class_token + config.num_registers
    )


_SMALL = dict(hidden_size=384, num_layers=12, num_heads=6, mlp_dim=1536)
_BASE = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)
_LARGE = dict(hidden_size=1024, num_layers=24, num_heads=16, mlp_dim=4096)

VARIANTS = {
    # Distilled from the model of 7B parameters.
    "DINOv3S16": dict(patch_size=16, **_SMALL),
    "DINOv3S16Plus": dict(patch_size=16, activation="swiglu", **_SMALL),
    "DINOv3B16": dict(patch_size=16, **_BASE),
    "DINOv3L16": dict(patch_size=16, **_LARGE),
    "DINOv3H16Plus": dict(
        patch_size=16,
        hidden_size=1280,
        num_layers=32,
        num_heads=20,
        mlp_dim=5120,
        activation="swiglu",
    ),
}

FAMILY = register(
    Family(
        "dinov3",
        "DINOv3",
        DINOv3Config,
        forward,
        layers.EncoderBlock,
        VARIANTS,
        encoder.LAYERS,
        small=encoder.SMALL,
    )
)

DINOv3 = constructor(
    FAMILY, "DINOv3", "A DINOv3, or ViT with rotary positions, of any size."
)
DINOv3S16 = constructor(FAMILY, "DINOv3S16", "ViT-S/16 of DINOv3.")
DINOv3S16Plus = constructor(FAMILY, "DINOv3S16Plus", "ViT-S+/16 of DINOv3.")
DINOv3B16 = constructor(FAMILY, "DINOv3B16", "ViT-B/16 of DINOv3.")
DINOv3L16 = constructor(FAMILY, "DINOv3L16", "ViT-L/16 of DINOv3.")
DINOv3H16Plus = constructor(FAMILY, "DINOv3H16Plus", "ViT-H+/16 of DINOv3.")
