"""A dense layer that adds its bias within the matrix product."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, with one pass over its output under PyTorch.

    XLA and TensorFlow fuse the bias into the product. PyTorch has an operation
    for both, while Keras calls two, which costs 6 % of the time of ViT-S/16.
    """

    def call(self, inputs, training=None):
        # On CPUs Keras computes products of float16 in float32.
        fits = self.use_bias and self.compute_dtype in ("float32", "bfloat16")
        if keras.backend.backend() != "torch" or not fits:
            return super().call(inputs, training=training)
        x = linear(inputs, self.kernel, self.bias)
        return x if self.activation is None else self.activation(x)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras refuses to quantise subclasses, which might compute something
        # else.
        super().quantize(mode, type_check=False, config=config)


def linear(x, kernel, bias):
    """Returns `x @ kernel + bias` under PyTorch.

    Args:
        x: Inputs, `[..., D]`.
        kernel: Its weights, `[D, F]`.
        bias: Added to each row, `[F]`.
    """
    import torch

    x, kernel, bias = (
        ops.convert_to_tensor(value) for value in (x, kernel, bias)
    )
    kernel, bias = ops.cast(kernel, x.dtype), ops.cast(bias, x.dtype)
    return torch.nn.functional.linear(x, kernel.T, bias)
