"""The MLP of DeiT, which several families after it use."""

import keras

from keras_vit._arguments import Count, Positive, Rate, checked
from keras_vit.layers.dense import Dense
from keras_vit.layers.mlp_block import Activation, MlpBlock


def dense(layer, units: int, name: str, **kwargs) -> Dense:
    """Return a dense sublayer with DeiT's initialisers.

    PyTorch's `trunc_normal_(std=0.02)`, of the authors, cuts at -2 and 2, a
    hundred deviations from 0; Keras' would cut at two deviations.

    Args:
        layer: The composite layer that makes it.
        units: Width of its output.
        name: Its name.
        **kwargs: Other arguments of `keras.layers.Dense`.
    """
    initializer = keras.initializers.RandomNormal(stddev=0.02)
    return layer.make(
        Dense,
        units,
        kernel_initializer=initializer,
        name=name,
        **kwargs,
    )


def sharded(name: str) -> dict:
    """Return how devices divide a block's MLP; see `TransformerBlock.SHARDED`.

    Args:
        name: Name of the MLP in the block, whose argument is `mlp_dim`.
    """
    return {
        f"{name}/Dense_0/kernel": ((None, "model"), "mlp_dim", 1),
        f"{name}/Dense_0/bias": (("model",), "mlp_dim", 1),
        f"{name}/Dense_1/kernel": (("model", None), "mlp_dim", 1),
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
