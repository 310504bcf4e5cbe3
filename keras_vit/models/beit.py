"""BEiT, BEiT v2 and other ViTs with relative positions.

Bao et al. 2022, "BEiT: BERT Pre-Training of Image Transformers" (2106.08254);
Peng et al. 2022, "BEiT v2" (2208.06366). Checked against timm/models/beit.py,
vision_transformer_relpos.py there, and beit of transformers. A ViT with
LayerScale, in whose blocks the distance between two patches biases their
attention.
"""

import dataclasses
from typing import Literal

import keras

from keras_vit import layers
from keras_vit._arguments import Count, Epsilon, Natural, Pair, Rate, checked
from keras_vit.layers import arguments
from keras_vit.layers.encoder_attention import Bias
from keras_vit.layers.encoder_mlp import Activation
from keras_vit.models import encoder
from keras_vit.models.constructors import constructor
from keras_vit.models.families import Family, inherited, register


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class BEiTConfig:
    """The architecture of a BEiT.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        classifier: What the head reads: "gap_norm", the mean of the patches,
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
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-6.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    classifier: Literal["token", "gap", "gap_norm"] = inherited("gap_norm")
    class_token: bool = inherited(True)
    relative_dim: Natural = inherited(0)
    post_norm: bool = inherited(False)
    activation: Activation = inherited("gelu")
    layer_scale: Rate = inherited(0.1)
    qkv_bias: Bias = inherited("qv")
    drop_path_rate: Rate = 0.0
    layer_norm_epsilon: Epsilon = inherited(1e-6)

    def __post_init__(self):  # noqa: D105
        arguments.check_heads(self)
        encoder.check_prefix(self)
        if not (self.class_token or self.relative_dim):
            raise ValueError(
                "`class_token` must be True with relative_dim=0, since learned "
                "tables have rows of the class token. Received: "
                "class_token=False"
            )


def forward(config: BEiTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
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
    learned = not config.relative_dim  # BEiT's own
    if config.class_token:
        stddev = 0.02 if learned else 1e-6
        x = layers.ClassToken(stddev, name="class_token")(x)
    x = encoder.encode(
        config,
        x,
        rescaled=learned,
        grid_size=embedding.grid_size,
        relative_positions=True,
    )
    return encoder.read_out(config, x, int(config.class_token))


VARIANTS = {
    "BEiTB16": dict(
        patch_size=16,
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        mlp_dim=3072,
    ),
    "BEiTL16": dict(
        patch_size=16,
        hidden_size=1024,
        num_layers=24,
        num_heads=16,
        mlp_dim=4096,
    ),
}

FAMILY = register(
    Family(
        "beit",
        "BEiT",
        BEiTConfig,
        forward,
        layers.EncoderBlock,
        VARIANTS,
        encoder.LAYERS,
        small=encoder.SMALL,
    )
)

BEiT = constructor(FAMILY, "BEiT", "A BEiT of any size.")
BEiTB16 = constructor(FAMILY, "BEiTB16", "BEiT-B/16.")
BEiTL16 = constructor(FAMILY, "BEiTL16", "BEiT-L/16.")
