"""From an image to tokens: patches, further tokens, positions (equation 1)."""

import math
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Natural, Pair, Rate, as_pair, checked
from keras_vit.layers.base import check_shape
from keras_vit.layers.keras_layers import uniform


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(keras.layers.Layer):
    """Cuts an image into patches and projects each to `hidden_size` values.

    Equation 1 without the class token: `[x_p^1 E; ...; x_p^N E] + bias`. It is
    the convolution whose stride equals its kernel, written as one matrix
    product over the flattened patches.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of a token.
        use_bias: Whether the projection has a bias.
        initializer: Of the kernel and the bias: "lecun_normal" and zeros
            (Flax), or for both "uniform" (PyTorch, `dense.uniform`), or
            "whitening" (`whitening`) and zeros.

    Input shape: `[B, H, W, C]`, H and W multiples of the patch.
    Output shape: `[B, N, D]`, patches in raster order.

    Raises:
        ValueError: If H or W is unknown or not a multiple of the patch, or if a
            later call has images of another shape.

    Reference:
        Dosovitskiy et al. 2021, section 3.1; checked against the layer
        `embedding` in vit_jax/models_vit.py.
    """

    @checked
    def __init__(
        self,
        patch_size: Pair,
        hidden_size: Count,
        use_bias: bool = True,
        initializer: Literal[
            "lecun_normal", "uniform", "whitening"
        ] = "lecun_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = as_pair(patch_size)
        self.hidden_size = hidden_size
        self.use_bias = use_bias
        self.initializer = initializer

    def build(self, input_shape):
        self._image_shape = tuple(input_shape[1:])
        self.grid_size = _grid_size(input_shape, self.patch_size, self.name)
        kernel, bias = "lecun_normal", "zeros"
        if self.initializer == "whitening":
            kernel = whitening
        if self.initializer == "uniform":
            fan_in = math.prod((*self.patch_size, input_shape[-1]))
            kernel, bias = uniform(fan_in), uniform(fan_in)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.patch_size, input_shape[-1], self.hidden_size),
            initializer=kernel,
        )
        self.bias = 0.0
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.hidden_size,), initializer=bias
            )

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._image_shape)
        (rows, columns), (height, width) = self.grid_size, self.patch_size
        channels = inputs.shape[-1]
        x = ops.reshape(inputs, (-1, rows, height, columns, width, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, rows * columns, height * width * channels))
        kernel = ops.reshape(self.kernel, (-1, self.hidden_size))
        return ops.matmul(x, kernel) + self.bias  # [B, N, D]

    def compute_output_shape(self, input_shape):
        rows, columns = _grid_size(input_shape, self.patch_size, self.name)
        return (input_shape[0], rows * columns, self.hidden_size)


def whitening(shape: tuple[int, ...], dtype=None):
    """Return random first values `[h, w, C, D]` of a kernel: patches are white.

    Pixels of photographs are so correlated that a patch is little but its mean
    colour, and the directions in which patches differ begin too small to be
    learned soon. The columns of the kernel are normal with the covariance
    (n K)^-1, where K is that of the n = h w C values of a patch in [-1, 1]:
    standard deviation 0.5; correlation 0.95 from one pixel to the next, in each
    direction (a first-order Markov model; 0.949 in CIFAR-10), and 0.9 between
    channels; and 1 % of noise. The embedding of a photograph's patch then has
    uncorrelated values of variance 1.

    Args:
        shape: (h, w, C, D) of the kernel.
        dtype: Its dtype.
    """
    height, width, channels, units = shape
    rows, columns = (
        0.95 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        for n in (height, width)
    )
    colours = np.where(np.eye(channels), 1, 0.9)
    size = height * width * channels
    covariance = np.kron(rows, np.kron(columns, colours)) + 0.01 * np.eye(size)
    values, vectors = np.linalg.eigh(0.25 * size * covariance)
    root = vectors / np.sqrt(values) @ vectors.T
    normal = keras.initializers.RandomNormal(stddev=1.0)((size, units))
    kernel = ops.matmul(ops.convert_to_tensor(root, normal.dtype), normal)
    return ops.cast(ops.reshape(kernel, shape), dtype or kernel.dtype)


def _grid_size(input_shape, patch_size, name):
    """Return the number of patches per column and per row of an image."""
    size = tuple(input_shape[1:3])
    if any(n is None or n % p for n, p in zip(size, patch_size, strict=True)):
        raise ValueError(
            f"PatchEmbedding `{name}` needs an image whose height and width "
            f"are known multiples of the patch, {patch_size[0]}x"
            f"{patch_size[1]} pixels. Received: height={size[0]}, "
            f"width={size[1]}. Resize or crop the image, or choose another "
            "`input_shape` or `patch_size`. Images are channels-last, "
            "[B, H, W, C]."
        )
    return size[0] // patch_size[0], size[1] // patch_size[1]


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Puts one learned token before the sequence: `z_0^0 = x_class`.

    Args:
        stddev: Standard deviation of the token's first values. The authors'
            token starts at zero.

    Input shape: `[B, N, D]`
    Output shape: `[B, N + 1, D]`

    Reference:
        Dosovitskiy et al. 2021, equation 1; checked against the parameter
        `cls` in vit_jax/models_vit.py.
    """

    @checked
    def __init__(self, stddev: Rate = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.stddev = stddev

    def build(self, input_shape):
        self.cls = self.add_weight(
            name="cls",
            shape=(1, 1, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs):
        inputs = check_shape(self, inputs, (None, self.cls.shape[-1]))
        return put_first(self.cls, inputs)  # [B, N + 1, D]

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + 1, width)


def put_first(tokens, inputs):
    """Return sequences `[B, N, D]` after the same tokens, `[1, R, D]`."""
    shape = (ops.shape(inputs)[0], *tokens.shape[1:])
    tokens = ops.broadcast_to(ops.cast(tokens, inputs.dtype), shape)
    return ops.concatenate([tokens, inputs], axis=1)


@keras.saving.register_keras_serializable(package="keras_vit")
class RegisterTokens(keras.layers.Layer):
    """Puts learned tokens without a position between class token and patches.

    Args:
        num_tokens: Number R of tokens.
        after: Number of tokens before them: 1 with a class token, else 0.
        stddev: Standard deviation of their first values.

    Input shape: `[B, T, D]`
    Output shape: `[B, T + R, D]`

    Reference:
        Darcet et al. 2024, "Vision Transformers Need Registers" (2309.16588).
    """

    @checked
    def __init__(
        self,
        num_tokens: Count,
        after: Natural = 1,
        stddev: Rate = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens
        self.after = after
        self.stddev = stddev

    def build(self, input_shape):
        self.registers = self.add_weight(
            name="registers",
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs):
        width = self.registers.shape[-1]
        inputs = check_shape(self, inputs, (None, width))
        registers = ops.broadcast_to(
            ops.cast(self.registers, inputs.dtype),
            (ops.shape(inputs)[0], self.num_tokens, width),
        )
        before, rest = inputs[:, : self.after], inputs[:, self.after :]
        return ops.concatenate([before, registers, rest], axis=1)

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + self.num_tokens, width)


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
    on the attention logits: `keras_vit.ViT(position_embedding="relative")`.

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
