"""A learned scale of each channel of a residual branch."""

import keras
from keras import ops

from keras_vit._arguments import checked
from keras_vit.ops.shapes import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiplies each channel by a learned number: `diag(gamma) x`.

    Args:
        initial: First value of gamma, such as 1e-5.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        Touvron et al. 2021, "Going deeper with Image Transformers"
        (2103.17239), section 2.
    """

    @checked
    def __init__(self, initial: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.initial = initial

    def build(self, input_shape):
        self._shape = (*[None] * (len(input_shape) - 2), input_shape[-1])
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial),
        )

    def call(self, inputs):
        # Otherwise broadcasting would turn one channel into many.
        inputs = check_shape(self, inputs, self._shape)
        return inputs * ops.cast(self.gamma, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        # As a layer of a layer it has a policy, which Keras does not record.
        return {**super().get_config(), "initial": self.initial}
