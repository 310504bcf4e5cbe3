"""The linear classifier."""

import keras


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassificationHead(keras.layers.Dense):
    """A dense layer that starts at zero and knows its classes' names.

    The paper fine-tunes with a zero-initialised D x K layer. The names stay
    with the layer, so that a saved model can say what it sees.

    Args:
        units: Number of classes K.
        labels: Names of the classes by index, or None.

    Input shape: `[..., D]`
    Output shape: `[..., K]`

    Raises:
        ValueError: If the number of `labels` is not `units`.

    Reference:
        Dosovitskiy et al. 2021, section 3.2.
    """

    def __init__(
        self,
        units: int,
        labels: tuple[str, ...] | None = None,
        kernel_initializer="zeros",
        **kwargs,
    ):
        super().__init__(units, kernel_initializer=kernel_initializer, **kwargs)
        self.labels = None if labels is None else tuple(labels)
        if self.labels is not None and len(self.labels) != units:
            raise ValueError(
                "`labels` of ClassificationHead must name each of the "
                f"`units` = {units} classes. Received: {len(self.labels)} names"
            )

    def quantize(self, mode=None, type_check=True, config=None):
        # Dense refuses its subclasses, which might multiply otherwise.
        super().quantize(mode, type_check=False, config=config)

    def get_config(self):
        return {**super().get_config(), "labels": self.labels}
