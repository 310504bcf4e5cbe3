"""A class token, and sinusoids of the positions."""

from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Pair, checked
from keras_vit.layers import arguments
from keras_vit.ops.precision import wide_dtype

Kind = Literal["sinusoid", "table"]


@keras.saving.register_keras_serializable(package="keras_vit")
class SinusoidPositions(keras.layers.Layer):
    """Puts the class token first and adds a fixed embedding of each position.

    Channel 2i of position t is sin(t / 10000^(2i / D)), channel 2i + 1 the
    cosine; position 0 is that of the class token.

    Args:
        grid_size: (height, width) of the grid of patches.
        kind: "sinusoid" computes the embeddings. "table" stores them, without
            training them, for weights that have others.

    Input shape: `[B, N, D]`, N = height x width of the grid.
    Output shape: `[B, N + 1, D]`

    Reference:
        Vaswani et al. 2017 (1706.03762), section 3.5; checked against
        `get_sinusoid_encoding` of yitu-opensource/T2T-ViT.
    """

    @checked
    def __init__(
        self,
        grid_size: Pair,
        kind: Kind = "sinusoid",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = arguments.as_pair(grid_size)
        self.kind = kind

    def build(self, input_shape):
        tokens, width = self._token_shape = tuple(input_shape[1:])
        self.cls_token = self.add_weight(
            (1, 1, width),
            keras.initializers.RandomNormal(stddev=0.02),
            name="cls_token",
        )
        dtype = wide_dtype(self.compute_dtype)
        self._table = sinusoids(tokens + 1, width).astype(dtype)
        if self.kind == "table":
            self.pos_embed = self.add_weight(
                (1, tokens + 1, width),
                lambda shape, dtype: ops.cast(self._table[None], dtype),
                name="pos_embed",
                trainable=False,
            )

    def call(self, inputs):
        inputs = arguments.check_shape(self, inputs, self._token_shape)
        shape = (ops.shape(inputs)[0], 1, inputs.shape[-1])
        token = ops.broadcast_to(ops.cast(self.cls_token, inputs.dtype), shape)
        x = ops.concatenate([token, inputs], axis=1)  # [B, N + 1, D]
        return x + ops.cast(self._positions(), inputs.dtype)

    def position_tables(self) -> dict:
        """Returns the embeddings of the patches, "" -> ([N, D], grid)."""
        return {"": (self._positions()[1:], self.grid_size)}

    def _positions(self):
        """Returns the embeddings, `[N + 1, D]`."""
        return self.pos_embed[0] if self.kind == "table" else self._table

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + 1, width)


def sinusoids(positions: int, width: int) -> np.ndarray:
    """Returns the embeddings of positions, `[positions, width]`."""
    exponents = 2 * (np.arange(width) // 2) / width
    angles = np.arange(positions)[:, None] / 10_000**exponents
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles
