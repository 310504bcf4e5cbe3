"""Patch embedding from windows of several sizes."""

import keras
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.layers import arguments, bicubic
from keras_vit.layers.initializers import uniform
from keras_vit.ops.convolution import conv


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiScaleEmbedding(keras.layers.Layer):
    """Embeds windows of several sizes around each patch, and adds the results.

        y = sum_k conv_k(x) + bias,   kernel k x k, stride P, (k - P) / 2 zeros

    A map whose size is not a multiple of the patch is first resized to the next
    multiple.

    Args:
        patch_size: Pixels P from one window to the next.
        hidden_size: Width D of the output.
        kernel_sizes: Pixels per side of the windows; each is P plus an even
            number.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, ceil(H / P), ceil(W / P), D]`

    Reference:
        Tatsunami and Taki 2021, section 3.3; checked against
        `CrossScaleMLPEmbedding` in libs/modules.py.
    """

    @checked
    def __init__(
        self,
        patch_size: Count,
        hidden_size: Count,
        kernel_sizes: tuple[Count, ...],
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.hidden_size = hidden_size
        self.kernel_sizes = tuple(kernel_sizes)

    def build(self, input_shape):
        channels = input_shape[-1]
        pixels = sum(k * k for k in self.kernel_sizes)
        # The kernels of all scales, one after the other, pixel by pixel.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(pixels, channels, self.hidden_size),
            initializer=uniform(pixels * channels),
        )
        self.bias = self.add_weight(
            name="bias",
            shape=(self.hidden_size,),
            initializer=uniform(pixels * channels),
        )

    def call(self, inputs):
        channels, patch = self.kernel.shape[1], self.patch_size
        inputs = arguments.check_shape(self, inputs, (None, None, channels))
        size = ops.shape(inputs)[1:3]
        whole = tuple((n + patch - 1) // patch * patch for n in size)
        if not bicubic.is_size(size, whole):
            inputs = bicubic.resize_bicubic(inputs, whole)
        kernel, outputs, start = ops.cast(self.kernel, inputs.dtype), [], 0
        for k in self.kernel_sizes:
            pad = ((k - patch) // 2,) * 2
            outputs.append(
                conv(
                    ops.pad(inputs, ((0, 0), pad, pad, (0, 0))),
                    ops.reshape(
                        kernel[start : start + k * k], (k, k, channels, -1)
                    ),
                    strides=patch,
                    padding="valid",
                )
            )
            start += k * k
        return sum(outputs) + ops.cast(self.bias, inputs.dtype)

    def compute_output_shape(self, input_shape):
        batch_size, height, width, _ = input_shape
        height, width = (
            None if n is None else -(-n // self.patch_size)
            for n in (height, width)
        )
        return (batch_size, height, width, self.hidden_size)
