"""MViT: Transformer blocks that pool a video over space and time.

Fan et al. 2021, "Multiscale Vision Transformers" (2104.11227), checked against
slowfast/models/{video_model_builder,attention}.py of facebookresearch/SlowFast
and torchvision/models/video/mvit.py. An image is a video of one frame. The
paper's baseline, a ViT on cubes of pixels, has one stage and no pooling.
"""

from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_vit._arguments import Count, Positive, Rate, Triple, as_triple
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import (
    architecture,
    check_levels,
    drop_path_rates,
    register,
)
from keras_vit.models.image_model import ImageModel
from keras_vit.models.mvit_attention import Pooling
from keras_vit.models.mvit_block import MultiscaleBlock
from keras_vit.models.mvit_embedding import (
    CubeEmbedding,
    Kind,
    SpaceTimePositions,
)

__all__ = [
    "MViT",
    "MViTB16x4",
    "MViTB32x3",
    "MViTB64x3",
    "MViTB24_32x3",
    "VideoViTB16",
    "MViTB16",
    "MViTB24",
    "MViTB24Wide",
]

# One triple, or one for each stage.
Strides = Triple | tuple[Triple, ...]


@architecture
class MViTConfig:
    """The architecture of an MViT, in the terms of Table 3.

    Sizes and strides over space and time are (frames, height, width).

    Args:
        depths: Blocks in each stage.
        hidden_sizes: Width of the tokens in each stage.
        num_heads: Attention heads of the first stage, and of the others in
            proportion to their width; or of each stage.
        cube_size: Pixels of the cubes that become tokens; (3, 7, 7).
        cube_stride: Pixels between cubes; (2, 4, 4).
        pooling_mode: "conv", "max", "avg" or "none", of queries, keys and
            values; "conv".
        pooling_size: Tokens of a pooled window; one more than the stride
            along the axes where that is more than 1.
        query_stride: Stride with which the first block of each stage after the
            first pools queries, or a triple for each stage; (1, 2, 2).
        key_value_stride: Stride with which the first stage pools keys and
            values, or a triple for each stage. A single stride is divided by
            the `query_stride` of each later stage (the paper's adaptive
            stride); (1, 8, 8).
        position_embedding: "separate" tables of space and time, a "joint" one
            or "none"; "separate".
        pooling: "token" reads the class token; "gap" the average of all
            tokens, of a model without a class token; "token".
        mlp_ratio: Width of the MLPs' hidden layer divided by that of the
            tokens; 4.
        dropout_rate: Dropout after the position embeddings and in the blocks.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        head_dropout_rate: Dropout of the representation.
    """

    depths: tuple[Count, ...]
    hidden_sizes: tuple[Count, ...]
    num_heads: Count | tuple[Count, ...]
    cube_size: Triple = (3, 7, 7)
    cube_stride: Triple = (2, 4, 4)
    pooling_mode: Pooling = "conv"
    pooling_size: Triple | None = None
    query_stride: Strides = (1, 2, 2)
    key_value_stride: Strides = (1, 8, 8)
    position_embedding: Kind = "separate"
    pooling: Literal["token", "gap"] = "token"
    mlp_ratio: Positive = 4
    dropout_rate: Rate = 0.0
    drop_path_rate: Rate = 0.0
    head_dropout_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        for name in ("depths", "hidden_sizes"):
            self._set_for_each_stage(name, tuple(getattr(self, name)))
        heads = self.num_heads
        if isinstance(heads, int):
            first = self.hidden_sizes[0]
            heads = [heads * size // first for size in self.hidden_sizes]
        self._set_for_each_stage("num_heads", tuple(heads))
        counts: Any = self.num_heads
        pairs = zip(self.hidden_sizes, counts, strict=True)
        if any(size % count for size, count in pairs):
            raise ValueError(
                "`hidden_sizes` must be a multiple of `num_heads` in each "
                f"stage. Received: hidden_sizes={self.hidden_sizes}, "
                f"num_heads={self.num_heads}"
            )
        for name in ("cube_size", "cube_stride", "pooling_size"):
            value = getattr(self, name)
            if name != "pooling_size" or value is not None:
                self._set(name, as_triple(value))
        self._resolve_strides()

    def _resolve_strides(self):
        """Give each stage its strides, as Table 3 lists them."""
        query: Any = self.query_stride
        key: Any = self.key_value_stride
        if _is_triple(query):
            query = [(1, 1, 1), *[query] * (len(self.depths) - 1)]
        self._set_for_each_stage("query_stride", _triples(query))
        if _is_triple(key):
            stages = []
            strides: Any = self.query_stride
            for stride in strides:
                key = [max(1, n // s) for n, s in zip(key, stride, strict=True)]
                stages.append(key)
            key = stages
        self._set_for_each_stage("key_value_stride", _triples(key))
        pooled = {*self.query_stride, *self.key_value_stride} - {(1, 1, 1)}
        if self.pooling_mode == "none" and pooled:
            raise ValueError(
                "`query_stride` and `key_value_stride` must be (1, 1, 1) with "
                f"pooling_mode='none'. Received: strides {sorted(pooled)}"
            )

    def _set_for_each_stage(self, name, values):
        self._set(name, values)
        check_levels(self, name)

    def _set(self, name, value):
        object.__setattr__(self, name, value)  # of a frozen dataclass


def _is_triple(value):
    """Whether a value is a single triple, not a sequence of them."""
    return not any(isinstance(each, (list, tuple)) for each in value)


def _triples(values):
    return tuple(map(as_triple, values))


class MViTArguments(ModelArguments, total=False):
    """The fields of `MViTConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    hidden_sizes: tuple[Count, ...] | None
    num_heads: Count | tuple[Count, ...] | None
    cube_size: Triple | None
    cube_stride: Triple | None
    pooling_mode: Pooling | None
    pooling_size: Triple | None
    query_stride: Strides | None
    key_value_stride: Strides | None
    position_embedding: Kind | None
    pooling: Literal["token", "gap"] | None
    mlp_ratio: Positive | None
    dropout_rate: Rate | None
    drop_path_rate: Rate | None
    head_dropout_rate: Rate | None


def forward(config: MViTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    if len(x.shape) == 4:
        x = ops.expand_dims(x, 1)  # an image is a video of one frame
    widths = config.hidden_sizes
    embedding = CubeEmbedding(
        config.cube_size, config.cube_stride, widths[0], name="patch_embed"
    )
    x = embedding(x)  # [B, N, D]
    grid = embedding.grid_size
    has_class_token = config.pooling == "token"
    x = SpaceTimePositions(
        grid, config.position_embedding, has_class_token, name="pos_encoding"
    )(x)
    if config.dropout_rate:
        x = keras.layers.Dropout(config.dropout_rate, name="pos_dropout")(x)

    stages = [
        (stage, is_first)
        for stage, count in enumerate(config.depths)
        for is_first in [True] + [False] * (count - 1)
    ]
    rates = drop_path_rates(config)
    # Each stage has its own, from `__post_init__`.
    heads: Any = config.num_heads
    query_strides: Any = config.query_stride
    key_value_strides: Any = config.key_value_stride
    for i, (stage, is_first) in enumerate(stages):
        # The first block of a stage pools its queries; the block before it has
        # already widened the tokens.
        next_stage = stages[min(i + 1, len(stages) - 1)][0]
        block = MultiscaleBlock(
            grid,
            heads[stage],
            mlp_dim=int(config.mlp_ratio * widths[stage]),
            output_size=widths[next_stage],
            pooling_mode=config.pooling_mode,
            pooling_size=config.pooling_size,
            query_stride=query_strides[stage] if is_first else (1, 1, 1),
            key_value_stride=key_value_strides[stage],
            class_token=has_class_token,
            dropout_rate=config.dropout_rate,
            drop_path_rate=rates[i],
            name=f"blocks_{i}",
        )
        x = block(x)  # [B, N / the query strides, D of the next block]
        grid = block.output_grid

    x = keras.layers.LayerNormalization(
        epsilon=1e-6,
        beta_initializer=keras.initializers.Constant(0.02),
        name="norm",
    )(x)
    x = x[:, 0] if has_class_token else ops.mean(x, axis=1)
    if config.head_dropout_rate:
        x = keras.layers.Dropout(config.head_dropout_rate, name="head_dropout")(
            x
        )
    return x


_BASE = dict(hidden_sizes=(96, 192, 384, 768), num_heads=(1, 2, 4, 8))
_WIDE = dict(hidden_sizes=(112, 224, 448, 896), num_heads=(1, 2, 4, 8))
_VIDEO = dict(
    cube_size=(3, 7, 7),
    cube_stride=(2, 4, 4),
    key_value_stride=(1, 8, 8),
    position_embedding="separate",
)
_IMAGE = dict(
    pooling_size=(1, 3, 3),
    cube_size=(1, 7, 7),
    cube_stride=(1, 4, 4),
    key_value_stride=(1, 4, 4),
    position_embedding="joint",
)
_VIDEO_16 = dict(
    depths=(1, 2, 11, 2), pooling_size=(3, 3, 3), **_BASE, **_VIDEO
)
VARIANTS: dict[str, dict] = {
    # Trained on Kinetics (Tables 4 and 5), by frames and the distance between
    # them.
    "MViTB16x4": _VIDEO_16,
    "MViTB32x3": _VIDEO_16,
    "MViTB64x3": _VIDEO_16,
    "MViTB24_32x3": dict(depths=(2, 3, 16, 3), **_BASE, **_VIDEO),
    # The baseline of Table 4: patches of 16 x 16 pixels in each frame.
    "VideoViTB16": dict(
        depths=(12,),
        hidden_sizes=(768,),
        num_heads=(12,),
        cube_size=(1, 16, 16),
        cube_stride=(1, 16, 16),
        pooling_mode="none",
        key_value_stride=(1, 1, 1),
        position_embedding="separate",
    ),
    # Trained on ImageNet (Table 9).
    "MViTB16": dict(depths=(1, 2, 11, 2), **_BASE, **_IMAGE),
    "MViTB24": dict(depths=(2, 3, 16, 3), **_BASE, **_IMAGE),
    "MViTB24Wide": dict(depths=(2, 3, 16, 3), **_WIDE, **_IMAGE),
}
INPUT_SHAPES = {
    "MViTB16x4": (16, 224, 224, 3),
    "MViTB32x3": (32, 224, 224, 3),
    "MViTB64x3": (64, 224, 224, 3),
    "MViTB24_32x3": (32, 224, 224, 3),
    "VideoViTB16": (8, 224, 224, 3),
    "MViTB24Wide": (320, 320, 3),
}
FAMILY = register(
    "mvit",
    "MViT",
    MViTConfig,
    forward,
    MultiscaleBlock,
    VARIANTS,
    layers=r"patch_embed|pos_encoding|blocks_\d+(?:/[^/]+)?|norm",
    small=dict(
        depths=(1, 2),
        hidden_sizes=(48, 96),
        num_heads=(1, 2),
        cube_size=(3, 7, 7),
        cube_stride=(1, 2, 2),
        key_value_stride=(1, 2, 2),
    ),
    takes_video=True,
    stride=lambda config: config.cube_stride,
    input_shapes=INPUT_SHAPES,
)


def MViT(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """Build an MViT of any size, of video or images."""
    return construct(FAMILY, "MViT", kwargs)


def MViTB16x4(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B of 16 frames, 4 apart."""
    return construct(FAMILY, "MViTB16x4", kwargs)


def MViTB32x3(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B of 32 frames, 3 apart."""
    return construct(FAMILY, "MViTB32x3", kwargs)


def MViTB64x3(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B of 64 frames, 3 apart."""
    return construct(FAMILY, "MViTB64x3", kwargs)


def MViTB24_32x3(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B-24 of 32 frames, 3 apart."""
    return construct(FAMILY, "MViTB24_32x3", kwargs)


def VideoViTB16(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """ViT-B on 8 frames, the baseline of MViT."""
    return construct(FAMILY, "VideoViTB16", kwargs)


def MViTB16(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B-16, of images."""
    return construct(FAMILY, "MViTB16", kwargs)


def MViTB24(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B-24, of images."""
    return construct(FAMILY, "MViTB24", kwargs)


def MViTB24Wide(**kwargs: Unpack[MViTArguments]) -> ImageModel:
    """MViT-B-24-wide, of images of 320 pixels."""
    return construct(FAMILY, "MViTB24Wide", kwargs)
