"""The MLP of a Transformer block."""

import keras

from keras_vit._arguments import Count, Rate, checked
from keras_vit.layers import activations
from keras_vit.layers.composite import CompositeLayer
from keras_vit.layers.dense import Dense


@keras.saving.register_keras_serializable(package="keras_vit")
class MlpBlock(CompositeLayer):
    """Two dense layers with a GELU between: `Dense(gelu(Dense(x)))`.

    Dropout follows each of the two, as in the authors' code.

    Args:
        mlp_dim: Width of the hidden layer.
        dropout_rate: Share of activations set to zero in training.
        gelu_approximate: The tanh form of GELU (the authors' weights) or the
            exact one (weights trained in timm or Hugging Face).

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        Dosovitskiy et al. 2021, section 3.1; checked against `MlpBlock` in
        vit_jax/models_vit.py.
    """

    @checked
    def __init__(
        self,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        gelu_approximate: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.gelu_approximate = gelu_approximate

    def build(self, input_shape):
        def dense(units, fan_in, name, activation=None):
            layer = self.make(
                Dense,
                units,
                activation=activation,
                **self.initializers(fan_in),
                name=name,
            )
            layer.build((*input_shape[:-1], fan_in))
            return layer

        width = input_shape[-1]
        gelu = (
            activations.gelu_tanh if self.gelu_approximate else activations.gelu
        )
        self.dense_0 = dense(self.mlp_dim, width, "Dense_0", gelu)
        self.dense_1 = dense(width, self.mlp_dim, "Dense_1")
        self.dropout = self.make_dropout(self.dropout_rate)

    def initializers(self, fan_in: int) -> dict:
        """Returns the initialisers of a dense layer with `fan_in` inputs."""
        return dict(
            kernel_initializer="glorot_uniform",
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
        )

    def call(self, inputs, training=None):
        x = self.dense_0(inputs)
        x = self.dropout(x, training=training)
        x = self.dense_1(x)
        return self.dropout(x, training=training)

    def compute_output_shape(self, input_shape):
        return input_shape
