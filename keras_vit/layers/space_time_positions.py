"""The class token and the positions of a video's tokens."""

from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Triple, checked
from keras_vit.layers import arguments

Kind = Literal["separate", "joint", "none"]


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
        self.grid_size = arguments.as_triple(grid_size)
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
        inputs = arguments.check_shape(self, inputs, self._token_shape)
        x, dtype = inputs, inputs.dtype
        if self.class_token:
            shape = (ops.shape(x)[0], 1, x.shape[-1])
            token = ops.broadcast_to(ops.cast(self.token, dtype), shape)
            x = ops.concatenate([token, x], axis=1)
        if self.kind == "none":
            return x
        return x + ops.cast(self._positions(), dtype)

    def position_tables(self) -> dict:
        """Returns spatial and temporal embeddings, name -> ([N, D], grid)."""
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
        """Returns the sum of all embeddings of each token."""
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
