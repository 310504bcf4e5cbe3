"""Tokens of a head that run through the blocks of a backbone."""

import math

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, checked
from keras_vit.layers.base import check_shape
from keras_vit.layers.embedding import put_first
from keras_vit.models.image_model import ImageModel


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedTokens(keras.layers.Layer):
    """Puts learned tokens before the sequence, such as the queries of EoMT.

    Args:
        num_tokens: Number Q of tokens.
        positions: Whether each has a learned position as well (YOLOS).
        stddev: Standard deviation of their first values.

    Input shape: `[B, T, D]`
    Output shape: `[B, Q + T, D]`
    """

    @checked
    def __init__(
        self,
        num_tokens: Count,
        positions: bool = False,
        stddev: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens
        self.positions = positions
        self.stddev = stddev

    def build(self, input_shape):
        def weight(name, stddev):
            return self.add_weight(
                name=name,
                shape=(1, self.num_tokens, input_shape[-1]),
                initializer=keras.initializers.RandomNormal(stddev=stddev),
            )

        self.tokens = weight("tokens", self.stddev)
        self.places = weight("positions", 0.02) if self.positions else None

    def call(self, inputs):
        width = self.tokens.shape[-1]
        inputs = check_shape(self, inputs, (None, width))
        tokens = ops.cast(self.tokens, inputs.dtype)
        if self.places is not None:
            tokens = tokens + ops.cast(self.places, inputs.dtype)
        return put_first(tokens, inputs)

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, self.num_tokens + tokens, width)


def token_blocks(inner: ImageModel, head: str) -> list[keras.layers.Layer]:
    """Return the blocks of a backbone that take any number of tokens.

    Args:
        inner: The backbone.
        head: Name of the head, for an error.

    Raises:
        ValueError: If the blocks do not, or other layers are between them.
    """
    blocks = inner.blocks
    takes_more = all(
        isinstance(block, layers.TransformerBlock)
        and getattr(block.attention, "_token_shape", (1,))[0] is None
        for block in blocks
    )
    if not blocks or not takes_more:
        raise ValueError(
            f"`backbone` must be a ViT whose blocks take more tokens for the "
            f"head {head!r}: without relative positions, learned rotary ones, "
            "or mixing over patches. Received: a model of the family "
            f"{inner.family!r}"
        )
    for before, block in zip(blocks, blocks[1:], strict=False):
        if block.input is not before.output:
            raise ValueError(
                "`backbone` must have no layers between its blocks for the "
                f"head {head!r}. Received: {inner.name!r}, with layers before "
                f"{block.name!r}"
            )
    return blocks


def grid_of(inner: ImageModel) -> tuple[int, int]:
    """Return the (rows, columns) of a backbone's patches."""
    return tuple(inner.metadata["grid"][-2:])


def num_prefix_tokens(inner: ImageModel) -> int:
    """Return the number of tokens before the patches."""
    return inner.blocks[0].input.shape[1] - math.prod(grid_of(inner))


def last_norm(inner: ImageModel) -> keras.layers.Layer | None:
    """Return the norm after the last block, or None without one."""
    names = [layer.name for layer in inner.layers]
    name = inner._family.last_norm
    return inner.get_layer(name) if name in names else None


def normed(inner: ImageModel, x):
    """Return tokens after the backbone's last norm, if it has one."""
    norm = last_norm(inner)
    return x if norm is None else norm(x)


def as_map(x, grid: tuple[int, int]):
    """Return the patches, which are the last tokens, as `[B, H, W, D]`."""
    patches = x[:, x.shape[1] - math.prod(grid) :]
    return ops.reshape(patches, (-1, *grid, x.shape[-1]))
