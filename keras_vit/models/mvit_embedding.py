"""The tokens of MViT: embedded cubes of a video, a class token, positions."""

import math
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Count, Triple, as_triple, checked
from keras_vit.layers.base import check_shape
from keras_vit.layers.embedding import put_first
from keras_vit.layers.keras_layers import uniform
from keras_vit.models.mvit_pooling import pooled_size
from keras_vit.ops.convolution import conv

Kind = Literal["separate", "joint", "none"]


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
        self, kernel_size: Triple, strides: Triple, hidden_size: Count, **kwargs
    ):
        super().__init__(**kwargs)
        self.kernel_size = as_triple(kernel_size)
        self.strides = as_triple(strides)
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
            name="bias", shape=(self.hidden_size,), initializer=uniform(fan_in)
        )

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._video_shape)
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
        """Return the number of cubes along each axis."""
        size = tuple(input_shape[1:4])
        grid = None not in size and pooled_size(
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


@keras.saving.register_keras_serializable(package="keras_vit")
class SpaceTimePositions(keras.layers.Layer):
    """Puts the class token first and adds positions in space and time.

        separate:  z_(t,s) = x_(t,s) + spatial_s + temporal_t,
                   z_class = token + class
        joint:     z = [token; x] + table

    Args:
        grid_size: (T, H, W) of the tokens.
        kind: "separate", "joint" or "none".
        class_token: Whether there is a class token.

    Input shape: `[B, N, D]`, N = T x H x W in raster order.
    Output shape: `[B, N + 1, D]`; `[B, N, D]` without a class token.

    Reference:
        Fan et al. 2021, section 4.3 ("separate space-time positional
        embeddings"); checked against `MViT` in
        slowfast/models/video_model_builder.py.
    """

    @checked
    def __init__(
        self,
        grid_size: Triple,
        kind: Kind = "separate",
        class_token: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = as_triple(grid_size)
        self.kind = kind
        self.class_token = class_token

    def build(self, input_shape):
        frames, height, width = self.grid_size
        tokens = frames * height * width
        self._token_shape = (tokens, input_shape[-1])

        def table(name, rows):
            return self.add_weight(
                name=name,
                shape=(1, rows, input_shape[-1]),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

        if self.class_token:
            self.token = table("class_token", 1)
        if self.kind == "joint":
            self.joint = table("joint_pos", tokens + int(self.class_token))
        if self.kind == "separate":
            self.spatial = table("spatial_pos", height * width)
            self.temporal = table("temporal_pos", frames)
            if self.class_token:
                self.of_class = table("class_pos", 1)

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._token_shape)
        x = put_first(self.token, inputs) if self.class_token else inputs
        if self.kind == "none":
            return x
        return x + ops.cast(self._positions(), x.dtype)

    def position_tables(self) -> dict:
        """Return spatial and temporal embeddings, name -> ([N, D], grid)."""
        frames, *grid = self.grid_size
        if self.kind == "none":
            return {}
        if self.kind == "joint":
            grid = self.grid_size if frames > 1 else grid
            return {"": (self.joint[0, int(self.class_token) :], grid)}
        tables = {"": (self.spatial[0], tuple(grid))}
        if frames > 1:
            tables["temporal"] = (self.temporal[0], (frames,))
        return tables

    def _positions(self):
        """Return the sum of all embeddings of each token."""
        if self.kind == "joint":
            return self.joint
        spatial = ops.expand_dims(self.spatial, 1)  # [1, 1, H W, D]
        temporal = ops.expand_dims(self.temporal, 2)  # [1, T, 1, D]
        table = ops.reshape(spatial + temporal, (1, *self._token_shape))
        if self.class_token:
            table = ops.concatenate([self.of_class, table], axis=1)
        return table

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + int(self.class_token), width)
