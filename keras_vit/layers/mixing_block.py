"""The base class of blocks that mix cells of a map, then channels."""

import keras

from keras_vit._arguments import Positive, checked
from keras_vit.layers.base import ResidualBlock
from keras_vit.layers.keras_layers import Dense
from keras_vit.ops.linear import gelu


class MixingBlock(ResidualBlock):
    """Mixes cells, then channels, each in a residual branch after a norm.

        u = x + mix(norm(x))
        y = u + Dense(gelu(Dense(norm(u))))

    A subclass creates its layers in `build_mixer(input_shape)` and applies them
    in `mix(x, training)`. It may have its own `norm(name, shape)`, a LayerNorm
    here, and its own `initializers(fan_in)`, here a normal distribution of
    0.02 for kernels and zeros for biases.

    Args:
        mlp_ratio: Width of the MLP's hidden layer divided by that of the map.
        **kwargs: Arguments of `ResidualBlock`.
    """

    @checked
    def __init__(self, mlp_ratio: Positive = 4, **kwargs):
        super().__init__(**kwargs)
        self.mlp_ratio = mlp_ratio

    def build(self, input_shape):
        width = input_shape[-1]
        mlp_dim = int(self.mlp_ratio * width)
        self.norm1 = self.norm("norm1", input_shape)
        self.norm2 = self.norm("norm2", input_shape)
        self.build_mixer(input_shape)
        self.fc1 = self.make_dense(mlp_dim, width, "fc1", activation=gelu)
        self.fc2 = self.make_dense(width, mlp_dim, "fc2")
        self.drop_path = self.make_drop_path(self.drop_path_rate, 4)

    def norm(self, name: str, shape: tuple) -> keras.layers.Layer:
        """Return a norm of maps: a LayerNorm with PyTorch's epsilon."""
        return self.make_norm(name, shape)

    def make_dense(self, units: int, fan_in: int, name: str, **kwargs) -> Dense:
        """Return a dense layer of `fan_in` channels, built."""
        return self.make(
            Dense,
            units,
            **self.initializers(fan_in),
            name=name,
            shape=(None, None, None, fan_in),
            **kwargs,
        )

    def initializers(self, fan_in: int) -> dict:
        """Return the initialisers of a dense layer with `fan_in` inputs."""
        return dict(
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.02)
        )

    def _forward(self, x, training):
        y = self.mix(self.norm1(x, training=training), training)
        x = x + self.drop_path(y, training=training)
        y = self.fc1(self.norm2(x, training=training))
        return x + self.drop_path(self.fc2(y), training=training)
