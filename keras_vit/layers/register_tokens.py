"""Register tokens."""

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, Rate, checked
from keras_vit.ops.shapes import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class RegisterTokens(keras.layers.Layer):
    """Puts learned tokens without a position between class token and patches.

    Args:
        num_tokens: Number R of tokens.
        after: Number of tokens before them: 1 with a class token, else 0.
        stddev: Standard deviation of their first values.

    Input shape: `[B, T, D]`
    Output shape: `[B, T + R, D]`

    Reference:
        Darcet et al. 2024, "Vision Transformers Need Registers" (2309.16588).
    """

    @checked
    def __init__(
        self,
        num_tokens: Count,
        after: Natural = 1,
        stddev: Rate = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens
        self.after = after
        self.stddev = stddev

    def build(self, input_shape):
        self.registers = self.add_weight(
            name="registers",
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs):
        width = self.registers.shape[-1]
        inputs = check_shape(self, inputs, (None, width))
        registers = ops.broadcast_to(
            ops.cast(self.registers, inputs.dtype),
            (ops.shape(inputs)[0], self.num_tokens, width),
        )
        before, rest = inputs[:, : self.after], inputs[:, self.after :]
        return ops.concatenate([before, registers, rest], axis=1)

    def compute_output_shape(self, input_shape):
        batch_size, tokens, width = input_shape
        return (batch_size, tokens + self.num_tokens, width)
