"""Layer normalisation, and the choice of a norm."""

from typing import Literal

import keras

from keras_vit.ops.norm import layer_norm


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer normalisation of the last axis, for TPUs: `ops.norm`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`
    """

    def call(self, inputs):
        return layer_norm(self, inputs, super().call)


Norm = Literal["layer", "rms"]
NORMS = dict(layer=LayerNorm, rms=keras.layers.RMSNormalization)
