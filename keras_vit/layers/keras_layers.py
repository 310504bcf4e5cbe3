"""Small layers: Keras' own with the operations of `keras_vit.ops`, and inputs.

What is between a model and its images: their shape, scale and metadata.
"""

from collections.abc import Sequence
from typing import Literal

import keras
from keras import ops

from keras_vit._arguments import (
    Count,
    Epsilon,
    Positive,
    check_class_names,
    checked,
)
from keras_vit._earlier_names import rename
from keras_vit._keras import nested_layers
from keras_vit._loss_check import check_training
from keras_vit.layers.base import FrozenWeights, check_shape
from keras_vit.ops.convolution import depthwise_conv, expand, max_pool
from keras_vit.ops.linear import linear, multiply_add
from keras_vit.ops.norm import group_norm, layer_norm


@keras.saving.register_keras_serializable(package="keras_vit")
class Dense(FrozenWeights, keras.layers.Dense):
    """`keras.layers.Dense`, with PyTorch's fastest product for it.

    Files of a layer with low-rank updates hold the updated kernel, as Keras
    writes it, and also every variable, with which training continues exactly.
    """

    def call(self, inputs, training=None):
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
            for variable in self._own_variables():
                store[variable.name] = variable

    def load_own_variables(self, store):
        if self.lora_enabled and "lora_kernel_a" in store.keys():
            for variable in self._own_variables():
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


def check_float(layer: keras.layers.Layer, argument: str) -> None:
    """Check that neither a layer nor a layer in it is quantised.

    Args:
        layer: The layer, or a model.
        argument: Name of the argument in the error.

    Raises:
        ValueError: If one is.
    """
    found = [layer, *nested_layers(layer)]
    modes = {x.quantization_mode for x in found} - {None}
    if modes:
        raise ValueError(
            f"`{argument}` must be in a float precision. Received: a model "
            f"that is quantised already, to {', '.join(sorted(modes))}. Start "
            "from the model it was made of."
        )


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

    Raises:
        ValueError: If C is no multiple of `groups`.

    Reference:
        Wu & He 2018 (1803.08494).
    """

    @checked
    def __init__(self, groups: Count = 32, epsilon: Epsilon = 1e-3, **kwargs):
        super().__init__(groups=groups, epsilon=epsilon, **kwargs)

    def build(self, input_shape):
        if input_shape[-1] % self.groups:
            raise ValueError(
                f"GroupNorm `{self.name}` splits channels into `groups` equal "
                f"parts. Received: groups={self.groups}, {input_shape[-1]} "
                "channels; in a ResNet, `width_factor` gives their number"
            )
        super().build(input_shape)

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

    def add(self, x, branch):
        """Return x + diag(gamma) branch, in less time than by a call.

        Args:
            x, branch: `[..., D]`, of one shape and dtype.
        """
        return multiply_add(branch, ops.cast(self.gamma, branch.dtype), x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        # As a layer of a layer it has a policy, which Keras does not record.
        return {**super().get_config(), "initial": self.initial}


@keras.saving.register_keras_serializable(package="keras_vit")
class Conv2DTranspose(keras.layers.Conv2DTranspose):
    """`keras.layers.Conv2DTranspose`, as a product where nothing overlaps."""

    def call(self, inputs):
        if self.kernel_size != self.strides or None in inputs.shape[1:]:
            return super().call(inputs)
        return expand(inputs, self.kernel, self.bias, self.activation)


@keras.saving.register_keras_serializable(package="keras_vit")
class DepthwiseConv2D(keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D`, without copies with PyTorch."""

    def call(self, inputs):
        x = depthwise_conv(
            inputs,
            self.kernel,
            self.strides,
            self.padding,
            dilation_rate=self.dilation_rate,
        )
        if self.bias is not None:
            x = x + self.bias
        return x if self.activation is None else self.activation(x)


@keras.saving.register_keras_serializable(package="keras_vit")
class MaxPooling2D(keras.layers.MaxPooling2D):
    """`keras.layers.MaxPooling2D`, ten times as fast with PyTorch on CPUs."""

    def call(self, inputs):
        return max_pool(inputs, self.pool_size, self.strides, self.padding)


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
