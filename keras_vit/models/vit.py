"""The Vision Transformer and its hybrids.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words" (2010.11929), checked
against vit_jax/models_vit.py of google-research/vision_transformer. One
difference: q, k and v are computed by one projection. ViT-g and ViT-G: Zhai et
al. 2022, "Scaling Vision Transformers" (2106.04560), checked against
big_vision/models/vit.py.
"""

from typing import Literal, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Positive, Rate
from keras_vit.layers.resnet_v2_stem import Numerics
from keras_vit.models.construct import construct
from keras_vit.models.encoder import (
    BASE,
    FROM_SCRATCH,
    GIANT,
    GIGANTIC,
    HUGE,
    LARGE,
    SMALL,
    TINY,
    EncoderArguments,
    EncoderConfig,
)
from keras_vit.models.families import architecture, drop_path_rates, register
from keras_vit.models.image_model import ImageModel
from keras_vit.models.vit_positions import SincosPositionEmbs

__all__ = [
    "ViT",
    "ViTTi16",
    "ViTS32",
    "ViTS16",
    "ViTB32",
    "ViTB16",
    "ViTB8",
    "ViTL32",
    "ViTL16",
    "ViTH14",
    "ViTg14",
    "ViTG14",
    "RViTTi16",
    "R26ViTS32",
    "R26ViTB32",
    "R50ViTB16",
    "R50ViTB32",
    "R50ViTL16",
    "R50ViTL32",
]

Pooling = Literal["token", "gap", "gap_norm", "map", "unpooled"]
Positions = Literal[
    "learned_1d", "learned_2d", "sincos_2d", "relative", "local", "none"
]
EmbeddingInit = Literal["lecun_normal", "whitening"]
Placement = Literal["stem", "every_layer", "every_layer_shared"]


@architecture
class ViTConfig(EncoderConfig):
    """The architecture of a Vision Transformer (Table 1) or a hybrid.

    Args:
        patch_size: Pixels per side of a patch, or (height, width); of the
            feature map in a hybrid.
        pooling: What the head reads: "token", the class token; "gap", the mean
            of the patches; "gap_norm", the same before the last LayerNorm
            (timm's `fc_norm`); "map", attention from a learned probe (ViT-g
            and ViT-G); "unpooled", the grid of all patches. "token".
        class_token: Whether there is a class token; by default with
            pooling="token" alone. True also fits pooling="gap_norm" (MAE's
            fine-tuning).
        dropout_rate: Dropout after the position embeddings and in the blocks.
        attention_dropout_rate: Dropout of the attention weights.
        position_embedding: "learned_1d", "learned_2d", "relative" or "none"
            (Table 8); "sincos_2d", sines and cosines that are not trained
            (big_vision, Beyer et al. 2022); or "local", "learned_1d" and in
            each block a learned bias for the distance of two patches, whose
            first values make attention local (ConViT,
            `layers.beit_attention.local_table`), for training from scratch on
            few images; "learned_1d".
        embedding_init: First kernel of the patches' embedding, "lecun_normal"
            or "whitening" (`layers.embedding.whitening`); "lecun_normal".
        position_placement: Where embeddings are added: "stem" (once, before
            the encoder), "every_layer" (a table for each block) or
            "every_layer_shared" (one table, before each block); "stem".
        gelu_approximate: The tanh form of GELU, or the exact one; tanh.
        resnet_depths: Units per stage of a hybrid's ResNet stem, () for only
            its root; no stem.
        resnet_width: Width factor of the stem; 1.
        resnet_numerics: Epsilons of the stem, "authors" or "timm"; "authors".
    """

    pooling: Pooling = "token"
    class_token: bool | None = None
    dropout_rate: Rate = 0.0
    attention_dropout_rate: Rate = 0.0
    position_embedding: Positions = "learned_1d"
    embedding_init: EmbeddingInit = "lecun_normal"
    position_placement: Placement = "stem"
    gelu_approximate: bool = True
    resnet_depths: tuple[Count, ...] | None = None
    resnet_width: Positive = 1
    resnet_numerics: Numerics = "authors"

    @property
    def has_class_token(self) -> bool:
        """Whether a class token precedes the patches."""
        return self.pooling == "token" or bool(self.class_token)

    @property
    def adds_positions(self) -> bool:
        """Whether embeddings of positions are added to the tokens."""
        return self.position_embedding not in ("relative", "none")

    def __post_init__(self):  # noqa: D105
        super().__post_init__()
        possible = dict(token=(None, True), gap_norm=(None, True, False))
        if self.class_token not in possible.get(self.pooling, (None, False)):
            raise ValueError(
                "`class_token` must be True with pooling='token', True or "
                "False with pooling='gap_norm', and False otherwise. Received: "
                f"class_token={self.class_token}, pooling={self.pooling!r}"
            )
        if not self.adds_positions and self.position_placement != "stem":
            raise ValueError(
                "`position_placement` says where embeddings are added to "
                "tokens; with "
                f"position_embedding={self.position_embedding!r} none is "
                "added, so leave it at 'stem' (Table 8 has no such case). "
                f"Received: position_placement={self.position_placement!r}"
            )


class ViTArguments(EncoderArguments, total=False):
    """The fields of `ViTConfig`, as arguments."""

    pooling: Pooling | None
    class_token: bool | None
    dropout_rate: Rate | None
    attention_dropout_rate: Rate | None
    position_embedding: Positions | None
    embedding_init: EmbeddingInit | None
    position_placement: Placement | None
    gelu_approximate: bool | None
    resnet_depths: tuple[Count, ...] | None
    resnet_width: Positive | None
    resnet_numerics: Numerics | None


def forward(config: ViTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation y of equation 4, `[B, D]`."""
    # Equation 1: patches, class token, positions.
    if config.resnet_depths is not None:
        x = layers.ResNetV2Stem(
            tuple(config.resnet_depths),
            config.resnet_width,
            config.resnet_numerics,
            name="resnet",
        )(x)
    embedding = layers.PatchEmbedding(
        config.patch_size,
        config.hidden_size,
        initializer=config.embedding_init,
        name="embedding",
    )
    x = embedding(x)  # [B, N, D]
    if config.has_class_token:
        x = layers.ClassToken(name="class_token")(x)  # [B, N + 1, D]

    placement = config.position_placement if config.adds_positions else None
    if placement in ("stem", "every_layer_shared"):
        shared_positions = positions(config, embedding.grid_size, "input")
    if placement == "stem":
        x = shared_positions(x)
    if config.dropout_rate:
        x = keras.layers.Dropout(config.dropout_rate, name="posembed_dropout")(
            x
        )

    # Equations 2 and 3: the encoder.
    attention: dict = dict(dropout_rate=config.attention_dropout_rate)
    if config.position_embedding == "relative":
        attention |= dict(layer="RelativeAttention")
    elif config.position_embedding == "local":
        grid_size = embedding.grid_size
        attention |= dict(
            layer="BEiTAttention", grid_size=grid_size, locality=1
        )
    activation = "gelu_tanh" if config.gelu_approximate else "gelu"
    for i, rate in enumerate(drop_path_rates(config)):
        if placement == "every_layer":
            x = positions(config, embedding.grid_size, str(i))(x)
        elif placement == "every_layer_shared":
            x = shared_positions(x)
        x = layers.TransformerBlock(
            config.num_heads,
            config.mlp_dim,
            dropout_rate=config.dropout_rate,
            drop_path_rate=rate,
            layer_norm_epsilon=config.layer_norm_epsilon,
            attention_options=attention,
            mlp_options=dict(activation=activation),
            name=f"encoderblock_{i}",
        )(x)
    return read_out(config, x, embedding.grid_size)


def positions(config: ViTConfig, grid_size: tuple[int, int], suffix: str):
    """Return a layer that adds embeddings of positions to the tokens."""
    name, first = f"posembed_{suffix}", config.has_class_token
    if config.position_embedding == "sincos_2d":
        return SincosPositionEmbs(grid_size, first, name=name)
    is_2d = config.position_embedding == "learned_2d"
    return layers.AddPositionEmbs(
        grid_size, first, "learned_2d" if is_2d else "learned_1d", name=name
    )


def read_out(config: ViTConfig, x, grid_size: tuple[int, int]):
    """Return the last norm, and the readout, of the tokens (equation 4)."""
    norm = keras.layers.LayerNormalization(
        epsilon=config.layer_norm_epsilon, name="encoder_norm"
    )
    if config.pooling == "token":
        return norm(x)[:, 0]
    if config.pooling == "gap":
        return ops.mean(norm(x), axis=1)
    if config.pooling == "map":
        return layers.AttentionPooling(
            config.num_heads,
            config.mlp_dim,
            activation="gelu_tanh" if config.gelu_approximate else "gelu",
            layer_norm_epsilon=config.layer_norm_epsilon,
            name="attention_pooling",
        )(norm(x))
    if config.pooling == "gap_norm":
        patches = x[:, 1:] if config.has_class_token else x
        return norm(ops.mean(patches, axis=1))
    return keras.layers.Reshape((*grid_size, config.hidden_size))(norm(x))


# Table 1, the sizes that the release adds to it, and the hybrids of section
# 4.1, whose patches are cut from the stem's feature map.
VARIANTS: dict[str, dict] = {
    "ViTTi16": dict(patch_size=16, **TINY),
    "ViTS32": dict(patch_size=32, **SMALL),
    "ViTS16": dict(patch_size=16, **SMALL),
    "ViTB32": dict(patch_size=32, **BASE),
    "ViTB16": dict(patch_size=16, **BASE),
    "ViTB8": dict(patch_size=8, **BASE),
    "ViTL32": dict(patch_size=32, **LARGE),
    "ViTL16": dict(patch_size=16, **LARGE),
    "ViTH14": dict(patch_size=14, **HUGE),
    # Table 2 of "Scaling Vision Transformers".
    "ViTg14": dict(patch_size=14, pooling="map", **GIANT),
    "ViTG14": dict(patch_size=14, pooling="map", **GIGANTIC),
    # The root has stride 4, so that patches of 8 are 32 pixels, not 16.
    "RViTTi16": dict(patch_size=8, resnet_depths=(), **TINY),
    "R26ViTS32": dict(patch_size=1, resnet_depths=(2, 2, 2, 2), **SMALL),
    "R26ViTB32": dict(patch_size=1, resnet_depths=(2, 2, 2, 2), **BASE),
    # Stage 4 is removed and its units placed in stage 3 (option ii).
    "R50ViTB16": dict(patch_size=1, resnet_depths=(3, 4, 9), **BASE),
    "R50ViTB32": dict(patch_size=1, resnet_depths=(3, 4, 6, 3), **BASE),
    "R50ViTL16": dict(patch_size=1, resnet_depths=(3, 4, 9), **LARGE),
    "R50ViTL32": dict(patch_size=1, resnet_depths=(3, 4, 6, 3), **LARGE),
}

FAMILY = register(
    "vit",
    "ViT",
    ViTConfig,
    forward,
    layers.TransformerBlock,
    VARIANTS,
    r"resnet(?:/.+)?|embedding|class_token|posembed_\w+"
    r"|encoderblock_\d+(?:/[^/]+)?|encoder_norm|attention_pooling",
    last_norm="encoder_norm",
    small=FROM_SCRATCH,
)


def ViT(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """Build a Vision Transformer, or hybrid, of any size."""
    return construct(FAMILY, "ViT", kwargs)


def ViTTi16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-Ti/16, of the augreg release."""
    return construct(FAMILY, "ViTTi16", kwargs)


def ViTS32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-S/32, of the augreg release."""
    return construct(FAMILY, "ViTS32", kwargs)


def ViTS16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-S/16, of the augreg release."""
    return construct(FAMILY, "ViTS16", kwargs)


def ViTB32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-B/32 of Table 1."""
    return construct(FAMILY, "ViTB32", kwargs)


def ViTB16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-B/16 of Table 1."""
    return construct(FAMILY, "ViTB16", kwargs)


def ViTB8(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-B/8, of the augreg release."""
    return construct(FAMILY, "ViTB8", kwargs)


def ViTL32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-L/32 of Table 1."""
    return construct(FAMILY, "ViTL32", kwargs)


def ViTL16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-L/16 of Table 1."""
    return construct(FAMILY, "ViTL16", kwargs)


def ViTH14(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-H/14 of Table 1."""
    return construct(FAMILY, "ViTH14", kwargs)


def ViTg14(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-g/14 of "Scaling Vision Transformers"."""
    return construct(FAMILY, "ViTg14", kwargs)


def ViTG14(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """ViT-G/14 of "Scaling Vision Transformers"."""
    return construct(FAMILY, "ViTG14", kwargs)


def RViTTi16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R+ViT-Ti/16: a ResNet's root, ViT."""
    return construct(FAMILY, "RViTTi16", kwargs)


def R26ViTS32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R26+ViT-S/32, a hybrid."""
    return construct(FAMILY, "R26ViTS32", kwargs)


def R26ViTB32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R26+ViT-B/32, a hybrid."""
    return construct(FAMILY, "R26ViTB32", kwargs)


def R50ViTB16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R50+ViT-B/16, a hybrid."""
    return construct(FAMILY, "R50ViTB16", kwargs)


def R50ViTB32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R50+ViT-B/32 of Table 6."""
    return construct(FAMILY, "R50ViTB32", kwargs)


def R50ViTL16(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R50+ViT-L/16 of Table 6."""
    return construct(FAMILY, "R50ViTL16", kwargs)


def R50ViTL32(**kwargs: Unpack[ViTArguments]) -> ImageModel:
    """R50+ViT-L/32, a hybrid."""
    return construct(FAMILY, "R50ViTL32", kwargs)
