"""The activations of MLPs."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu(x):
    """Returns the exact GELU."""
    return ops.gelu(x, approximate=False)


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu_tanh(x):
    """Returns the tanh form of GELU."""
    return ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_vit")
def quick_gelu(x):
    """Returns x sigmoid(1.702 x), the activation of OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)
