"""BEiT, BEiT v2 and other ViTs with relative positions.

Bao et al. 2022, "BEiT: BERT Pre-Training of Image Transformers" (2106.08254);
Peng et al. 2022, "BEiT v2" (2208.06366). Checked against timm/models/beit.py,
vision_transformer_relpos.py there, and beit of transformers. A ViT with
LayerScale, in whose blocks the distance between two patches biases their
attention.
"""

from typing import Literal, Unpack

import keras

from keras_vit import layers
from keras_vit._arguments import Natural, Rate
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel

__all__ = ["BEiT", "BEiTB16", "BEiTL16"]


@architecture
class BEiTConfig(encoder.EncoderConfig):
    """The architecture of a BEiT.

    Args:
        pooling: What the head reads: "gap_norm", the mean of the patches,
            before the last LayerNorm; "gap", the mean after it; "token", the
            class token. "gap_norm".
        class_token: Whether there is a class token; True. BEiT needs it.
        relative_dim: Hidden units of the MLPs that compute the bias by
            distance (vit_relpos of timm); 0 for learned tables (BEiT); 0.
        post_norm: Whether the norms of a block follow its branches; False.
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "gelu".
        layer_scale: First value of LayerScale; 0 without it; 0.1.
        qkv_bias: Biases of the projections: "qkv", "qv" or "none"; "qv".
    """

    pooling: Literal["token", "gap", "gap_norm"] = "gap_norm"
    class_token: bool = True
    relative_dim: Natural = 0
    post_norm: bool = False
    activation: Activation = "gelu"
    layer_scale: Rate = 0.1
    qkv_bias: Bias = "qv"

    def __post_init__(self):  # noqa: D105
        super().__post_init__()
        encoder.check_prefix(self)
        if not (self.class_token or self.relative_dim):
            raise ValueError(
                "`class_token` must be True with relative_dim=0, since learned "
                "tables have rows of the class token. Received: "
                "class_token=False"
            )


class BEiTArguments(encoder.EncoderArguments, total=False):
    """The fields of `BEiTConfig`, as arguments."""

    pooling: Literal["token", "gap", "gap_norm"] | None
    class_token: bool | None
    relative_dim: Natural | None
    post_norm: bool | None
    activation: Activation | None
    layer_scale: Rate | None
    qkv_bias: Bias | None


def forward(config: BEiTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(config, x)  # [B, N, D]
    learned = not config.relative_dim  # BEiT's own
    if config.class_token:
        stddev = 0.02 if learned else 1e-6
        x = layers.ClassToken(stddev, name="class_token")(x)
    x = encoder.encode(
        config,
        x,
        rescaled=learned,
        attention=dict(
            layer="BEiTAttention",
            grid_size=grid_size,
            relative_dim=config.relative_dim,
        ),
    )
    return encoder.read_out(config, x, int(config.class_token))


VARIANTS = {
    "BEiTB16": dict(patch_size=16, **encoder.BASE),
    "BEiTL16": dict(patch_size=16, **encoder.LARGE),
}

FAMILY = encoder.family("beit", "BEiT", BEiTConfig, forward, variants=VARIANTS)


def BEiT(**kwargs: Unpack[BEiTArguments]) -> ImageModel:
    """Build a BEiT of any size."""
    return construct(FAMILY, "BEiT", kwargs)


def BEiTB16(**kwargs: Unpack[BEiTArguments]) -> ImageModel:
    """BEiT-B/16."""
    return construct(FAMILY, "BEiTB16", kwargs)


def BEiTL16(**kwargs: Unpack[BEiTArguments]) -> ImageModel:
    """BEiT-L/16."""
    return construct(FAMILY, "BEiTL16", kwargs)
