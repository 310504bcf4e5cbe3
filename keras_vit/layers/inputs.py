"""What is between a model and its images: their shape, scale and metadata."""

from collections.abc import Sequence
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Positive, checked
from keras_vit._earlier_names import rename
from keras_vit._loss_check import check_training
from keras_vit.layers.base import check_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class EnsureShape(keras.layers.Layer):
    """Returns its input if it has the shape that the layer was built for.

    Keras checks the shapes that it knows when it traces a program. TensorFlow
    knows none after calls with several, nor for the inputs of a SavedModel. As
    a layer of the graph the check is part of files, of exports, and of models
    that are built on this graph.

    Input shape: `[B, ...]`
    Output shape: `[B, ...]`

    Raises:
        ValueError: If it is called on inputs of another shape. Within a program
            of TensorFlow, `tf.errors.InvalidArgumentError`.
    """

    def build(self, input_shape):
        self._shape = tuple(input_shape[1:])

    def call(self, inputs):
        return check_shape(self, inputs, self._shape, always=True)

    def compute_output_shape(self, input_shape):
        return input_shape


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


# The keys of `weights.resize.METHODS`.
Resampling = Literal[
    "aligned_bilinear",
    "antialiased_bicubic",
    "antialiased_bilinear",
    "bicubic",
    "bilinear",
    "geometric",
]


@keras.saving.register_keras_serializable(package="keras_vit")
class Metadata(keras.layers.Layer):
    """Returns its input, and holds the metadata of the model.

    As a layer of the graph it is part of files, of clones, and of models that
    are built on this graph.

    Args:
        family: Name of the model family, such as "vit".
        architecture: Fields of the family's configuration.
        pixel_mean, pixel_std: What pixels are scaled by, one number or one
            for each channel; None if unknown.
        provenance: Where the weights came from, or None.
        resampling: How weights are resampled to another grid of patches
            (`weights.resize.METHODS`); None for the family's own way.
    """

    @checked
    def __init__(
        self,
        family: str,
        architecture: dict,
        pixel_mean: float | Sequence[float] | None = None,
        pixel_std: Positive | Sequence[Positive] | None = None,
        provenance: str | None = None,
        resampling: Resampling | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.family = family
        self.architecture = dict(architecture)
        self.pixel_mean = pixel_mean
        self.pixel_std = pixel_std
        self.provenance = provenance
        self.resampling = resampling

    @classmethod
    def from_config(cls, config):
        config = dict(config, architecture=rename(config["architecture"]))
        return super().from_config(config)

    def call(self, inputs, training=None):
        if training:
            check_training()
        return inputs

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "family": self.family,
            "architecture": dict(self.architecture),
            "pixel_mean": self.pixel_mean,
            "pixel_std": self.pixel_std,
            "provenance": self.provenance,
            "resampling": self.resampling,
        }
