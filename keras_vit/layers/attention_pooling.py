"""Pooling by attention from one learned query."""

import keras
from keras import ops

from keras_vit._arguments import Count, Epsilon, checked
from keras_vit.layers.base import CompositeLayer, check_bias, check_shape
from keras_vit.layers.keras_layers import Dense
from keras_vit.layers.mlp_block import Activation, MlpBlock
from keras_vit.ops.attention import softmax


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(CompositeLayer):
    """Reads tokens by one learned query, the probe.

        a = Attention(probe, x, x)
        y = a + MLP(LN(a))

    Args:
        num_heads: Number of heads A; divides the token width D.
        mlp_dim: Width of the MLP's hidden layer.
        activation: See `MlpBlock`.
        layer_norm_epsilon: Added to the variance in LayerNorm.

    Call arguments:
        inputs: `[B, T, D]`
        bias: Added to the logits of the attention, `[B, 1, 1, T]`.

    Output shape: `[B, D]`

    Raises:
        ValueError: If D is no multiple of `num_heads`, or a bias has other axes
            or is no floating point.

    Reference:
        `MAPHead` of google-research/big_vision, after Zhai et al. 2022
        (2106.04560); checked against `AttentionPoolLatent` of timm.
    """

    @checked
    def __init__(
        self,
        num_heads: Count,
        mlp_dim: Count,
        activation: Activation = "gelu",
        layer_norm_epsilon: Epsilon = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, input_shape):
        width = input_shape[-1]
        if width % self.num_heads:
            raise ValueError(
                f"AttentionPooling `{self.name}` splits the token width "
                "(`hidden_size`) into `num_heads` equal parts. Received: "
                f"hidden_size={width}, num_heads={self.num_heads}"
            )
        self.head_size = width // self.num_heads

        def dense(units, shape, name):
            normal = keras.initializers.RandomNormal(stddev=0.02)
            return self.make(
                Dense, units, kernel_initializer=normal, name=name, shape=shape
            )

        self.probe = self.add_weight(
            name="probe",
            shape=(1, 1, width),
            initializer=keras.initializers.TruncatedNormal(stddev=width**-0.5),
        )
        one = (None, 1, width)
        self.query = dense(width, one, "query")
        self.key_value = dense(2 * width, input_shape, "key_value")
        self.out = dense(width, one, "out")
        self.norm = self.make_norm("LayerNorm_0", one, self.layer_norm_epsilon)
        self.mlp = self.make(
            MlpBlock,
            self.mlp_dim,
            activation=self.activation,
            kernel_stddev=0.02,
            name="MlpBlock_0",
            shape=one,
        )

    def call(self, inputs, bias=None):
        if bias is not None:
            check_bias(self, bias)
        weights, value = self._attend(inputs, bias)
        x = ops.matmul(ops.cast(weights, value.dtype), value)  # [B, A, 1, E]
        x = ops.reshape(x, (-1, 1, self.num_heads * self.head_size))
        x = self.out(x)
        x = x + self.mlp(self.norm(x), training=False)  # without dropout
        return x[:, 0]

    def attention_weights(self, inputs):
        """Return how the probe attends to the tokens, `[B, A, 1, T]`."""
        return self._attend(inputs)[0]

    def _attend(self, inputs, bias=None):
        heads, size = self.num_heads, self.head_size
        width = heads * size
        inputs = check_shape(self, inputs, (None, width))
        tokens = ops.shape(inputs)[1]
        key_value = self.key_value(inputs)
        key_value = ops.reshape(key_value, (-1, tokens, 2, heads, size))
        key_value = ops.transpose(key_value, (2, 0, 3, 1, 4))
        probe = ops.cast(self.probe, key_value.dtype)
        query = ops.reshape(self.query(probe), (1, heads, 1, size))
        query = query * size**-0.5
        logits = ops.matmul(query, ops.transpose(key_value[0], (0, 1, 3, 2)))
        if bias is not None:
            logits = logits + ops.cast(bias, logits.dtype)
        return softmax(logits), key_value[1]

    def compute_output_shape(self, inputs_shape, bias_shape=None):
        return (inputs_shape[0], inputs_shape[-1])
