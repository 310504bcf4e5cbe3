"""Layers of which some weights are frozen."""

import keras

from keras_vit._keras import nested_layers


class FrozenWeights(keras.layers.Layer):
    """A layer that records which of its own weights are frozen.

    Keras records whether a layer is trainable, not each weight. A clone or a
    loaded layer would train a bias with `bias.trainable = False`.

    Args:
        frozen: Names of the weights that are frozen although the layer is
            trainable, as in `get_config`. Not meant for callers.
    """

    def __init__(self, *args, frozen: tuple[str, ...] = (), **kwargs):
        super().__init__(*args, **kwargs)
        self._frozen = tuple(frozen)
        self._is_trained: dict[str, bool] = {}  # name -> as it was created

    def add_weight(self, *args, **kwargs):
        weight = super().add_weight(*args, **kwargs)
        self._is_trained[weight.name] = weight.trainable
        if weight.name in self._frozen:
            weight.trainable = False
        return weight

    def freeze_weights(self):
        """Freeze the layer's own weights, not those of its sublayers."""
        for weight in self._own_weights():
            weight.trainable = False

    def _own_weights(self):
        """Return the layer's own weights that were created trainable."""
        inner = {id(w) for x in nested_layers(self) for w in x.weights}
        return [
            weight
            for weight in self.weights
            if id(weight) not in inner and self._is_trained.get(weight.name)
        ]

    def get_config(self):
        frozen = list(self._frozen)
        if self.built:
            frozen = [
                weight.name
                for weight in self._own_weights()
                if self.trainable and not weight.trainable
            ]
        return super().get_config() | ({"frozen": frozen} if frozen else {})
