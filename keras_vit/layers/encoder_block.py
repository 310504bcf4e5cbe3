"""The encoder block of ViTs after the paper."""

import keras

from keras_vit._arguments import (
    Count,
    Epsilon,
    Natural,
    Positive,
    Rate,
    checked,
)
from keras_vit.layers import arguments
from keras_vit.layers.block import Block
from keras_vit.layers.encoder_attention import (
    NORMS,
    Bias,
    EncoderAttention,
    Norm,
)
from keras_vit.layers.encoder_mlp import Activation, EncoderMlp
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.rotary import Rotary
from keras_vit.layers.transformer_block import TransformerBlock


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(Block):
    """A pre-norm block whose branches may be scaled by channel.

        z' = z + g_1 * Attention(LN(z))
        z  = z' + g_2 * MLP(LN(z'))

    or, with `post_norm`, z' = z + g_1 * LN(Attention(z)), and so on; or, with
    `parallel` (Dehghani et al. 2023, 2302.05442),

        z = z + g_1 * (Attention(LN(z)) + MLP(LN(z)))

    Args:
        num_heads: Number of attention heads; divides the token width D.
        mlp_dim: Width of the MLP's hidden layer.
        activation: See `EncoderMlp`.
        layer_norm_epsilon: Added to the variance in LayerNorm.
        layer_scale: First value of g_1 and g_2 (`LayerScale`); 0 without.
        qkv_bias, grid_size, rotary, relative_positions, relative_dim,
            num_kv_heads: See `EncoderAttention`.
        attention_norm: Whether a LayerNorm follows the joined heads.
        mlp_norm: Whether a LayerNorm follows the hidden units.
        post_norm: Whether the norms follow attention and MLP.
        parallel: Whether attention and MLP read the same norm.
        norm: Kind of the norms, "layer" or "rms"; those within attention and
            MLP are LayerNorm.
        query_key_norm: Whether a norm follows each query and each key.
        mlp_scale: Whether the MLP is scaled as well.
        output_scale: Factor of the first kernels of the outputs of attention
            and MLP.
        drop_path_rate: Probability with which an example skips each of the
            two residual branches in training (stochastic depth).
        remat: Whether the block recomputes its activations in the backward
            pass: less memory, a third more work.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        Checked against `Block` and `ParallelScalingBlock` of
        timm/models/vision_transformer.py, and `EvaBlock` of
        timm/models/eva.py.
    """

    SHARDED = {
        **TransformerBlock.SHARDED,
        "MultiHeadDotProductAttention_0/q_bias": (("model",), "hidden_size", 1),
        "MultiHeadDotProductAttention_0/v_bias": (("model",), "hidden_size", 1),
        "MlpBlock_0/Gate/kernel": ((None, "model"), "mlp_dim", 1),
        "MlpBlock_0/Gate/bias": (("model",), "mlp_dim", 1),
    }

    @checked
    def __init__(
        self,
        num_heads: Count,
        mlp_dim: Count,
        activation: Activation = "gelu",
        layer_norm_epsilon: Epsilon = 1e-6,
        layer_scale: Rate = 0.0,
        qkv_bias: Bias = "qkv",
        grid_size: tuple[Count, Count] | None = None,
        rotary: Rotary | None = None,
        relative_positions: bool = False,
        relative_dim: Natural = 0,
        num_kv_heads: Natural = 0,
        attention_norm: bool = False,
        mlp_norm: bool = False,
        post_norm: bool = False,
        parallel: bool = False,
        norm: Norm = "layer",
        query_key_norm: bool = False,
        mlp_scale: bool = True,
        output_scale: Positive = 1.0,
        drop_path_rate: Rate = 0.0,
        remat: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        arguments.check_post_norm(post_norm, parallel)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_scale = layer_scale
        self.qkv_bias = qkv_bias
        self.grid_size = None if grid_size is None else tuple(grid_size)
        self.rotary = None if rotary is None else dict(rotary)
        self.relative_positions = relative_positions
        self.relative_dim = relative_dim
        self.num_kv_heads = num_kv_heads
        self.attention_norm = attention_norm
        self.mlp_norm = mlp_norm
        self.post_norm = post_norm
        self.parallel = parallel
        self.norm = norm
        self.query_key_norm = query_key_norm
        self.mlp_scale = mlp_scale
        self.output_scale = output_scale
        self.drop_path_rate = drop_path_rate
        self.remat = remat

    def build(self, input_shape):
        epsilon = self.layer_norm_epsilon

        def built(layer_class, *args, **kwargs):
            layer = self.make(layer_class, *args, **kwargs)
            layer.build(input_shape)
            return layer

        def norm(name):
            return built(NORMS[self.norm], epsilon=epsilon, name=name)

        def layer_scale(name):
            if not self.layer_scale:
                return None
            return built(LayerScale, self.layer_scale, name=name)

        # The sublayers have the names of those of `TransformerBlock`.
        self.norm_0 = norm("LayerNorm_0")
        self.attention = built(
            EncoderAttention,
            self.num_heads,
            qkv_bias=self.qkv_bias,
            grid_size=self.grid_size,
            rotary=self.rotary,
            relative_positions=self.relative_positions,
            relative_dim=self.relative_dim,
            num_kv_heads=self.num_kv_heads,
            norm_epsilon=epsilon if self.attention_norm else None,
            query_key_norm=self.norm if self.query_key_norm else "none",
            query_key_epsilon=epsilon,
            output_scale=self.output_scale,
            name="MultiHeadDotProductAttention_0",
        )
        self.scale_0 = layer_scale("LayerScale_0")
        self.norm_1 = None if self.parallel else norm("LayerNorm_1")
        self.mlp = built(
            EncoderMlp,
            self.mlp_dim,
            activation=self.activation,
            norm_epsilon=epsilon if self.mlp_norm else None,
            output_scale=self.output_scale,
            name="MlpBlock_0",
        )
        self.scale_1 = None
        if self.mlp_scale and not self.parallel:
            self.scale_1 = layer_scale("LayerScale_1")
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def _forward(self, inputs, training):
        if self.parallel:
            x = self._branch(self.norm_0, self._both, self.scale_0, inputs)
            return inputs + self.drop_path(x, training=training)
        x = self._branch(self.norm_0, self.attention, self.scale_0, inputs)
        z = inputs + self.drop_path(x, training=training)
        x = self._branch(self.norm_1, self.mlp, self.scale_1, z)
        return z + self.drop_path(x, training=training)

    def _both(self, x):
        return self.attention(x) + self.mlp(x)

    def _branch(self, norm, layer, scale, x):
        x = norm(layer(x)) if self.post_norm else layer(norm(x))
        return x if scale is None else scale(x)

    def attention_weights(self, inputs):
        """Returns the block's attention on its `inputs`, `[B, A, T, T]`."""
        x = inputs if self.post_norm else self.norm_0(inputs)
        return self.attention.attention_weights(x)

    def compute_output_shape(self, input_shape):
        return input_shape
