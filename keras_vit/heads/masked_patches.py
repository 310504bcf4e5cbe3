"""Tokens of visible patches, and a learned one in the place of the others."""

import keras
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.ops.attention import num_tokens


@keras.saving.register_keras_serializable(package="keras_vit")
class TakePatches(keras.layers.Layer):
    """Returns the visible patches after the tokens before them, or the others.

    Args:
        num_patches: Number N of patches, which are the last tokens.
        masked: Whether to return the patches that are not visible, in raster
            order, and no other tokens.

    Call arguments:
        inputs: `[B, F + N, D]`
        visible: Indices of patches, `[B, V]`, integers.

    Output shape: `[B, F + V, D]`, or `[B, N - V, D]`.
    """

    @checked
    def __init__(self, num_patches: Count, masked: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.num_patches = num_patches
        self.masked = masked

    def call(self, inputs, visible):
        first = inputs.shape[1] - self.num_patches
        if self.masked:
            others = masked_patches(visible, self.num_patches)
            return _take(inputs, first + others)  # [B, N - V, D]
        return _take(inputs, _after(first, visible))

    def compute_output_shape(self, inputs_shape, visible_shape):
        batch_size, tokens, width = inputs_shape
        count = visible_shape[1]
        if count is not None:
            first = tokens - self.num_patches
            count = self.num_patches - count if self.masked else first + count
        return (batch_size, count, width)


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskTokens(keras.layers.Layer):
    """Puts a learned token in the place of each patch that is not visible.

    Args:
        num_patches: Number N of all patches.
        prefix: Number F of tokens before the patches.

    Call arguments:
        inputs: Tokens before the patches and visible patches, `[B, F + V, D]`.
        visible: Indices of these patches, `[B, V]`.

    Output shape: `[B, F + N, D]`, patches in raster order.
    """

    @checked
    def __init__(self, num_patches: Count, prefix: int, **kwargs):
        super().__init__(**kwargs)
        self.num_patches = num_patches
        self.prefix = prefix

    def build(self, inputs_shape, visible_shape):
        self.mask_token = self.add_weight(
            name="mask_token",
            shape=(1, 1, inputs_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, inputs, visible):
        order = ops.arange(ops.shape(visible)[1], dtype="int32")
        seen = ops.one_hot(visible, self.num_patches, dtype="int32")
        # Of a masked patch 0, a token that is not used.
        places = ops.sum(seen * order[:, None], axis=1)
        x = _take(inputs, _after(self.prefix, places))
        masked = ops.pad(1 - ops.sum(seen, axis=1), ((0, 0), (self.prefix, 0)))
        token = ops.cast(self.mask_token, inputs.dtype)
        return ops.where(masked[..., None] > 0, token, x)

    def compute_output_shape(self, inputs_shape, visible_shape):
        batch_size, _, width = inputs_shape
        return (batch_size, self.prefix + self.num_patches, width)


@keras.saving.register_keras_serializable(package="keras_vit")
class Mask(keras.layers.Layer):
    """Returns which patches are not visible, 1 or 0.

    Args:
        num_patches: Number N of all patches.

    Input shape: `[B, V]`, the indices of visible patches.
    Output shape: `[B, N]`
    """

    @checked
    def __init__(self, num_patches: Count, **kwargs):
        super().__init__(**kwargs)
        self.num_patches = num_patches

    def call(self, inputs):
        return _mask(inputs, self.num_patches, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_patches)


def _mask(visible, num_patches, dtype="int32"):
    seen = ops.sum(ops.one_hot(visible, num_patches, dtype=dtype), axis=1)
    return 1 - seen


def masked_patches(visible, num_patches: int):
    """Return the other patches, in raster order, `[B, N - V]`.

    Args:
        visible: Indices of visible patches, `[B, V]`.
        num_patches: Number N of all patches.
    """
    # Different keys, since not every sort is stable.
    keys = ops.arange(num_patches) + num_patches * (
        1 - _mask(visible, num_patches)
    )
    return ops.argsort(keys, axis=1)[:, : num_patches - num_tokens(visible)]


def _after(first, patches):
    """Return the indices of the first tokens, and of patches after them."""
    if not first:
        return patches
    before = ops.arange(first, dtype="int32")[None]
    shape = (ops.shape(patches)[0], first)
    return ops.concatenate(
        [ops.broadcast_to(before, shape), first + patches], axis=1
    )


def _take(inputs, tokens):
    """Return tokens by their indices, in one pass over all of them."""
    return ops.take_along_axis(inputs, tokens[..., None], axis=1)
