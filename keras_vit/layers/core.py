"""Keras' layers with the operations of `keras_vit.ops`, and scales."""

from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import Count, Epsilon, check_class_names, checked
from keras_vit.layers.base import FrozenWeights, check_shape
from keras_vit.ops.convolution import max_pool
from keras_vit.ops.linear import linear
from keras_vit.ops.norm import group_norm, layer_norm


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


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassificationHead(Dense):
    """A dense layer that starts at zero and holds its class names.

    The paper fine-tunes with a zero-initialised D x K layer. The names are
    saved with the layer.

    Args:
        units: Number of classes K.
        class_names: Class names by index, or None.

    Input shape: `[..., D]`
    Output shape: `[..., K]`

    Raises:
        ValueError: If the number of `class_names` is not `units`.

    Reference:
        Dosovitskiy et al. 2021, section 3.2.
    """

    @checked
    def __init__(
        self,
        units: Count,
        class_names: tuple[str, ...] | None = None,
        kernel_initializer="zeros",
        **kwargs,
    ):
        super().__init__(units, kernel_initializer=kernel_initializer, **kwargs)
        check_class_names(class_names, units)
        self.class_names = None if class_names is None else tuple(class_names)

    def get_config(self):
        return {**super().get_config(), "class_names": self.class_names}

    @classmethod
    def from_config(cls, config):
        """Build the layer, also of files that call the names `labels`."""
        if "labels" in config:
            config = dict(config)
            config["class_names"] = config.pop("labels")
        return super().from_config(config)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer normalisation of the last axis, for TPUs: `ops.norm`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`
    """

    def call(self, inputs):
        return layer_norm(self, inputs, super().call)


Norm = Literal["layer", "rms"]
NORMS = dict(layer=LayerNorm, rms=keras.layers.RMSNormalization)


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """Keras' group normalisation of the last axis, stable on PyTorch too.

    Args:
        groups: Number of groups; divides the number of channels.
        epsilon: Added to the variance.

    Input shape: `[B, ..., C]`
    Output shape: `[B, ..., C]`

    Reference:
        Wu & He 2018 (1803.08494).
    """

    @checked
    def __init__(self, groups: Count = 32, epsilon: Epsilon = 1e-3, **kwargs):
        super().__init__(groups=groups, epsilon=epsilon, **kwargs)

    def call(self, inputs):
        return group_norm(self, inputs, super().call)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiplies each channel by a learned number: `diag(gamma) x`.

    Args:
        initial: First value of gamma, such as 1e-5.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        Touvron et al. 2021, "Going deeper with Image Transformers"
        (2103.17239), section 2.
    """

    @checked
    def __init__(self, initial: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.initial = initial

    def build(self, input_shape):
        self._shape = (*[None] * (len(input_shape) - 2), input_shape[-1])
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial),
        )

    def call(self, inputs):
        # Otherwise broadcasting would turn one channel into many.
        inputs = check_shape(self, inputs, self._shape)
        return inputs * ops.cast(self.gamma, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        # As a layer of a layer it has a policy, which Keras does not record.
        return {**super().get_config(), "initial": self.initial}


@keras.saving.register_keras_serializable(package="keras_vit")
class MaxPooling2D(keras.layers.MaxPooling2D):
    """`keras.layers.MaxPooling2D`, ten times as fast with PyTorch on CPUs."""

    def call(self, inputs):
        if self.data_format != "channels_last":
            return super().call(inputs)
        return max_pool(inputs, self.pool_size, self.strides, self.padding)
