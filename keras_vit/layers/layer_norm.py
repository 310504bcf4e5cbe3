"""Layer normalisation with fewer passes over its input."""

from typing import Literal

import keras
from keras import ops

from keras_vit.ops.derivatives import with_derivative
from keras_vit.ops.direct_call import DirectCall
from keras_vit.ops.linear import of_dtype
from keras_vit.ops.precision import wide_dtype


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(DirectCall, keras.layers.LayerNormalization):
    """Keras' layer normalisation of the last axis, faster with JAX and PyTorch.

    With PyTorch Keras casts inputs of bfloat16 to float32 and back, which its
    operation does by itself.

    With JAX Keras reads the input for the mean, again for the variance, and
    again for the gradient of the variance by the mean, which is zero and left
    out here. With inputs of bfloat16 the variance is E[x^2] - E[x]^2 in
    float32, as in Flax, and XLA computes both sums where it computes x. When
    the mean is 2^8 times the deviation, the difference loses 16 of 24 bits;
    bfloat16, which has 8, has lost the deviation before.

    Input shape: `[..., D]`
    Output shape: `[..., D]`
    """

    def call(self, inputs):
        backend = keras.backend.backend()
        is_bfloat16 = (
            keras.backend.standardize_dtype(inputs.dtype) == "bfloat16"
        )
        if backend == "torch" and is_bfloat16:
            import torch

            return torch.nn.functional.layer_norm(
                inputs,
                inputs.shape[-1:],
                of_dtype(inputs, self.gamma),
                of_dtype(inputs, self.beta),
                self.epsilon,
            )
        if backend != "jax":
            return super().call(inputs)
        dtype = wide_dtype(inputs.dtype)
        x = ops.cast(inputs, dtype)
        mean = ops.mean(x, axis=-1, keepdims=True)
        if is_bfloat16:
            square = ops.mean(ops.square(x), axis=-1, keepdims=True)
            variance = ops.maximum(square - ops.square(mean), 0.0)
        else:
            variance = _variance(x, mean)
        scale = ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, dtype)
        x = (x - mean) * scale + ops.cast(self.beta, dtype)
        return ops.cast(x, self.compute_dtype)


Norm = Literal["layer", "rms"]
NORMS = dict(layer=LayerNorm, rms=keras.layers.RMSNormalization)


def _derive_variance(primals, tangents):
    (x, mean), (change, _) = primals, tangents
    # That of the mean has the factor mean(x - mean), which is zero.
    products = (x - mean) * change
    variance = _variance(x, mean)
    return variance, 2 * ops.mean(products, axis=-1, keepdims=True)


@with_derivative(_derive_variance)
def _variance(x, mean):
    return ops.mean(ops.square(x - mean), axis=-1, keepdims=True)
