"""The activations of MLPs."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu(x):
    """Return the exact GELU."""
    if keras.backend.standardize_dtype(x.dtype) == "float64":
        # TensorFlow's operation has the root of 2 in float32.
        return 0.5 * x * (1 + ops.erf(x * 0.5**0.5))
    return ops.gelu(x, approximate=False)


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu_tanh(x):
    """Return the tanh form of GELU."""
    return ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_vit")
def quick_gelu(x):
    """Return x sigmoid(1.702 x), the activation of OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)
