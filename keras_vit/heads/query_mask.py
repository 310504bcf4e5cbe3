"""Masked attention of EoMT's queries."""

import math

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, checked


@keras.saving.register_keras_serializable(package="keras_vit")
class QueryMask(keras.layers.Layer):
    """Forbids queries the patches outside their masks (section 3.2).

    In training, each query with a probability, the weight `probability`;
    otherwise all queries, unless that is 0. They always attend to each other
    and to the tokens before the patches.

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: Number of tokens between queries and patches.
        seed: Of the choice of queries.

    Input shape: `[B, h, w, Q]`, logits of the masks
    Output shape: `[B, 1, T, T]`, to add to the logits of the attention
    """

    @checked
    def __init__(
        self,
        grid: tuple[Count, Count],
        num_prefix_tokens: Natural,
        seed: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        self.probability = self.add_weight(
            name="probability", shape=(1,), initializer="ones", trainable=False
        )

    def call(self, inputs, training=None):
        num_queries = inputs.shape[-1]
        masks = ops.image.resize(
            inputs,
            self.grid,
            interpolation="bilinear",
            data_format="channels_last",
        )
        masks = ops.reshape(masks, (-1, math.prod(self.grid), num_queries))
        allowed = ops.transpose(masks, (0, 2, 1)) > 0  # [B, Q, N]
        draw = 0.0
        if training:
            shape = (ops.shape(inputs)[0], num_queries, 1)
            draw = keras.random.uniform(
                shape, dtype="float32", seed=self.seed_generator
            )
        allowed = ops.logical_or(allowed, draw >= self.probability)
        least = -6e4 if self.compute_dtype == "float16" else -1e9
        bias = ops.where(allowed, 0.0, least)
        before = num_queries + self.num_prefix_tokens
        after = before - num_queries + math.prod(self.grid)
        bias = ops.pad(bias, ((0, 0), (0, after), (before, 0)))
        return ops.cast(bias[:, None], self.compute_dtype)

    def compute_output_shape(self, input_shape):
        tokens = input_shape[-1] + self.num_prefix_tokens + math.prod(self.grid)
        return (input_shape[0], 1, tokens, tokens)
