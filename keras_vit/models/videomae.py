"""VideoMAE: a plain ViT over tubelets, patches of some frames.

Tong et al. 2022, "VideoMAE: Masked Autoencoders are Data-Efficient Learners for
Self-Supervised Video Pre-Training" (2203.12602). Checked against videomae of
transformers. There is no class token; positions are fixed sines and cosines.
`keras_vit.heads.mae` trains it without labels.
"""

from typing import Literal, Unpack

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, as_pair, checked
from keras_vit.layers.keras_layers import LayerNorm
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.layers.sine import SequencePositions
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel

__all__ = ["VideoMAE", "VideoMAEB16", "VideoMAEL16", "VideoMAEH16"]

Pooling = Literal["gap_norm", "first", "gap_unnormed"]


@keras.saving.register_keras_serializable(package="keras_vit")
class TubeletEmbedding(layers.PatchEmbedding):
    """Embeds tubelets, patches of some consecutive frames.

    The frames of a tubelet are further channels of a patch.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of a token.
        tubelet_size: Frames S of a tubelet.
        **kwargs: Further arguments of `PatchEmbedding`.

    Input shape: `[B, T, H, W, C]`, T a multiple of S.
    Output shape: `[B, T / S * N, D]`, frame after frame in raster order.

    Raises:
        ValueError: If T, H or W is no such multiple.
    """

    @checked
    def __init__(
        self, patch_size, hidden_size: Count, tubelet_size: Count, **kwargs
    ):
        super().__init__(patch_size, hidden_size, **kwargs)
        self.tubelet_size = tubelet_size

    def build(self, input_shape):
        if len(input_shape) != 5 or input_shape[1] % self.tubelet_size:
            raise ValueError(
                f"TubeletEmbedding `{self.name}` needs videos whose number of "
                f"frames is a multiple of {self.tubelet_size}. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        super().build(self._merged(input_shape))

    def _merged(self, shape):
        _, _, height, width, channels = shape
        return (None, height, width, self.tubelet_size * channels)

    def call(self, inputs):
        _, frames, height, width, channels = inputs.shape
        groups = frames // self.tubelet_size
        shape = (-1, groups, self.tubelet_size, height, width, channels)
        x = ops.transpose(ops.reshape(inputs, shape), (0, 1, 3, 4, 2, 5))
        x = ops.reshape(x, (-1, *self._merged(inputs.shape)[1:]))
        x = super().call(x)  # [B * T / S, N, D]
        return ops.reshape(x, (-1, groups * x.shape[1], self.hidden_size))

    def by_frame(self, kernel):
        """Return `[h, w, S C, D]` as `[S, h, w, C, D]`, a NumPy array."""
        return np.stack(np.split(kernel, self.tubelet_size, axis=2))

    def compute_output_shape(self, input_shape):
        _, patches, width = super().compute_output_shape(
            self._merged(input_shape)
        )
        groups = input_shape[1] // self.tubelet_size
        return (input_shape[0], groups * patches, width)


@architecture
class VideoMAEConfig(encoder.EncoderConfig):
    """The architecture of a VideoMAE.

    Args:
        tubelet_size: Frames of a tubelet; 2.
        pooling: What the head reads: "gap_norm", a norm of the mean of all
            tokens; "first", the first token after the last norm (files with
            use_mean_pooling=false); "gap_unnormed", the mean without a norm.
            "gap_norm".
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "gelu".
        qkv_bias: Biases of the projections: "qkv", "qv" or "none"; "qv".
    """

    tubelet_size: Count = 2
    pooling: Pooling = "gap_norm"
    activation: Activation = "gelu"
    qkv_bias: Bias = "qv"


class VideoMAEArguments(encoder.EncoderArguments, total=False):
    """The fields of `VideoMAEConfig`, as arguments."""

    tubelet_size: Count | None
    pooling: Pooling | None
    activation: Activation | None
    qkv_bias: Bias | None


def forward(config: VideoMAEConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x = TubeletEmbedding(
        config.patch_size,
        config.hidden_size,
        config.tubelet_size,
        initializer="uniform",
        name="embedding",
    )(x)  # [B, N, D]
    x = SequencePositions(name="posembed_input")(x)
    x = encoder.encode(config, x)
    if config.pooling == "first":
        return encoder.norm(config, "encoder_norm")(x)[:, 0]
    x = ops.mean(x, axis=1)
    if config.pooling == "gap_unnormed":
        return x
    # PyTorch's default, not the epsilon of the blocks.
    return LayerNorm(epsilon=1e-5, name="encoder_norm")(x)


VARIANTS = {
    "VideoMAEB16": dict(patch_size=16, **encoder.BASE),
    "VideoMAEL16": dict(patch_size=16, **encoder.LARGE),
    "VideoMAEH16": dict(patch_size=16, **encoder.HUGE),
}

FAMILY = encoder.family(
    "videomae",
    "VideoMAE",
    VideoMAEConfig,
    forward,
    variants=VARIANTS,
    takes_video=True,
    stride=lambda config: (config.tubelet_size, *as_pair(config.patch_size)),
    input_shapes=dict.fromkeys(("VideoMAE", *VARIANTS, ""), (16, 224, 224, 3)),
)


def VideoMAE(**kwargs: Unpack[VideoMAEArguments]) -> ImageModel:
    """Build a VideoMAE of any size."""
    return construct(FAMILY, "VideoMAE", kwargs)


def VideoMAEB16(**kwargs: Unpack[VideoMAEArguments]) -> ImageModel:
    """ViT-B/16 of VideoMAE."""
    return construct(FAMILY, "VideoMAEB16", kwargs)


def VideoMAEL16(**kwargs: Unpack[VideoMAEArguments]) -> ImageModel:
    """ViT-L/16 of VideoMAE."""
    return construct(FAMILY, "VideoMAEL16", kwargs)


def VideoMAEH16(**kwargs: Unpack[VideoMAEArguments]) -> ImageModel:
    """ViT-H/16 of VideoMAE."""
    return construct(FAMILY, "VideoMAEH16", kwargs)
