"""A check of the shape of a model's input, as a layer."""

import keras

from keras_vit.ops.shapes import check_shape


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
