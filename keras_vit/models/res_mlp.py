"""ResMLP: a linear layer among patches and an MLP among channels.

Touvron et al. 2021 (2105.03404), checked against resmlp_models.py of
facebookresearch/deit and timm/models/mlp_mixer.py.
"""

from typing import Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Positive, Rate, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import CompositeLayer, ResidualBlock, check_shape
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, register
from keras_vit.models.image_model import ImageModel

__all__ = ["ResMLP", "ResMLPS12", "ResMLPS24", "ResMLPS36", "ResMLPB24"]


@keras.saving.register_keras_serializable(package="keras_vit")
class Affine(CompositeLayer):
    """Scales and shifts each channel: `Aff(x) = alpha x + beta`.

    It replaces normalisation.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        Touvron et al. 2021, equation 1; checked against `Affine` in
        resmlp_models.py.
    """

    @checked
    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def build(self, input_shape):
        self._shape = (*[None] * (len(input_shape) - 2), input_shape[-1])
        shape = input_shape[-1:]
        self.alpha = self.add_weight(shape, "ones", name="alpha")
        self.beta = self.add_weight(shape, "zeros", name="beta")

    def call(self, inputs):
        # Otherwise broadcasting would turn one channel into many.
        inputs = check_shape(self, inputs, self._shape)
        return self.alpha * inputs + self.beta

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class ResMLPBlock(ResidualBlock):
    """Mixes patches by one linear layer, then channels by an MLP.

        u = x + gamma_1 (A Aff(x)^T + b)^T
        y = u + gamma_2 MLP(Aff(u))

    Args:
        mlp_dim: Hidden width of the MLP over channels.
        layer_scale: Initial value of gamma (LayerScale).
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, N, D]`
    Output shape: `[B, N, D]`

    Raises:
        ValueError: If the number of tokens differs from the one it was built
            for.

    Reference:
        Touvron et al. 2021, equations 2 and 3; checked against
        `layers_scale_mlp_blocks` in resmlp_models.py.
    """

    SHARDED = mlp_block.sharded("mlp")

    @checked
    def __init__(self, mlp_dim: Count, layer_scale: Positive = 1e-4, **kwargs):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.layer_scale = layer_scale

    def build(self, input_shape):
        batch_size, tokens, width = input_shape
        self._token_shape = (tokens, width)

        scale = keras.initializers.Constant(self.layer_scale)
        self.norm1 = self.make(Affine, name="norm1", shape=input_shape)
        shape = (batch_size, width, tokens)
        self.attn = mlp_block.dense(self, tokens, "attn", shape=shape)
        self.gamma_1 = self.add_weight((width,), scale, name="gamma_1")
        self.norm2 = self.make(Affine, name="norm2", shape=input_shape)
        self.mlp = self.make(
            layers.DeiTMlp, self.mlp_dim, name="mlp", shape=input_shape
        )
        self.gamma_2 = self.add_weight((width,), scale, name="gamma_2")
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def token_kernels(self) -> dict:
        """Return name -> (kernel over tokens, None for the grid's shape)."""
        return {"attn": (self.attn.kernel, None)}

    def _forward(self, inputs, training):
        inputs = check_shape(self, inputs, self._token_shape)
        x = ops.swapaxes(self.norm1(inputs), 1, 2)  # [B, D, N]
        x = ops.swapaxes(self.attn(x), 1, 2)  # [B, N, D]
        x = ops.cast(self.gamma_1, x.dtype) * x
        u = inputs + self.drop_path(x, training=training)
        x = self.mlp(self.norm2(u))
        x = ops.cast(self.gamma_2, x.dtype) * x
        return u + self.drop_path(x, training=training)


@architecture
class ResMLPConfig:
    """The architecture of a ResMLP.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        num_layers: Number of blocks.
        hidden_size: Width D of the tokens.
        mlp_dim: Hidden width of the MLPs over channels.
        layer_scale: Initial value of the scales of residual branches; 1e-4.
        drop_path_rate: Stochastic depth, the same in all blocks.
    """

    patch_size: Pair
    num_layers: Count
    hidden_size: Count
    mlp_dim: Count
    layer_scale: Positive = 1e-4
    drop_path_rate: Rate = 0.0


class ResMLPArguments(ModelArguments, total=False):
    """The fields of `ResMLPConfig`, as arguments."""

    patch_size: Pair | None
    num_layers: Count | None
    hidden_size: Count | None
    mlp_dim: Count | None
    layer_scale: Positive | None
    drop_path_rate: Rate | None


def forward(config: ResMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation: the mean of all tokens, `[B, D]`."""
    x = layers.PatchEmbedding(
        config.patch_size,
        config.hidden_size,
        initializer="uniform",
        name="patch_embed",
    )(x)  # [B, N, D]
    for i in range(config.num_layers):
        x = ResMLPBlock(
            config.mlp_dim,
            config.layer_scale,
            drop_path_rate=config.drop_path_rate,
            name=f"blocks_{i}",
        )(x)
    x = Affine(name="norm")(x)
    return ops.mean(x, axis=1)  # [B, D]


_SMALL = dict(patch_size=16, hidden_size=384, mlp_dim=1536)
_BASE = dict(patch_size=8, hidden_size=768, mlp_dim=3072)
VARIANTS = {
    "ResMLPS12": dict(num_layers=12, layer_scale=0.1, **_SMALL),
    "ResMLPS24": dict(num_layers=24, layer_scale=1e-5, **_SMALL),
    "ResMLPS36": dict(num_layers=36, layer_scale=1e-6, **_SMALL),
    "ResMLPB24": dict(num_layers=24, layer_scale=1e-6, **_BASE),
}
FAMILY = register(
    "res_mlp",
    "ResMLP",
    ResMLPConfig,
    forward,
    ResMLPBlock,
    VARIANTS,
    layers=r"patch_embed|blocks_\d+(?:/[^/]+)?|norm",
    small=dict(hidden_size=96, num_layers=4, mlp_dim=192, layer_scale=0.1),
)


def ResMLP(**kwargs: Unpack[ResMLPArguments]) -> ImageModel:
    """Build a ResMLP of any size."""
    return construct(FAMILY, "ResMLP", kwargs)


def ResMLPS12(**kwargs: Unpack[ResMLPArguments]) -> ImageModel:
    """ResMLP-S12."""
    return construct(FAMILY, "ResMLPS12", kwargs)


def ResMLPS24(**kwargs: Unpack[ResMLPArguments]) -> ImageModel:
    """ResMLP-S24."""
    return construct(FAMILY, "ResMLPS24", kwargs)


def ResMLPS36(**kwargs: Unpack[ResMLPArguments]) -> ImageModel:
    """ResMLP-S36."""
    return construct(FAMILY, "ResMLPS36", kwargs)


def ResMLPB24(**kwargs: Unpack[ResMLPArguments]) -> ImageModel:
    """ResMLP-B24."""
    return construct(FAMILY, "ResMLPB24", kwargs)
