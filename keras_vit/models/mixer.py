"""MLP-Mixer: an architecture made of MLPs only.

Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision"
(2105.01601), checked against vit_jax/models_mixer.py of
google-research/vision_transformer. What differs: stochastic depth is an
argument, as in big_vision's models/mlp_mixer.py.
"""

from typing import Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Rate, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import ResidualBlock, check_shape
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, drop_path_rates, register
from keras_vit.models.image_model import ImageModel

__all__ = [
    "MLPMixer",
    "MixerS32",
    "MixerS16",
    "MixerB32",
    "MixerB16",
    "MixerL32",
    "MixerL16",
    "MixerH14",
]


@keras.saving.register_keras_serializable(package="keras_vit")
class MixerMlp(layers.MlpBlock):
    """The MLP of ViT without dropout, with the initialisers of Flax' Dense.

    Its arguments are those of `MlpBlock`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        Tolstikhin et al. 2021, equation 1; checked against `MlpBlock` in
        vit_jax/models_mixer.py.
    """

    def initializers(self, fan_in, stddev):
        return dict(kernel_initializer="lecun_normal")


@keras.saving.register_keras_serializable(package="keras_vit")
class MixerBlock(ResidualBlock):
    """Mixes tokens, the same way in each channel, then channels.

        u = x + MLP_tokens(LN(x)^T)^T
        y = u + MLP_channels(LN(u))

    Args:
        tokens_mlp_dim: Hidden width D_S of the MLP over tokens.
        mlp_dim: Hidden width D_C of the MLP over channels.
        gelu_approximate: The tanh form of GELU, or the exact one.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, N, D]`
    Output shape: `[B, N, D]`

    Raises:
        ValueError: If the number of tokens differs from the one it was built
            for.

    Reference:
        Tolstikhin et al. 2021, equation 1; checked against `MixerBlock` in
        vit_jax/models_mixer.py.
    """

    SHARDED = mlp_block.sharded("token_mixing", "tokens_mlp_dim")
    SHARDED |= mlp_block.sharded("channel_mixing")

    @checked
    def __init__(
        self,
        tokens_mlp_dim: Count,
        mlp_dim: Count,
        gelu_approximate: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.tokens_mlp_dim = tokens_mlp_dim
        self.mlp_dim = mlp_dim
        self.gelu_approximate = gelu_approximate

    def build(self, input_shape):
        batch_size, tokens, width = input_shape
        self._token_shape = (tokens, width)

        def mlp(mlp_dim, shape, name):
            return self.make(
                MixerMlp,
                mlp_dim,
                activation="gelu_tanh" if self.gelu_approximate else "gelu",
                name=name,
                shape=shape,
            )

        # The sublayers are named as in the authors' checkpoints.
        self.norm_0 = self.make_norm("LayerNorm_0", input_shape, 1e-6)
        self.token_mixing = mlp(
            self.tokens_mlp_dim, (batch_size, width, tokens), "token_mixing"
        )
        self.norm_1 = self.make_norm("LayerNorm_1", input_shape, 1e-6)
        self.channel_mixing = mlp(self.mlp_dim, input_shape, "channel_mixing")
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def token_kernels(self) -> dict:
        """Return name -> (kernel over tokens, None, since its shape is the
        grid's)."""
        return {"token_mixing": (self.token_mixing.dense_0.kernel, None)}

    def _forward(self, inputs, training):
        inputs = check_shape(self, inputs, self._token_shape)
        x = ops.swapaxes(self.norm_0(inputs), 1, 2)  # [B, D, N]
        x = ops.swapaxes(self.token_mixing(x), 1, 2)  # [B, N, D]
        u = inputs + self.drop_path(x, training=training)
        x = self.channel_mixing(self.norm_1(u))
        return u + self.drop_path(x, training=training)


@architecture
class MixerConfig:
    """The architecture of an MLP-Mixer, in the terms of Table 1.

    Args:
        patch_size: Pixels per side P of a patch, or (height, width).
        num_layers: Number of Mixer blocks.
        hidden_size: Width C of the tokens.
        tokens_mlp_dim: Hidden width D_S of the MLPs over tokens.
        mlp_dim: Hidden width D_C of the MLPs over channels.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        gelu_approximate: The tanh form of GELU, or the exact one; tanh.
    """

    patch_size: Pair
    num_layers: Count
    hidden_size: Count
    tokens_mlp_dim: Count
    mlp_dim: Count
    drop_path_rate: Rate = 0.0
    gelu_approximate: bool = True


class MixerArguments(ModelArguments, total=False):
    """The fields of `MixerConfig`, as arguments."""

    patch_size: Pair | None
    num_layers: Count | None
    hidden_size: Count | None
    tokens_mlp_dim: Count | None
    mlp_dim: Count | None
    drop_path_rate: Rate | None
    gelu_approximate: bool | None


def forward(config: MixerConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of all tokens, `[B, D]`."""
    x = layers.PatchEmbedding(
        config.patch_size, config.hidden_size, name="stem"
    )(x)  # [B, N, D]
    for i, rate in enumerate(drop_path_rates(config)):
        x = MixerBlock(
            config.tokens_mlp_dim,
            config.mlp_dim,
            config.gelu_approximate,
            drop_path_rate=rate,
            name=f"MixerBlock_{i}",
        )(x)
    x = keras.layers.LayerNormalization(
        epsilon=1e-6, name="pre_head_layer_norm"
    )(x)
    return ops.mean(x, axis=1)  # [B, D]


_SMALL = dict(num_layers=8, hidden_size=512, tokens_mlp_dim=256, mlp_dim=2048)
_BASE = dict(num_layers=12, hidden_size=768, tokens_mlp_dim=384, mlp_dim=3072)
_LARGE = dict(num_layers=24, hidden_size=1024, tokens_mlp_dim=512, mlp_dim=4096)
_HUGE = dict(num_layers=32, hidden_size=1280, tokens_mlp_dim=640, mlp_dim=5120)
# Table 1.
VARIANTS = {
    "MixerS32": dict(patch_size=32, **_SMALL),
    "MixerS16": dict(patch_size=16, **_SMALL),
    "MixerB32": dict(patch_size=32, **_BASE),
    "MixerB16": dict(patch_size=16, **_BASE),
    "MixerL32": dict(patch_size=32, **_LARGE),
    "MixerL16": dict(patch_size=16, **_LARGE),
    "MixerH14": dict(patch_size=14, **_HUGE),
}
FAMILY = register(
    "mixer",
    "MLPMixer",
    MixerConfig,
    forward,
    MixerBlock,
    VARIANTS,
    layers=r"stem|MixerBlock_\d+(?:/[^/]+)?|pre_head_layer_norm",
    last_norm="pre_head_layer_norm",
    small=dict(hidden_size=96, num_layers=4, tokens_mlp_dim=48, mlp_dim=192),
)


def MLPMixer(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Build an MLP-Mixer of any size."""
    return construct(FAMILY, "MLPMixer", kwargs)


def MixerS32(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-S/32 of Table 1."""
    return construct(FAMILY, "MixerS32", kwargs)


def MixerS16(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-S/16 of Table 1."""
    return construct(FAMILY, "MixerS16", kwargs)


def MixerB32(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-B/32 of Table 1."""
    return construct(FAMILY, "MixerB32", kwargs)


def MixerB16(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-B/16 of Table 1."""
    return construct(FAMILY, "MixerB16", kwargs)


def MixerL32(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-L/32 of Table 1."""
    return construct(FAMILY, "MixerL32", kwargs)


def MixerL16(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-L/16 of Table 1."""
    return construct(FAMILY, "MixerL16", kwargs)


def MixerH14(**kwargs: Unpack[MixerArguments]) -> ImageModel:
    """Mixer-H/14 of Table 1."""
    return construct(FAMILY, "MixerH14", kwargs)
