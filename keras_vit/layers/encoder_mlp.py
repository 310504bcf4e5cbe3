"""The MLP of an encoder block in the forms of ViTs after the paper."""

from typing import Literal

import keras

from keras_vit._arguments import Count, Epsilon, Positive, checked
from keras_vit.layers import activations
from keras_vit.layers.composite import CompositeLayer
from keras_vit.layers.dense import Dense

_FUNCTIONS = dict(
    gelu=activations.gelu,
    gelu_tanh=activations.gelu_tanh,
    quick_gelu=activations.quick_gelu,
)
Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "swiglu"]


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderMlp(CompositeLayer):
    """Two dense layers with an activation, or a gate, between.

        y = Dense_1(LN(f(Dense_0(x))))
        y = Dense_1(LN(silu(Gate(x)) * Dense_0(x)))     with "swiglu"

    where LN is absent unless `norm_epsilon` is given.

    Args:
        mlp_dim: Width of the hidden layer.
        activation: "gelu", "gelu_tanh", "quick_gelu" (x sigmoid(1.702 x), of
            OpenAI's CLIP) or "swiglu" (Shazeer 2020, 2002.05202).
        norm_epsilon: Epsilon of a LayerNorm over the hidden units; None
            without one.
        output_scale: Factor of the first kernel of Dense_1; those of the
            others are normal with standard deviation 0.02.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Raises:
        ValueError: If `activation` is unknown.
    """

    @checked
    def __init__(
        self,
        mlp_dim: Count,
        activation: Activation = "gelu",
        norm_epsilon: Epsilon | None = None,
        output_scale: Positive = 1.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.norm_epsilon = norm_epsilon
        self.output_scale = output_scale

    def build(self, input_shape):
        def dense(units, shape, name, activation=None, scale=1.0):
            layer = self.make(
                Dense,
                units,
                activation=activation,
                kernel_initializer=keras.initializers.RandomNormal(
                    stddev=0.02 * scale
                ),
                name=name,
            )
            layer.build(shape)
            return layer

        hidden = (*input_shape[:-1], self.mlp_dim)
        self.dense_0 = dense(
            self.mlp_dim,
            input_shape,
            "Dense_0",
            _FUNCTIONS.get(self.activation),
        )
        self.gate = None
        if self.activation == "swiglu":
            self.gate = dense(self.mlp_dim, input_shape, "Gate")
        self.norm = None
        if self.norm_epsilon is not None:
            self.norm = self.make(
                keras.layers.LayerNormalization,
                epsilon=self.norm_epsilon,
                name="norm",
            )
            self.norm.build(hidden)
        self.dense_1 = dense(
            input_shape[-1], hidden, "Dense_1", scale=self.output_scale
        )

    def call(self, inputs):
        x = self.dense_0(inputs)
        if self.gate is not None:
            x = keras.ops.silu(self.gate(inputs)) * x
        if self.norm is not None:
            x = self.norm(x)
        return self.dense_1(x)

    def compute_output_shape(self, input_shape):
        return input_shape
