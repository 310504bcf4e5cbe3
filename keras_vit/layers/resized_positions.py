"""A class token, and positions from a table of any size."""

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Pair, checked
from keras_vit.layers import arguments


@keras.saving.register_keras_serializable(package="keras_vit")
class ResizedPositions(keras.layers.Layer):
    """Puts the class token first and adds positions from a table of any size.

    The table is resized to the grid on every call: bilinear, with half-pixel
    centres and without antialiasing. The class token has its own position.

    Args:
        grid_size: (height, width) of the grid of patches.
        table_size: (height, width) of the table.

    Input shape: `[B, N, D]`, N = height x width of the grid.
    Output shape: `[B, N + 1, D]`

    Reference:
        Melas-Kyriazi 2021 (2105.02723); checked against models/models.py of
        lukemelas/do-you-even-need-attention.
    """

    @checked
    def __init__(
        self,
        grid_size: Pair,
        table_size: Pair = 14,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = arguments.as_pair(grid_size)
        self.table_size = arguments.as_pair(table_size)

    def build(self, input_shape):
        tokens, width = self._token_shape = tuple(input_shape[1:])

        def weight(name, *shape):
            normal = keras.initializers.RandomNormal(stddev=0.02)
            return self.add_weight((*shape, width), normal, name=name)

        self.cls_token = weight("cls_token", 1, 1)
        self.pos_embed = weight("pos_embed", *self.table_size)
        self.cls_pos_embed = weight("cls_pos_embed", 1, 1)

    def call(self, inputs):
        inputs = arguments.check_shape(self, inputs, self._token_shape)
        x = inputs + ops.cast(self._positions(), inputs.dtype)
        token = ops.cast(self.cls_token + self.cls_pos_embed, inputs.dtype)
        shape = (ops.shape(inputs)[0], 1, inputs.shape[-1])
        return ops.concatenate([ops.broadcast_to(token, shape), x], axis=1)

    def position_tables(self) -> dict:
        """Returns the embeddings of the patches, "" -> ([N, D], grid)."""
        return {"": (self._positions(), self.grid_size)}

    def _positions(self):
        """Returns the positions of the patches, `[N, D]`."""
        table = ops.convert_to_tensor(self.pos_embed)
        if self.grid_size != self.table_size:
            # TensorFlow's operation computes in float32.
            rows, columns = (
                ops.cast(_bilinear(*sizes), table.dtype)
                for sizes in zip(self.table_size, self.grid_size, strict=True)
            )
            table = ops.einsum("ih,hwd->iwd", rows, table)
            table = ops.einsum("jw,iwd->ijd", columns, table)
        return ops.reshape(table, self._token_shape)

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + 1, width)


def _bilinear(n_in, n_out):
    """Returns the [n_out, n_in] matrix of bilinear resizing."""
    place = (np.arange(n_out)[:, None] + 0.5) * n_in / n_out - 0.5
    place = place.clip(0, n_in - 1)  # the border, repeated
    return np.maximum(1 - abs(place - np.arange(n_in)), 0)
