"""The encoder block of equations 2 and 3."""

import keras

from keras_vit._arguments import Count, Epsilon, Rate, checked
from keras_vit.layers.block import Block
from keras_vit.layers.gradient_barrier import gradient_barrier
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp_block import MlpBlock
from keras_vit.layers.multi_head_self_attention import MultiHeadSelfAttention

_ATTENTION = "MultiHeadDotProductAttention_0"


@keras.saving.register_keras_serializable(package="keras_vit")
class TransformerBlock(Block):
    """A pre-norm Transformer encoder block.

        z' = z + MSA(LN(z))
        z  = z' + MLP(LN(z'))

    Args:
        num_heads: Number of attention heads; divides the token width D.
        mlp_dim: Width of the MLP's hidden layer.
        dropout_rate: Dropout after attention and after each dense layer of
            the MLP.
        attention_dropout_rate: Dropout of the attention weights.
        drop_path_rate: Probability with which an example skips each of the
            two residual branches in training (stochastic depth).
        gelu_approximate: The tanh form of GELU, or the exact one.
        layer_norm_epsilon: Added to the variance in LayerNorm.
        relative_positions: See `MultiHeadSelfAttention`.
        remat: Whether the block recomputes its activations in the backward
            pass: less memory, a third more work.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If D is no multiple of `num_heads`.

    Reference:
        Dosovitskiy et al. 2021, equations 2 and 3; checked against
        `Encoder1DBlock` in vit_jax/models_vit.py. Stochastic depth: Huang et
        al. 2016, as used by Steiner et al. 2021.
    """

    # How variables are divided among devices that share a block: the mesh axis
    # of each dimension, and the argument and the factor whose product is the
    # length of the divided dimension. Kernels that produce heads and hidden
    # units are divided by columns, kernels that consume them by rows, so that a
    # block needs only two sums over the devices (Shoeybi et al. 2019,
    # 1909.08053, section 3).
    SHARDED = {
        f"{_ATTENTION}/qkv/kernel": ((None, "model"), "hidden_size", 3),
        f"{_ATTENTION}/qkv/bias": (("model",), "hidden_size", 3),
        f"{_ATTENTION}/out/kernel": (("model", None), "hidden_size", 1),
        f"{_ATTENTION}/relative_embedding": (
            ("model", None, None),
            "num_heads",
            1,
        ),
        "MlpBlock_0/Dense_0/kernel": ((None, "model"), "mlp_dim", 1),
        "MlpBlock_0/Dense_0/bias": (("model",), "mlp_dim", 1),
        "MlpBlock_0/Dense_1/kernel": (("model", None), "mlp_dim", 1),
    }

    @checked
    def __init__(
        self,
        num_heads: Count,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        attention_dropout_rate: Rate = 0.0,
        drop_path_rate: Rate = 0.0,
        gelu_approximate: bool = True,
        layer_norm_epsilon: Epsilon = 1e-6,
        relative_positions: bool = False,
        remat: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.drop_path_rate = drop_path_rate
        self.gelu_approximate = gelu_approximate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.relative_positions = relative_positions
        self.remat = remat

    def build(self, input_shape):
        def layer_norm(name):
            return self.make(
                LayerNorm,
                epsilon=self.layer_norm_epsilon,
                name=name,
            )

        # The sublayers are named as in the authors' linen checkpoints.
        self.norm_0 = layer_norm("LayerNorm_0")
        self.attention = self.make(
            MultiHeadSelfAttention,
            self.num_heads,
            dropout_rate=self.attention_dropout_rate,
            relative_positions=self.relative_positions,
            name=_ATTENTION,
        )
        self.norm_1 = layer_norm("LayerNorm_1")
        self.mlp = self.make(
            MlpBlock,
            self.mlp_dim,
            dropout_rate=self.dropout_rate,
            gelu_approximate=self.gelu_approximate,
            name="MlpBlock_0",
        )
        for layer in (self.norm_0, self.attention, self.norm_1, self.mlp):
            layer.build(input_shape)
        self.dropout = self.make_dropout(self.dropout_rate)
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def _forward(self, inputs, training):
        x = self.attention(self.norm_0(inputs), training=training)
        x = self.dropout(x, training=training)
        z = gradient_barrier(inputs + self.drop_path(x, training=training))
        x = self.mlp(self.norm_1(z), training=training)
        return z + self.drop_path(x, training=training)

    def attention_weights(self, inputs):
        """Returns the block's attention on its `inputs`, `[B, A, T, T]`."""
        return self.attention.attention_weights(self.norm_0(inputs))

    def compute_output_shape(self, input_shape):
        return input_shape
