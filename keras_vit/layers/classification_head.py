"""The linear classifier."""

import keras

from keras_vit._arguments import Count, check_class_names, checked
from keras_vit.layers.dense import Dense


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
