"""The patch embedding of RaftMLP, from windows of several sizes."""

import keras
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.layers.base import check_shape
from keras_vit.layers.keras_layers import uniform
from keras_vit.layers.std_conv import strided
from keras_vit.ops.convolution import conv
from keras_vit.ops.dtypes import wide_dtype


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
        inputs = check_shape(self, inputs, (None, None, channels))
        size = ops.shape(inputs)[1:3]
        whole = tuple((n + patch - 1) // patch * patch for n in size)
        if not is_size(size, whole):
            inputs = resize_bicubic(inputs, whole)
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
        size = strided(input_shape[1:3], self.patch_size)
        return (input_shape[0], *size, self.hidden_size)


def resize_bicubic(maps, size: tuple):
    """Resizes maps `[B, H, W, C]` to a (height, width), the same everywhere.

    Half-pixel centres, a = -0.75, no antialiasing, borders repeated: PyTorch's
    `interpolate(mode="bicubic")`. Each axis is a product with a matrix whose
    rows have four entries. Sizes may be unknown until the model is called.
    """
    dtype, shape = maps.dtype, ops.shape(maps)
    wide = wide_dtype(dtype)
    rows, columns = (
        ops.cast(_bicubic(n_in, n_out, wide), dtype)
        for n_in, n_out in zip(shape[1:3], size, strict=True)
    )
    maps = ops.einsum("ih,bhwc->biwc", rows, maps)
    return ops.einsum("jw,biwc->bijc", columns, maps)


def _bicubic(n_in, n_out, dtype):
    """Return the [n_out, n_in] matrix of cubic convolution (Keys 1981)."""
    scale = ops.cast(n_in, dtype) / ops.cast(n_out, dtype)
    position = (ops.arange(n_out, dtype=dtype) + 0.5) * scale - 0.5
    first = ops.floor(position)
    fraction = position - first
    inputs = ops.arange(n_in, dtype=dtype)
    a, matrix = -0.75, 0.0
    for tap in (-1, 0, 1, 2):
        t = ops.abs(fraction - tap)
        if tap in (0, 1):  # t <= 1
            weight = ((a + 2) * t - (a + 3)) * t * t + 1
        else:
            weight = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        tapped = ops.clip(first + tap, 0, inputs[-1])  # the border, repeated
        is_tapped = ops.cast(tapped[:, None] == inputs, dtype)
        matrix = matrix + weight[:, None] * is_tapped
    return matrix


def is_size(size, other):
    """Whether two sizes are known to be equal."""
    return all(
        isinstance(n, int) and n == m for n, m in zip(size, other, strict=True)
    )
