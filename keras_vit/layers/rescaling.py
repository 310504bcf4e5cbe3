"""The scaling of pixels."""

import keras
from keras import ops

from keras_vit.ops.shapes import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class Rescaling(keras.layers.Rescaling):
    """`keras.layers.Rescaling` that does not round its numbers to float32.

    Before it casts them to float64, TensorFlow makes them float32.
    """

    def build(self, input_shape):
        self._shape = (*[None] * (len(input_shape) - 2), input_shape[-1])

    def call(self, inputs):
        # Otherwise broadcasting would turn one channel into many.
        inputs = check_shape(self, inputs, self._shape)
        scale, offset = (
            ops.convert_to_tensor(x, self.compute_dtype)
            for x in (self.scale, self.offset)
        )
        return inputs * scale + offset
