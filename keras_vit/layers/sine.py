"""Fixed positions: sines and cosines (Vaswani et al. 2017, section 3.5)."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.embedding import AddPositionEmbs


def sines_2d(
    grid_size: tuple[int, int],
    width: int,
    prefix: int,
    last: bool = False,
) -> np.ndarray:
    """Return the table of positions on a grid, `[1, prefix + N, D]`.

    The first half of a row is of its column on the grid, the second of its
    row: the sines of all frequencies, then the cosines. Tokens before the
    patches have zeros.

    Args:
        grid_size: (rows, columns) of the patches.
        width: Width D of the tokens.
        prefix: Number of tokens before the patches.
        last: Whether the slowest frequency is 1 / 10000 (big_vision), not the
            one before it (MAE).

    Raises:
        ValueError: If D is no multiple of 4.

    Reference:
        He et al. 2021 (2111.06377), Beyer et al. 2022 (2205.01580); checked
        against ViTMAE of transformers and big_vision/models/vit.py.
    """
    if width % 4:
        raise ValueError(
            "Positions of sines and cosines on two axes need a width of the "
            f"tokens that is a multiple of 4. Received: width={width}"
        )
    powers = np.linspace(0, 1, width // 4, endpoint=last)
    frequencies = 10_000.0**-powers
    y, x = np.divmod(np.arange(np.prod(grid_size)), grid_size[1])
    table = np.concatenate(
        [f(axis[:, None] * frequencies) for axis in (x, y) for f in _WAVES],
        axis=1,
    )
    return np.pad(table, ((prefix, 0), (0, 0)))[None]


_WAVES = (np.sin, np.cos)


def sines_1d(tokens: int, width: int) -> np.ndarray:
    """Return the table of positions in a sequence, `[1, T, D]`.

    Sines and cosines take turns.

    Args:
        tokens: Number T of tokens.
        width: Their width D.
    """
    pairs = np.arange(width) // 2 * 2
    angles = np.arange(tokens)[:, None] / 10_000.0 ** (pairs / width)
    table = np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))
    return table[None]


@keras.saving.register_keras_serializable(package="keras_vit")
class FixedPositionEmbs(AddPositionEmbs):
    """Adds MAE's sines and cosines, which are not trained, to the patches.

    They are variables, since files have them. The arguments are those of
    `AddPositionEmbs`, with kind="learned_1d".

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        He et al. 2021 (2111.06377).
    """

    def _table(self, name, shape):
        table = sines_2d(self.grid_size, shape[-1], int(self.class_token))
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=lambda shape, dtype: ops.convert_to_tensor(
                table, dtype
            ),
            trainable=False,
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class SequencePositions(keras.layers.Layer):
    """Adds the sines and cosines of `sines_1d`; it has no variables.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        Tong et al. 2022 (2203.12602); checked against VideoMAE of
        transformers.
    """

    def build(self, input_shape):
        self._table = sines_1d(*input_shape[1:]).astype("float32")

    def call(self, inputs):
        return inputs + ops.convert_to_tensor(self._table, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape
