"""Group normalisation."""

import keras

from keras_vit._arguments import Count, Epsilon, checked
from keras_vit.ops.norm import group_norm


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """Keras' group normalisation of the last axis, stable on PyTorch too.

    Args:
        groups: Number of groups; divides the number of channels.
        epsilon: Added to the variance.

    Input shape: `[B, ..., C]`
    Output shape: `[B, ..., C]`

    Reference:
        Wu & He 2018 (1803.08494).
    """

    @checked
    def __init__(self, groups: Count = 32, epsilon: Epsilon = 1e-3, **kwargs):
        super().__init__(groups=groups, epsilon=epsilon, **kwargs)

    def call(self, inputs):
        return group_norm(self, inputs, super().call)
