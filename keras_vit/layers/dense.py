"""A dense layer that is one operation under PyTorch."""

import keras
from keras import ops

from keras_vit.layers.frozen_weights import FrozenWeights
from keras_vit.ops.linear import linear


@keras.saving.register_keras_serializable(package="keras_vit")
class Dense(FrozenWeights, keras.layers.Dense):
    """`keras.layers.Dense`, with PyTorch's fastest product for it.

    XLA and TensorFlow fuse the bias and the activation into the product. Keras
    calls an operation of PyTorch for each; see `linear`.

    Files of a layer with low-rank updates hold the updated kernel, as Keras
    writes it, and also every variable, with which training continues exactly.
    """

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

    def enable_lora(self, rank, lora_alpha=None, **kwargs):  # type: ignore
        # Where Keras builds a layer that has an alpha, it does not pass it on.
        super().enable_lora(rank, lora_alpha or self.lora_alpha, **kwargs)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        if self.built and self.lora_enabled:
            for variable in self.variables:
                store[variable.name] = variable

    def load_own_variables(self, store):
        if self.lora_enabled and "lora_kernel_a" in store.keys():
            for variable in self.variables:
                variable.assign(store[variable.name])
            return
        a = ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(
            {key: store[key] for key in store.keys() if key.isdigit()}
        )
        if self.lora_enabled:
            # Keras sets both factors to 0, where their gradients are 0 too.
            self.lora_kernel_a.assign(a)


def quantizable(layer: keras.layers.Layer) -> bool:
    """Return whether a layer can be quantised, as a filter for `quantize`.

    `keras.Model.quantize` warns about every layer that it does not quantise,
    including layers without a kernel.

    Args:
        layer: A layer.

    Example:
        model.quantize("int8", filters=keras_vit.layers.quantizable)
    """
    return type(layer).quantize is not keras.layers.Layer.quantize


def uniform(fan_in: int) -> keras.initializers.Initializer:
    """Return PyTorch's default, U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)).

    Of the kernels and the biases of dense layers and of convolutions.

    Args:
        fan_in: Number of inputs of an output.
    """
    return keras.initializers.RandomUniform(-(fan_in**-0.5), fan_in**-0.5)
