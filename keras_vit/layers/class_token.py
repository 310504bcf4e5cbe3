"""The class token of section 3.1."""

import keras
from keras import ops

from keras_vit._arguments import Rate, checked
from keras_vit.ops.shapes import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Puts one learned token before the sequence: `z_0^0 = x_class`.

    Args:
        stddev: Standard deviation of the token's first values. The authors'
            token starts at zero.

    Input shape: `[B, N, D]`
    Output shape: `[B, N + 1, D]`

    Reference:
        Dosovitskiy et al. 2021, equation 1; checked against the parameter
        `cls` in vit_jax/models_vit.py.
    """

    @checked
    def __init__(self, stddev: Rate = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.stddev = stddev

    def build(self, input_shape):
        self.cls = self.add_weight(
            name="cls",
            shape=(1, 1, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs):
        inputs = check_shape(self, inputs, (None, self.cls.shape[-1]))
        batch_size, _, width = ops.shape(inputs)
        cls = ops.broadcast_to(
            ops.cast(self.cls, inputs.dtype), (batch_size, 1, width)
        )
        return ops.concatenate([cls, inputs], axis=1)  # [B, N + 1, D]

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + 1, width)
