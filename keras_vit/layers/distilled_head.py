"""The two classifiers of a distilled model."""

import keras

from keras_vit._arguments import (
    Count,
    KerasActivation,
    check_class_names,
    checked,
)
from keras_vit.layers.base import CompositeLayer, check_shape
from keras_vit.layers.keras_layers import ClassificationHead


@keras.saving.register_keras_serializable(package="keras_vit")
class DistilledHead(CompositeLayer):
    """The mean of the classifiers of a class and of a distillation token.

        y = f((token(x_0) + distillation(x_1)) / 2)

    Both start at zero. The paper trains the second on the predictions of a
    teacher, each with its own loss; here they are trained, as fine-tuned and
    evaluated, by their mean.

    Args:
        units: Number of classes K.
        class_names: Class names by index, or None.
        activation: f; None gives logits.
        bias_initializer: First value of both biases.

    Input shape: `[B, 2, D]`
    Output shape: `[B, K]`

    Raises:
        ValueError: If the number of `class_names` is not `units`.

    Reference:
        Touvron et al. 2021, section 4 (2012.12877); checked against
        `VisionTransformerDistilled` in timm/models/deit.py.
    """

    @checked
    def __init__(
        self,
        units: Count,
        class_names: tuple[str, ...] | None = None,
        activation: KerasActivation | None = None,
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = units
        check_class_names(class_names, units)
        self.class_names = None if class_names is None else tuple(class_names)
        self.activation = keras.activations.get(activation)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape):
        def classifier(name):
            return self.make(
                ClassificationHead,
                self.units,
                class_names=self.class_names,
                bias_initializer=self.bias_initializer,
                name=name,
                shape=(input_shape[0], input_shape[-1]),
            )

        self._token_shape = (2, input_shape[-1])
        self.token = classifier("token")
        self.distillation = classifier("distillation")

    def call(self, inputs):
        inputs = check_shape(self, inputs, self._token_shape)
        mean = self.token(inputs[:, 0]) + self.distillation(inputs[:, 1])
        return self.activation(mean / 2)

    def get_config(self):
        return super().get_config() | dict(
            activation=keras.activations.serialize(self.activation),
            bias_initializer=keras.initializers.serialize(
                self.bias_initializer
            ),
        )

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.units)
