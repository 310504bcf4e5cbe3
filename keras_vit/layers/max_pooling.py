"""Max-pooling."""

import keras

from keras_vit.ops.convolution import max_pool


@keras.saving.register_keras_serializable(package="keras_vit")
class MaxPooling2D(keras.layers.MaxPooling2D):
    """`keras.layers.MaxPooling2D`, ten times as fast with PyTorch on CPUs."""

    def call(self, inputs):
        if self.data_format != "channels_last":
            return super().call(inputs)
        return max_pool(inputs, self.pool_size, self.strides, self.padding)
