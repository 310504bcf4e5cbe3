"""EVA, EVA-02 and BEiT-3.

Wang et al. 2022, "Image as a Foreign Language" (2208.10442), BEiT-3; Fang et
al. 2022, "EVA" (2211.07636); Fang et al. 2023, "EVA-02" (2303.11331). Checked
against timm/models/eva.py, and timm/models/vision_transformer.py for BEiT-3.
ViTs with learned positions, whose blocks differ in rotary positions, gates and
norms within the branches.
"""

from typing import Literal, Unpack

import keras

from keras_vit import layers
from keras_vit._arguments import (
    Count,
    Epsilon,
    Natural,
    Positive,
    Rate,
    checked,
)
from keras_vit.layers.keras_layers import LayerNorm
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.rotary import Order

__all__ = ["EVA02", "EVA02Ti14", "EVA02S14", "EVA02B14", "EVA02L14"]

Pooling = Literal["token", "gap", "gap_norm", "map", "gap_unnormed"]


@keras.saving.register_keras_serializable(package="keras_vit")
class EVA02Attention(layers.MultiHeadSelfAttention):
    """Self-attention with a LayerNorm over the joined heads (sub-LN).

    Args:
        num_heads: Number of heads A; divides the token width D.
        head_norm: Whether there is this LayerNorm.
        **kwargs: Further arguments of `MultiHeadSelfAttention`; its
            `norm_epsilon` is that of this LayerNorm too.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        `EvaAttention` in timm/models/eva.py.
    """

    @checked
    def __init__(self, num_heads: Count, head_norm: bool = False, **kwargs):
        super().__init__(num_heads, **kwargs)
        self.head_norm = head_norm

    def _build_norms(self, shape):
        super()._build_norms(shape)
        self.norm = None
        if self.head_norm:
            self.norm = self.make(
                LayerNorm, epsilon=self.norm_epsilon, name="norm", shape=shape
            )

    def _attend(self, inputs, training, bias=None):
        x = super()._attend(inputs, training, bias)
        return x if self.norm is None else self.norm(x)


@keras.saving.register_keras_serializable(package="keras_vit")
class EVA02Mlp(layers.MlpBlock):
    """The MLP of a block with a LayerNorm over the hidden units (sub-LN).

    Args:
        mlp_dim: Width of the hidden layer.
        norm_epsilon: Epsilon of the LayerNorm; None without one.
        **kwargs: Further arguments of `MlpBlock`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        `SwiGLU` in timm/layers/mlp.py.
    """

    @checked
    def __init__(
        self, mlp_dim: Count, norm_epsilon: Epsilon | None = None, **kwargs
    ):
        super().__init__(mlp_dim, **kwargs)
        self.norm_epsilon = norm_epsilon

    def _build_norm(self, shape):
        self.norm = None
        if self.norm_epsilon is not None:
            self.norm = self.make(
                LayerNorm, epsilon=self.norm_epsilon, name="norm", shape=shape
            )

    def _hidden(self, inputs):
        x = super()._hidden(inputs)
        return x if self.norm is None else self.norm(x)


@architecture
class EVA02Config(encoder.EncoderConfig):
    """The architecture of EVA, EVA-02 or BEiT-3, or of a Perception Encoder.

    Args:
        pooling: What the head reads: "token", the class token; "gap", the
            mean of the patches; "gap_norm", the same before the last
            LayerNorm; "map", attention from a learned probe to all tokens;
            "gap_unnormed", the mean without a last LayerNorm. "gap_norm".
        class_token: Whether there is a class token; True.
        rotary: Rotary positions: "index" (EVA-02) or
            "none" (EVA, BEiT-3); "index".
        rotary_theta: Base of their frequencies; 10000.
        rotary_reference: Grid onto which indices are stretched, such as (16,
            16) of EVA-02; None.
        rotary_offset: Added to indices; 0.
        rotary_order: "ij" for rows first, or "xy"; "ij".
        pre_norm: Whether a LayerNorm precedes the blocks, and patches have no
            bias (Perception Encoder); False.
        post_norm: Whether the norms of a block follow its branches
            (EVA-02-CLIP-E); False.
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "swiglu".
        layer_scale: First value of LayerScale; 0 without it; 0.
        qkv_bias: Biases of the projections: "qkv", "qv" or "none"; "qv".
        attention_norm: Whether a LayerNorm follows the joined heads; False.
        mlp_norm: Whether a LayerNorm follows the hidden units; False.
        pooling_heads: Heads of "map", 0 for `num_heads`; 0.
        pooling_mlp_dim: Width of the MLP's hidden layer in "map", 0 for
            `mlp_dim`; 0.
    """

    pooling: Pooling = "gap_norm"
    class_token: bool = True
    rotary: Literal["index", "none"] = "index"
    rotary_theta: Positive = 10_000.0
    rotary_reference: tuple[Count, Count] | None = None
    rotary_offset: float = 0.0
    rotary_order: Order = "ij"
    pre_norm: bool = False
    post_norm: bool = False
    activation: Activation = "swiglu"
    layer_scale: Rate = 0.0
    qkv_bias: Bias = "qv"
    attention_norm: bool = False
    mlp_norm: bool = False
    pooling_heads: Natural = 0
    pooling_mlp_dim: Natural = 0

    def __post_init__(self):  # noqa: D105
        super().__post_init__()
        encoder.check_prefix(self)


class EVA02Arguments(encoder.EncoderArguments, total=False):
    """The fields of `EVA02Config`, as arguments."""

    pooling: Pooling | None
    class_token: bool | None
    rotary: Literal["index", "none"] | None
    rotary_theta: Positive | None
    rotary_reference: tuple[Count, Count] | None
    rotary_offset: float | None
    rotary_order: Order | None
    pre_norm: bool | None
    post_norm: bool | None
    activation: Activation | None
    layer_scale: Rate | None
    qkv_bias: Bias | None
    attention_norm: bool | None
    mlp_norm: bool | None
    pooling_heads: Natural | None
    pooling_mlp_dim: Natural | None


def forward(config: EVA02Config, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(
        config, x, use_bias=not config.pre_norm
    )  # [B, N, D]
    if config.class_token:
        x = layers.ClassToken(0.02, name="class_token")(x)
    x = layers.AddPositionEmbs(
        grid_size, class_token=config.class_token, name="posembed_input"
    )(x)
    if config.pre_norm:
        x = encoder.norm(config, "pre_norm")(x)
    x = encoder.encode(
        config,
        x,
        rescaled=True,
        attention=dict(
            layer="EVA02Attention",
            rotary=encoder.rotary(config, grid_size),
            head_norm=config.attention_norm,
        ),
        mlp=dict(
            layer="EVA02Mlp",
            norm_epsilon=config.layer_norm_epsilon if config.mlp_norm else None,
        ),
    )
    # The probe also reads the class token.
    first = 0 if config.pooling == "map" else int(config.class_token)
    return encoder.read_out(config, x, first)


_EVA02 = dict(patch_size=14, rotary_reference=(16, 16))

# Table 2 of EVA-02.
VARIANTS = {
    "EVA02Ti14": dict(
        _EVA02, hidden_size=192, num_layers=12, num_heads=3, mlp_dim=512
    ),
    "EVA02S14": dict(
        _EVA02, hidden_size=384, num_layers=12, num_heads=6, mlp_dim=1024
    ),
    "EVA02B14": dict(
        _EVA02,
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        mlp_dim=2048,
        mlp_norm=True,
    ),
    "EVA02L14": dict(
        _EVA02,
        hidden_size=1024,
        num_layers=24,
        num_heads=16,
        mlp_dim=2730,
        mlp_norm=True,
    ),
}

FAMILY = encoder.family(
    "eva02", "EVA02", EVA02Config, forward, variants=VARIANTS
)


def EVA02(**kwargs: Unpack[EVA02Arguments]) -> ImageModel:
    """Build an EVA, EVA-02 or BEiT-3 of any size."""
    return construct(FAMILY, "EVA02", kwargs)


def EVA02Ti14(**kwargs: Unpack[EVA02Arguments]) -> ImageModel:
    """EVA-02-Ti/14."""
    return construct(FAMILY, "EVA02Ti14", kwargs)


def EVA02S14(**kwargs: Unpack[EVA02Arguments]) -> ImageModel:
    """EVA-02-S/14."""
    return construct(FAMILY, "EVA02S14", kwargs)


def EVA02B14(**kwargs: Unpack[EVA02Arguments]) -> ImageModel:
    """EVA-02-B/14."""
    return construct(FAMILY, "EVA02B14", kwargs)


def EVA02L14(**kwargs: Unpack[EVA02Arguments]) -> ImageModel:
    """EVA-02-L/14."""
    return construct(FAMILY, "EVA02L14", kwargs)
