"""Layers of which some weights are frozen."""


class FrozenWeights:
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

    def add_weight(self, *args, **kwargs):
        weight = super().add_weight(*args, **kwargs)
        if weight.name in self._frozen:
            weight.trainable = False
        return weight

    def freeze_weights(self):
        """Freezes the layer's own weights, not those of its sublayers."""
        for weight in self._trainable_variables:
            weight.trainable = False

    def get_config(self):
        frozen = list(self._frozen)
        if self.built:
            frozen = [
                weight.name
                for weight in self._trainable_variables
                if self.trainable and not weight.trainable
            ]
        return super().get_config() | ({"frozen": frozen} if frozen else {})
