"""A dense layer that is one operation under PyTorch."""

import keras

from keras_vit.layers.direct_call import DirectCall
from keras_vit.layers.linear import linear


@keras.saving.register_keras_serializable(package="keras_vit")
class Dense(DirectCall, keras.layers.Dense):
    """`keras.layers.Dense`, with PyTorch's fastest product for it.

    XLA and TensorFlow fuse the bias and the activation into the product. Keras
    calls an operation of PyTorch for each; see `linear`.
    """

    ignores_training = True  # except when it is quantised

    def call(self, inputs, training=None):
        # On CPUs Keras computes products of float16 in float32.
        fits = self.compute_dtype in ("float32", "bfloat16")
        if keras.backend.backend() != "torch" or not fits:
            return super().call(inputs, training=training)
        return linear(inputs, self.kernel, self.bias, self.activation)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras refuses to quantise subclasses, which might compute something
        # else.
        super().quantize(mode, type_check=False, config=config)
