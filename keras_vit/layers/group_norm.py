"""Group normalisation."""

import keras
from keras import ops

from keras_vit._arguments import Count, Epsilon, checked
from keras_vit.ops.direct_call import DirectCall
from keras_vit.ops.linear import of_dtype
from keras_vit.ops.precision import wide_dtype


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(DirectCall, keras.layers.GroupNormalization):
    """Keras' group normalisation of the last axis, stable on PyTorch too.

    There Keras 3 computes the variance as E[x^2] - E[x]^2. For a group of
    large and nearly equal values, such as a 1x1 feature map has, rounding makes
    it negative, and the output NaN. Here each group becomes one row, which
    PyTorch's layer normalisation takes, in float32 or wider. Inputs of bfloat16
    take PyTorch's group normalisation, which is several times as fast: it takes
    E[x^2] - E[x]^2 in float32, too, but not below zero, and what the difference
    loses, bfloat16 has lost before.

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
        if keras.backend.backend() != "torch":
            return super().call(inputs)
        if keras.backend.standardize_dtype(inputs.dtype) == "bfloat16":
            import torch

            x = torch.nn.functional.group_norm(
                torch.movedim(inputs, -1, 1),
                self.groups,
                of_dtype(inputs, self.gamma),
                of_dtype(inputs, self.beta),
                self.epsilon,
            )
            return torch.movedim(x, 1, -1)
        dtype = wide_dtype(inputs.dtype)
        shape = ops.shape(inputs)
        by_group = (shape[0], -1, self.groups, shape[-1] // self.groups)
        x = ops.reshape(ops.cast(inputs, dtype), by_group)
        x = ops.transpose(x, (0, 2, 1, 3))
        grouped = ops.shape(x)
        x = ops.reshape(x, (*grouped[:2], -1))
        x = ops.layer_normalization(x, epsilon=self.epsilon)
        x = ops.transpose(ops.reshape(x, grouped), (0, 2, 1, 3))
        x = ops.reshape(x, shape) * self.gamma + self.beta
        return ops.cast(x, self.compute_dtype)
