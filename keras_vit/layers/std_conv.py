"""Convolution with weight standardisation."""

from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Count, Rate, checked
from keras_vit.layers.base import check_shape
from keras_vit.ops.convolution import conv
from keras_vit.ops.dtypes import wide_dtype


@keras.saving.register_keras_serializable(package="keras_vit")
class StdConv2D(keras.layers.Layer):
    """A convolution without bias whose kernel is standardised.

        w' = (w - mean(w)) / (sqrt(var(w) + variance_epsilon) + epsilon)

    with mean and variance per output channel, over height, width
    and input channels.

    Args:
        filters: Number of output channels.
        kernel_size: Pixels per side of the kernel.
        strides: Pixels from one output to the next.
        epsilon: Added to the standard deviation, as the authors do.
        variance_epsilon: Added to the variance, as timm (1e-8) and BiT
            (1e-10) do instead.
        padding: "same" pads as TensorFlow does, on every backend;
            "symmetric" with (kernel_size - 1) / 2 zeros on each side, as BiT.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, ceil(H / strides), ceil(W / strides), filters]`

    Reference:
        Qiao et al. 2019 (1903.10520); checked against `StdConv` in
        vit_jax/models_resnet.py.
    """

    @checked
    def __init__(
        self,
        filters: Count,
        kernel_size: Count,
        strides: Count = 1,
        epsilon: Rate = 1e-5,
        variance_epsilon: Rate = 0.0,
        padding: Literal["same", "symmetric"] = "same",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if padding == "symmetric" and kernel_size % 2 == 0:
            raise ValueError(
                "`kernel_size` of StdConv2D must be odd with "
                f"padding='symmetric'. Received: kernel_size={kernel_size}"
            )
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.epsilon = epsilon
        self.variance_epsilon = variance_epsilon
        self.padding = padding

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(
                self.kernel_size,
                self.kernel_size,
                input_shape[-1],
                self.filters,
            ),
            initializer="lecun_normal",
            # Standardised in the variable's dtype; only the result is cast to
            # the compute dtype.
            autocast=False,
        )

    def call(self, inputs):
        channels = self.kernel.shape[2]
        inputs = check_shape(self, inputs, (None, None, channels))
        # float16 variables have too little range for statistics.
        dtype = wide_dtype(self.kernel.dtype)
        kernel = ops.cast(self.kernel, dtype)
        # Not in place: on PyTorch that would change the variable itself.
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        deviation = ops.sqrt(variance + self.variance_epsilon)
        kernel = kernel / (deviation + self.epsilon)
        padding = self.padding
        if padding == "symmetric":
            sides = (self.kernel_size // 2,) * 2
            inputs = ops.pad(inputs, ((0, 0), sides, sides, (0, 0)))
            padding = "valid"
        kernel = ops.cast(kernel, inputs.dtype)
        return conv(inputs, kernel, self.strides, padding)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "epsilon": self.epsilon,
            "variance_epsilon": self.variance_epsilon,
            "padding": self.padding,
        }

    def compute_output_shape(self, input_shape):
        size = strided(input_shape[1:3], self.strides)
        return (input_shape[0], *size, self.filters)


def strided(size: tuple, strides: int) -> tuple:
    """Return (height, width) of a map after a stride; None if unknown."""
    return tuple(n and -(-n // strides) for n in size)
