"""The activations of MLPs."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu(x):
    """Returns the exact GELU."""
    if keras.backend.standardize_dtype(x.dtype) == "float64":
        # TensorFlow's operation has the root of 2 in float32.
        return 0.5 * x * (1 + ops.erf(x * 0.5**0.5))
    return ops.gelu(x, approximate=False)


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu_tanh(x):
    """Returns the tanh form of GELU."""
    is_symbol = keras.utils.is_keras_tensor(x)
    if keras.backend.backend() == "tensorflow" and not is_symbol:
        return _gelu_tanh(x)
    return ops.gelu(x, approximate=True)


@ops.custom_gradient
def _gelu_tanh(x):
    """Stores two tensors less for the gradient than TensorFlow's operation."""
    a, b = 0.044715, (2 / math.pi) ** 0.5
    t = ops.tanh(b * x * (1 + a * x * x))

    def gradient(g):
        slope = 1 + b * x * (1 - t) * (1 + 3 * a * x * x)
        return g * 0.5 * (1 + t) * slope

    return 0.5 * x * (1 + t), gradient


@keras.saving.register_keras_serializable(package="keras_vit")
def quick_gelu(x):
    """Returns x sigmoid(1.702 x), the activation of OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)
