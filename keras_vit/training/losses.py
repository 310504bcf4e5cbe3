"""Losses that Keras lacks."""

import keras
from keras import ops

from keras_vit._arguments import Rate, checked


@keras.saving.register_keras_serializable(package="keras_vit")
class SigmoidCrossentropy(keras.losses.Loss):
    """Independent binary cross-entropies of logits, summed over the classes.

        l = - sum_k y_k log sigmoid(z_k) + (1 - y_k) log sigmoid(-z_k)

    Keras' `BinaryCrossentropy` takes their mean, which divides the gradient
    by the number of classes.

    Args:
        label_smoothing: Share of each label moved to one half.
        name: Name of the loss.

    Call arguments: labels and logits, `[B, K]`.

    Reference:
        Dosovitskiy et al. 2021, section B.1 (JFT-300M and ImageNet-21k have
        several labels an image); checked against `sigmoid_xent` of
        google-research/big_vision.
    """

    from_logits = True

    @checked
    def __init__(
        self,
        label_smoothing: Rate = 0.0,
        name: str = "sigmoid_crossentropy",
        reduction: str | None = "sum_over_batch_size",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        """Return the loss of each image, `[B]`."""
        y_true = ops.cast(y_true, y_pred.dtype)
        y_true = y_true * (1 - self.label_smoothing) + self.label_smoothing / 2
        losses = ops.binary_crossentropy(y_true, y_pred, from_logits=True)
        return ops.sum(losses, axis=-1)

    def get_config(self):
        """Return the constructor's arguments."""
        return super().get_config() | {"label_smoothing": self.label_smoothing}
