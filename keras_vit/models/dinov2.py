"""DINOv2, and other ViTs with LayerScale or registers.

Oquab et al. 2024, "DINOv2" (2304.07193); Darcet et al. 2024, "Vision
Transformers Need Registers" (2309.16588). Checked against
timm/models/vision_transformer.py, and dinov2 and dinov2_with_registers of
transformers.
"""

from typing import Literal, Unpack

import keras

from keras_vit._arguments import Natural, Rate
from keras_vit.layers.keras_layers import Norm
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel

__all__ = ["DINOv2", "DINOv2S14", "DINOv2B14", "DINOv2L14", "DINOv2G14"]

Pooling = Literal[
    "token", "gap", "gap_norm", "token_and_gap", "map", "token_unnormed"
]


@architecture
class DINOv2Config(encoder.EncoderConfig):
    """The architecture of DINOv2, or of a ViT with registers.

    Args:
        pooling: What the head reads: "token", the class token; "gap", the
            mean of the patches; "gap_norm", the same before the last LayerNorm;
            "token_and_gap", both joined (transformers' classifiers of DINOv2);
            "map", attention from a learned probe; "token_unnormed", the class
            token without a last LayerNorm. "token".
        class_token: Whether there is a class token; True.
        num_registers: Number of register tokens; 0.
        position_prefix: Number of tokens before the patches that have a
            position: 0, the class token alone, or with the registers; 1.
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "gelu".
        layer_scale: First value of LayerScale; 0 without it; 1e-5.
        qkv_bias: Biases of the projections, "qkv" or "none"; "qkv".
        post_norm: Whether the norms of a block follow its branches (timm's
            rpn); False.
        parallel: Whether attention and MLP of a block read the same norm
            (ViT-22B); False.
        pre_norm: Whether a norm precedes the blocks, and patches have no bias;
            False.
        norm: Kind of the norms, "layer" or "rms"; "layer".
        query_key_norm: Whether a norm follows each query and each key; False.
    """

    pooling: Pooling = "token"
    class_token: bool = True
    num_registers: Natural = 0
    position_prefix: Natural = 1
    activation: Activation = "gelu"
    layer_scale: Rate = 1e-5
    qkv_bias: Bias = "qkv"
    post_norm: bool = False
    parallel: bool = False
    pre_norm: bool = False
    norm: Norm = "layer"
    query_key_norm: bool = False

    def __post_init__(self):  # noqa: D105
        super().__post_init__()
        encoder.check_prefix(self)
        if self.post_norm and self.parallel:
            raise ValueError(
                "`parallel` must be False with post_norm=True. Received: "
                "parallel=True"
            )
        if self.pooling == "map" and self.norm != "layer":
            raise ValueError(
                "`norm` must be 'layer' with pooling='map', which has "
                f"LayerNorm. Received: norm={self.norm!r}"
            )


class DINOv2Arguments(encoder.EncoderArguments, total=False):
    """The fields of `DINOv2Config`, as arguments."""

    pooling: Pooling | None
    class_token: bool | None
    num_registers: Natural | None
    position_prefix: Natural | None
    activation: Activation | None
    layer_scale: Rate | None
    qkv_bias: Bias | None
    post_norm: bool | None
    parallel: bool | None
    pre_norm: bool | None
    norm: Norm | None
    query_key_norm: bool | None


def forward(config: DINOv2Config, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(
        config, x, use_bias=not config.pre_norm
    )  # [B, N, D]
    x = encoder.add_prefix(config, x, grid_size, stddev=1e-6)
    if config.pre_norm:
        x = encoder.norm(config, "pre_norm")(x)
    x = encoder.encode(config, x)
    return encoder.read_out(
        config, x, config.class_token + config.num_registers
    )


_GIANT = dict(
    hidden_size=1536,
    num_layers=40,
    num_heads=24,
    mlp_dim=4096,
    activation="swiglu",
)

# Table 17.
VARIANTS: dict[str, dict] = {
    "DINOv2S14": dict(patch_size=14, **encoder.SMALL),
    "DINOv2B14": dict(patch_size=14, **encoder.BASE),
    "DINOv2L14": dict(patch_size=14, **encoder.LARGE),
    "DINOv2G14": dict(patch_size=14, **_GIANT),
}

FAMILY = encoder.family(
    "dinov2",
    "DINOv2",
    DINOv2Config,
    forward,
    variants=VARIANTS,
    input_shapes=dict.fromkeys(VARIANTS, (518, 518, 3)),
)


def DINOv2(**kwargs: Unpack[DINOv2Arguments]) -> ImageModel:
    """Build a DINOv2, or ViT with registers, of any size."""
    return construct(FAMILY, "DINOv2", kwargs)


def DINOv2S14(**kwargs: Unpack[DINOv2Arguments]) -> ImageModel:
    """ViT-S/14 of DINOv2."""
    return construct(FAMILY, "DINOv2S14", kwargs)


def DINOv2B14(**kwargs: Unpack[DINOv2Arguments]) -> ImageModel:
    """ViT-B/14 of DINOv2."""
    return construct(FAMILY, "DINOv2B14", kwargs)


def DINOv2L14(**kwargs: Unpack[DINOv2Arguments]) -> ImageModel:
    """ViT-L/14 of DINOv2."""
    return construct(FAMILY, "DINOv2L14", kwargs)


def DINOv2G14(**kwargs: Unpack[DINOv2Arguments]) -> ImageModel:
    """ViT-g/14 of DINOv2."""
    return construct(FAMILY, "DINOv2G14", kwargs)
