"""A classifier by the similarity with an embedding of each class."""

from typing import Any

import keras

from keras_vit._arguments import Natural, checked
from keras_vit.layers.base import CompositeLayer
from keras_vit.layers.keras_layers import ClassificationHead, Dense
from keras_vit.ops.norm import unit_length


@keras.saving.register_keras_serializable(package="keras_vit")
class SimilarityHead(CompositeLayer, ClassificationHead):
    """Projects, divides by the length, and compares with each class.

        logits = W x / |x| + b,    x = P inputs + p

    The kernel W holds an embedding of each class, times the scale, as
    `keras_vit.zero_shot` makes it of texts.

    Args:
        units: Number of classes K.
        projection_size: Width of x; 0 without a projection P.
        **kwargs: Those of `ClassificationHead`.

    Input shape: `[B, D]`
    Output shape: `[B, K]`

    Reference:
        Radford et al. 2021 (2103.00020), section 3.1.2.
    """

    @checked
    def __init__(self, units, projection_size: Natural = 0, **kwargs):
        super().__init__(units=units, **kwargs)
        self.projection_size = projection_size

    def build(self, input_shape):
        self.projection: Any = None
        if self.projection_size:
            self.projection = self.make(
                Dense,
                self.projection_size,
                name="projection",
                shape=input_shape,
            )
            input_shape = (*input_shape[:-1], self.projection_size)
        super().build(input_shape)
        # Of what the head reads, not of what its kernel does.
        self.input_spec = None

    def call(self, inputs, training=None):
        return super().call(self._unit(inputs), training=training)

    def quantized_call(self, inputs, training=None):
        """Compute what `call` computes, in place of it once quantised."""
        return super().quantized_call(self._unit(inputs), training=training)

    def _unit(self, inputs):
        if self.projection is not None:
            inputs = self.projection(inputs)
        return unit_length(inputs)
