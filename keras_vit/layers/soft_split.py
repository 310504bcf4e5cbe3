"""The overlapping windows of Tokens-to-Token ViT."""

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, checked
from keras_vit.layers import arguments


@keras.saving.register_keras_serializable(package="keras_vit")
class SoftSplit(keras.layers.Layer):
    """Collects the values of the window around each cell (PyTorch's `Unfold`).

    The values are ordered by row, column and channel of the window; those of
    PyTorch by channel first.

    Args:
        kernel_size: Side k of a window.
        stride: Cells between windows.
        padding: Zeros on each side of the map.

    Input shape: `[B, H, W, C]`
    Output shape: `[B, H', W', k^2 C]`

    Reference:
        Yuan et al. 2021, "Tokens-to-Token ViT" (2101.11986), section 3.1.
    """

    @checked
    def __init__(
        self,
        kernel_size: Count,
        stride: Count = 2,
        padding: Natural = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def call(self, inputs):
        inputs = arguments.check_shape(self, inputs, (None, None, None))
        _, rows, columns, _ = self.compute_output_shape(inputs.shape)
        pad, step, side = (self.padding,) * 2, self.stride, self.kernel_size
        x = ops.pad(inputs, ((0, 0), pad, pad, (0, 0)))
        # Each is a value of the window, of all windows.
        values = [
            x[:, i : i + step * rows : step, j : j + step * columns : step]
            for i in range(side)
            for j in range(side)
        ]
        return ops.concatenate(
            [value[:, :rows, :columns] for value in values], axis=-1
        )

    def compute_output_shape(self, input_shape):
        batch_size, height, width, channels = input_shape
        if None in (height, width):
            raise ValueError(
                f"SoftSplit `{self.name}` needs a known height and width. "
                f"Received: shape {tuple(input_shape)}. Give `input_shape`."
            )
        rows, columns = (
            (n + 2 * self.padding - self.kernel_size) // self.stride + 1
            for n in (height, width)
        )
        return batch_size, rows, columns, self.kernel_size**2 * channels
