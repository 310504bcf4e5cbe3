"""The MLP of a Transformer block, and that of DeiT's initialisation."""

from typing import Literal

import keras

from keras_vit._arguments import Count, Positive, Rate, checked
from keras_vit.layers.base import CompositeLayer
from keras_vit.layers.keras_layers import Dense
from keras_vit.ops.linear import gelu, gelu_tanh, quick_gelu

ACTIVATIONS = dict(gelu=gelu, gelu_tanh=gelu_tanh, quick_gelu=quick_gelu)
Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "swiglu"]


@keras.saving.register_keras_serializable(package="keras_vit")
class MlpBlock(CompositeLayer):
    """Two dense layers with an activation, or a gate, between.

        y = Dense_1(f(Dense_0(x)))
        y = Dense_1(silu(Gate(x)) * Dense_0(x))     with "swiglu"

    Dropout follows the hidden units and the output, as in the authors' code.

    Args:
        mlp_dim: Width of the hidden layer.
        dropout_rate: Share of activations set to zero in training.
        activation: "gelu_tanh" (the authors' weights), "gelu" (weights trained
            in timm or Hugging Face), "quick_gelu" (x sigmoid(1.702 x), of
            OpenAI's CLIP) or "swiglu" (Shazeer 2020, 2002.05202).
        kernel_stddev: Standard deviation of the first kernels, which are
            normal, with biases of zero; None for those of the paper, Glorot's
            and 1e-6.
        output_stddev: That of the kernel of Dense_1; None for `kernel_stddev`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        Dosovitskiy et al. 2021, section 3.1; checked against `MlpBlock` in
        vit_jax/models_vit.py and `SwiGLU` in timm/layers/mlp.py.
    """

    @checked
    def __init__(
        self,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        activation: Activation = "gelu_tanh",
        kernel_stddev: Positive | None = None,
        output_stddev: Positive | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.activation = activation
        self.kernel_stddev = kernel_stddev
        self.output_stddev = output_stddev

    def build(self, input_shape):
        def dense(units, fan_in, name, stddev, activation=None):
            return self.make(
                Dense,
                units,
                activation=activation,
                **self.initializers(fan_in, stddev),
                name=name,
                shape=(*input_shape[:-1], fan_in),
            )

        width, stddev = input_shape[-1], self.kernel_stddev
        function = ACTIVATIONS.get(self.activation)
        self.dense_0 = dense(self.mlp_dim, width, "Dense_0", stddev, function)
        self.gate = None
        if self.activation == "swiglu":
            self.gate = dense(self.mlp_dim, width, "Gate", stddev)
        self._build_norm((*input_shape[:-1], self.mlp_dim))
        self.dense_1 = dense(
            width, self.mlp_dim, "Dense_1", self.output_stddev or stddev
        )
        self.dropout = self.make_dropout(self.dropout_rate)

    def _build_norm(self, shape):
        """Make a norm of the hidden units, which EVA-02 has."""

    def initializers(self, fan_in: int, stddev: float | None) -> dict:
        """Return the initialisers of a dense layer.

        Args:
            fan_in: Its number of inputs.
            stddev: See `kernel_stddev`.
        """
        if stddev is not None:
            normal = keras.initializers.RandomNormal(stddev=stddev)
            return dict(kernel_initializer=normal)
        return dict(
            kernel_initializer="glorot_uniform",
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
        )

    def call(self, inputs, training=None):
        x = self._hidden(inputs)
        x = self.dropout(x, training=training)
        x = self.dense_1(x)
        return self.dropout(x, training=training)

    def _hidden(self, inputs):
        x = self.dense_0(inputs)
        return x if self.gate is None else keras.ops.silu(self.gate(inputs)) * x

    def compute_output_shape(self, input_shape):
        return input_shape

    @classmethod
    def from_config(cls, config):
        """Return a layer; also of a config that version 0.2 wrote."""
        if "gelu_approximate" in config:
            config = dict(config)
            is_tanh = config.pop("gelu_approximate")
            config["activation"] = "gelu_tanh" if is_tanh else "gelu"
        return super().from_config(config)


def dense(layer, units: int, name: str, **kwargs) -> Dense:
    """Return a dense sublayer with DeiT's initialisers.

    PyTorch's `trunc_normal_(std=0.02)`, of the authors, cuts at -2 and 2, a
    hundred deviations from 0; Keras' would cut at two deviations.

    Args:
        layer: The composite layer that makes it.
        units: Width of its output.
        name: Its name.
        **kwargs: Other arguments of `CompositeLayer.make`, and of
            `keras.layers.Dense`.
    """
    normal = keras.initializers.RandomNormal(stddev=0.02)
    return layer.make(
        Dense, units, kernel_initializer=normal, name=name, **kwargs
    )


def sharded(name: str, argument: str = "mlp_dim") -> dict:
    """Return how devices divide a block's MLP; see `TransformerBlock.SHARDED`.

    Args:
        name: Name of the MLP in the block.
        argument: That of the block which is the width of its hidden layer.
    """
    return {
        f"{name}/Dense_0/kernel": ((None, "model"), argument, 1),
        f"{name}/Dense_0/bias": (("model",), argument, 1),
        f"{name}/Dense_1/kernel": (("model", None), argument, 1),
    }


@keras.saving.register_keras_serializable(package="keras_vit")
class DeiTMlp(MlpBlock):
    """The MLP of ViT with the exact GELU and the initialisers of DeiT.

    Kernels are normal with standard deviation 0.02, biases zero.

    Args:
        mlp_dim: Width of the hidden layer.
        dropout_rate: Share of activations set to zero in training.
        activation, kernel_stddev: See `MlpBlock`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        Touvron et al. 2021 (2012.12877); checked against `Mlp` in
        timm/layers/mlp.py.
    """

    @checked
    def __init__(
        self,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        activation: Activation = "gelu",
        kernel_stddev: Positive | None = 0.02,
        **kwargs,
    ):
        super().__init__(
            mlp_dim, dropout_rate, activation, kernel_stddev, **kwargs
        )
