"""Self-attention with a bias for the distance of two patches."""

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Natural, NotNegative, checked
from keras_vit.layers.keras_layers import Dense
from keras_vit.layers.multi_head_self_attention import MultiHeadSelfAttention
from keras_vit.ops.dtypes import at_least_float32, constant


def distances(grid: tuple[int, int]) -> np.ndarray:
    """Return the row of a table of distances for each pair, `[N, N]`.

    The table has the rows of [-(H - 1), H - 1] x [-(W - 1), W - 1].

    Args:
        grid: (rows, columns) of the patches, H and W.
    """
    rows, columns = grid
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"))
    places = places.reshape(2, -1)
    across = places[:, :, None] - places[:, None]  # [2, N, N]
    index = (across[0] + rows - 1) * (2 * columns - 1)
    return index + across[1] + columns - 1


def with_class_token(grid: tuple[int, int]) -> np.ndarray:
    """Return `distances` of a class token and patches, `[N + 1, N + 1]`.

    The last three rows of the table are those of the class token: to patches,
    from patches, to itself.
    """
    rows, columns = grid
    last = (2 * rows - 1) * (2 * columns - 1)
    index = np.pad(distances(grid), ((1, 0), (1, 0)))
    index[0, :], index[:, 0], index[0, 0] = last, last + 1, last + 2
    return index


def log_distances(grid: tuple[int, int]) -> np.ndarray:
    """Return sign(d) log(1 + |d|) of each row of the table, on both axes."""
    rows, columns = (np.arange(1.0 - n, n) for n in grid)
    table = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    logs = np.sign(table) * np.log1p(np.abs(table))
    return logs.reshape(-1, 2).astype("float32")


def local_table(
    grid: tuple[int, int], num_heads: int, strength: float
) -> np.ndarray:
    """Return a table of biases that makes attention local, `[R, A]`.

    Head a attends to the patch at its own displacement D_a: the bias of a patch
    at distance d is -strength * |d - D_a|^2, so that a block begins as a
    convolution. The displacements are the A shortest but 0, since the residual
    branch carries the patch itself; 8 heads are a kernel of 3 x 3. The last
    three rows are those of a class token, to which patches attend as little as
    to a patch two away.

    Args:
        grid: (rows, columns) of the patches.
        num_heads: Number of heads A.
        strength: Locality strength, alpha in the paper.

    Reference:
        d'Ascoli et al. 2021, "ConViT" (2103.10697), section 3,
        whose displacements are a square kernel with its centre.
    """
    rows, columns = (np.arange(1.0 - n, n) for n in grid)
    places = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    places = places.reshape(-1, 1, 2)  # in the order of `distances`
    side = range(-num_heads, num_heads + 1)
    near = sorted(
        ((y, x) for y in side for x in side if (y, x) != (0, 0)),
        key=lambda at: (at[0] ** 2 + at[1] ** 2, at),
    )
    across = places + near[:num_heads]  # key - query is -place
    squares = np.sum(np.square(across), axis=-1)
    of_class_token = np.zeros((3, num_heads))
    of_class_token[1] = 4
    return -strength * np.concatenate([squares, of_class_token])


@keras.saving.register_keras_serializable(package="keras_vit")
class BEiTAttention(MultiHeadSelfAttention):
    """Self-attention whose scores have a bias by the distance of patches.

    Each head has its own, which is learned (BEiT), or computed by an MLP (Liu
    et al. 2022, 2111.09883).

    Args:
        num_heads: Number of heads A; divides the token width D.
        grid_size: (rows, columns) of the patches, which are the last tokens.
        relative_dim: Hidden units of the MLP, whose bias is 0 for other tokens
            than patches; 0 for a learned table, of patches and a class token
            before them, if there is one.
        locality: Strength of the first values of a table; see `local_table`.
        **kwargs: Further arguments of `MultiHeadSelfAttention`.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If more tokens than one precede the patches of a table, or
            an MLP is given a locality.

    Reference:
        Checked against `Attention` in timm/models/beit.py and `RelPosMlp` in
        timm/layers/pos_embed_rel.py.
    """

    adds_to_scores = True

    @checked
    def __init__(
        self,
        num_heads: Count,
        grid_size: tuple[Count, Count],
        relative_dim: Natural = 0,
        locality: NotNegative = 0.0,
        **kwargs,
    ):
        if relative_dim and locality:
            raise ValueError(
                "`locality` must be 0 with an MLP, which has no table. "
                f"Received: relative_dim={relative_dim}, locality={locality}"
            )
        super().__init__(num_heads, **kwargs)
        rows, columns = grid_size
        self.grid_size = (rows, columns)
        self.relative_dim = relative_dim
        self.locality = locality

    def build(self, input_shape):
        super().build(input_shape)
        self._token_shape = tuple(input_shape[1:])
        self._sequence_length = input_shape[1]
        if self.relative_dim:
            self._build_mlp()
        else:
            self._build_table(input_shape[1])

    def _build_mlp(self):
        self._distances = distances(self.grid_size)
        self._logs = log_distances(self.grid_size)
        self.relative_0, self.relative_1 = (
            self.make(
                Dense,
                units,
                activation=function,
                kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
                name=name,
                shape=(None, fan_in),
            )
            for units, fan_in, function, name in (
                (self.relative_dim, 2, "relu", "relative_0"),
                (self.num_heads, self.relative_dim, None, "relative_1"),
            )
        )

    def _build_table(self, tokens):
        rows, columns = self.grid_size
        before = tokens - rows * columns
        if before not in (0, 1):
            raise ValueError(
                "`relative_dim` must be positive if more than a class token "
                f"precedes the patches. Received: {tokens} tokens, of a grid "
                f"of {self.grid_size}"
            )
        self._distances = (distances, with_class_token)[before](self.grid_size)
        num_rows = (2 * rows - 1) * (2 * columns - 1) + 3 * before
        self.relative_bias = self.add_weight(
            name="relative_bias",
            shape=(num_rows, self.num_heads),
            initializer=self._first_table,
        )

    def _first_table(self, shape, dtype):
        table = local_table(self.grid_size, self.num_heads, self.locality)
        return ops.cast(table[: shape[0]], dtype)

    def _scores(self, query, key):
        logits = at_least_float32(super()._scores(query, key))
        return logits + self._bias(logits.dtype)

    def _bias(self, dtype):
        """Return the bias of the scores by distance, `[A, T, T]`."""
        if self.relative_dim:
            logs = constant(self._logs, self.compute_dtype)
            table = self.relative_1(self.relative_0(logs))
        else:
            table = self.relative_bias
        places = constant(self._distances.reshape(-1))
        bias = ops.take(ops.cast(table, dtype), places, axis=0)
        bias = ops.reshape(bias, (*self._distances.shape, self.num_heads))
        prefix = (self._sequence_length - len(self._distances), 0)
        return ops.pad(ops.transpose(bias, (2, 0, 1)), ((0, 0), prefix, prefix))
