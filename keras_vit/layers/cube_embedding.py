"""Cube embedding: a video becomes a sequence of linear projections."""

import math

import keras
from keras import ops

from keras_vit._arguments import Count, Triple, checked
from keras_vit.layers import arguments
from keras_vit.layers.initializers import uniform
from keras_vit.ops.convolution import conv


@keras.saving.register_keras_serializable(package="keras_vit")
class CubeEmbedding(keras.layers.Layer):
    """Projects cubes of pixels, which may overlap, to `hidden_size` values.

    A convolution over time and space. Along an axis where cubes overlap, zeros
    pad the video by half a kernel on both sides.

    Args:
        kernel_size: (frames, height, width) of a cube.
        strides: (frames, height, width) between cubes.
        hidden_size: Width D of a token.

    Input shape: `[B, T, H, W, C]`
    Output shape: `[B, N, D]`, cubes in the order of time, rows, columns.

    Raises:
        ValueError: If a length is unknown or too short for one cube.

    Reference:
        Fan et al. 2021, section 3.2; checked against `PatchEmbed` in
        slowfast/models/stem_helper.py.
    """

    @checked
    def __init__(
        self,
        kernel_size: Triple,
        strides: Triple,
        hidden_size: Count,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_size = arguments.as_triple(kernel_size)
        self.strides = arguments.as_triple(strides)
        self.hidden_size = hidden_size

    def build(self, input_shape):
        self._video_shape = tuple(input_shape[1:])
        self.grid_size = self._grid_size(input_shape)
        channels = input_shape[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, channels, self.hidden_size),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )
        fan_in = channels * math.prod(self.kernel_size)
        self.bias = self.add_weight(
            name="bias",
            shape=(self.hidden_size,),
            initializer=uniform(fan_in),
        )

    def call(self, inputs):
        inputs = arguments.check_shape(self, inputs, self._video_shape)
        pads = [(n, n) for n in self._padding()]
        x = ops.pad(inputs, [(0, 0), *pads, (0, 0)])
        x = conv(x, ops.cast(self.kernel, x.dtype), self.strides, "valid")
        x = ops.reshape(x, (-1, math.prod(self.grid_size), self.hidden_size))
        return x + ops.cast(self.bias, x.dtype)  # [B, N, D]

    def compute_output_shape(self, input_shape):
        tokens = math.prod(self._grid_size(input_shape))
        return (input_shape[0], tokens, self.hidden_size)

    def _padding(self):
        pairs = zip(self.kernel_size, self.strides, strict=True)
        return [size // 2 if size > stride else 0 for size, stride in pairs]

    def _grid_size(self, input_shape):
        """Returns the number of cubes along each axis."""
        size = tuple(input_shape[1:4])
        grid = None not in size and arguments.pooled_size(
            size, self.kernel_size, self.strides, self._padding()
        )
        if not grid or min(grid) < 1:
            raise ValueError(
                f"CubeEmbedding `{self.name}` needs a video whose frames, "
                "height and width are known and hold a cube, "
                f"{self.kernel_size}. Received: {size}. Choose another "
                "`input_shape`. Videos are channels-last, [B, T, H, W, C]."
            )
        return grid
