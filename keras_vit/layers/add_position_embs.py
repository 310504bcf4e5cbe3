"""Position embeddings that are added to the tokens (appendix D.4, Table 8)."""

from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Natural, Pair, as_pair, checked
from keras_vit.ops.shapes import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs(keras.layers.Layer):
    """Adds a learned embedding of its position to each token.

    `learned_1d` is one table over the tokens in raster order. `learned_2d` is
    a table of D/2 values over rows and another over columns; the embedding of a
    patch concatenates those of its row and its column, and the class token,
    which has no position, has a vector of its own. The grid is stored as
    (height, width), since a 4x4 and a 2x8 grid have the same number of tokens
    but are different grids.

    The paper's relative embeddings are not added to the tokens. They are a bias
    on the attention logits: `MultiHeadSelfAttention(relative_positions=True)`.

    Args:
        grid_size: Patches per side, or (height, width) of the grid of patches.
        class_token: Whether a class token precedes the patches; or the number
            of tokens that do, such as registers.
        kind: "learned_1d" (the paper's choice) or "learned_2d".

    Input shape: `[B, T, D]`, T = height x width, + 1 with a class token.
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If `kind` is unknown, if T does not fit the grid, or if
            D is odd with "learned_2d".

    Reference:
        Dosovitskiy et al. 2021, equation 1 and Table 8; checked against
        `AddPositionEmbs` in vit_jax/models_vit.py.
    """

    @checked
    def __init__(
        self,
        grid_size: Pair,
        class_token: bool | Natural = True,
        kind: Literal["learned_1d", "learned_2d"] = "learned_1d",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = as_pair(grid_size)
        self.class_token = class_token
        self.kind = kind

    def build(self, input_shape):
        tokens, width = self._token_shape = tuple(input_shape[1:])
        rows, columns = self.grid_size
        expected = rows * columns + int(self.class_token)
        if tokens != expected:
            raise ValueError(
                f"AddPositionEmbs `{self.name}` expects {expected} tokens: a "
                f"grid of {rows}x{columns} patches"
                f"{' and a class token' if self.class_token else ''}. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        if self.kind == "learned_1d":
            self.pos_embedding = self._table(
                "pos_embedding", (1, tokens, width)
            )
            return
        if width % 2:
            raise ValueError(
                f"AddPositionEmbs `{self.name}` with kind='learned_2d' needs "
                "an even token width, half for rows and half for columns. "
                f"Received: width={width}"
            )
        self.row_embedding = self._table("row_embedding", (rows, width // 2))
        self.column_embedding = self._table(
            "column_embedding", (columns, width // 2)
        )
        if self.class_token:
            self.class_embedding = self._table("class_embedding", (1, width))

    def _table(self, name, shape):
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, inputs):
        # Otherwise broadcasting would turn one token into many.
        inputs = check_shape(self, inputs, self._token_shape)
        return inputs + ops.cast(self._positions(), inputs.dtype)

    def position_tables(self) -> dict:
        """Return the embeddings of the patches, "" -> ([N, D], grid)."""
        first = int(self.class_token)
        table = ops.reshape(self._positions(), self._token_shape)
        return {"": (table[first:], self.grid_size)}

    def _positions(self):
        """Return what is added to the tokens, `[1, T, D]` or `[T, D]`."""
        if self.kind == "learned_1d":
            return self.pos_embedding
        rows, columns = self.grid_size
        table = ops.concatenate(
            [
                ops.repeat(self.row_embedding, columns, axis=0),
                ops.tile(self.column_embedding, (rows, 1)),
            ],
            axis=-1,
        )  # [N, D]
        if self.class_token:
            table = ops.concatenate([self.class_embedding, table], axis=0)
        return table

    def compute_output_shape(self, input_shape):
        return input_shape
