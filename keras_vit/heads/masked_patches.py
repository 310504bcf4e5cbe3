"""Tokens of visible patches, and a learned one in the place of the others."""

import keras
from keras import ops

from keras_vit._arguments import Count, checked


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
        taken = visible
        if self.masked:
            taken = masked_patches(visible, self.num_patches)
        patches = ops.take_along_axis(
            inputs[:, first:], taken[..., None], axis=1
        )
        if self.masked or not first:
            return patches
        return ops.concatenate([inputs[:, :first], patches], axis=1)

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
        batch_size, _, width = ops.shape(inputs)
        masked = masked_patches(visible, self.num_patches)
        token = ops.cast(self.mask_token, inputs.dtype)
        shape = (batch_size, masked.shape[1], width)
        x = ops.concatenate([inputs, ops.broadcast_to(token, shape)], axis=1)
        places = ops.argsort(ops.concatenate([visible, masked], axis=1), axis=1)
        patches = ops.take_along_axis(
            x[:, self.prefix :], places[..., None], axis=1
        )
        return ops.concatenate([x[:, : self.prefix], patches], axis=1)

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
    return ops.argsort(keys, axis=1)[:, : num_patches - visible.shape[1]]
