"""The base class of layers that are made of other layers."""

import inspect
from collections.abc import Callable

import keras

from keras_vit._arguments import checked
from keras_vit._earlier_names import rename
from keras_vit._keras import nested_layers
from keras_vit.layers.frozen_weights import FrozenWeights


class CompositeLayer(FrozenWeights):
    """A layer that creates its sublayers in `build`.

    A sublayer takes the dtype policy and `trainable` of its layer. Later
    changes of a sublayer (quantised, frozen on its own, or with low-rank
    updates) are part of the layer's configuration, so that clones and loaded
    models equal the original.

    Args:
        sublayers: Name of a sublayer -> its arguments that differ from those
            that the layer sets, as in `get_config`. Not meant for callers.
    """

    @checked
    def __init__(self, sublayers: dict | None = None, **kwargs):
        super().__init__(**kwargs)
        self._differences = sublayers or {}

    @classmethod
    def from_config(cls, config):
        return super().from_config(rename(config))

    def make(self, layer_class, *args, name: str, **kwargs):
        """Return a new sublayer.

        Args:
            layer_class: Its class; the other arguments are those of the class.
            name: Its name.
        """
        policy = self.dtype_policy
        if isinstance(policy, keras.dtype_policies.DTypePolicyMap) and (
            not issubclass(layer_class, CompositeLayer)
        ):
            # Dense cannot be saved with a DTypePolicyMap.
            policy = policy[f"{self.path}/{name}"]
        settings = dict(dtype=policy, trainable=self.trainable)
        for key, value in self._differences.get(name, {}).items():
            # A composite layer takes the configuration of its own sublayers.
            settings[key] = (
                value
                if key == "sublayers"
                else keras.saving.deserialize_keras_object(value)
            )
        return layer_class(*args, name=name, **settings, **kwargs)

    def make_dropout(
        self, rate: float, name: str = "dropout", **kwargs
    ) -> Callable:
        """Return a dropout sublayer, or for rate 0 a function.

        Calling a layer that does nothing takes as long as a small product.

        Args:
            rate: Share of values set to zero in training.
            name: Its name.
            **kwargs: Other arguments of `keras.layers.Dropout`.
        """
        if not rate:
            return _unchanged
        return self.make(keras.layers.Dropout, rate, name=name, **kwargs)

    def get_config(self):
        config = super().get_config()
        # A class passes the arguments that it does not name on to its base.
        for base in type(self).__mro__[
            : type(self).__mro__.index(CompositeLayer)
        ]:
            for name in inspect.signature(base.__init__).parameters:  # type: ignore[misc]
                if name not in ("self", "sublayers", "args", "kwargs"):
                    config[name] = getattr(self, name)
        differences = self._differences
        if self.built:
            differences = self._find_differences(config)
        if differences:
            config["sublayers"] = dict(differences)
        return config

    def _find_differences(self, config):
        given = dict(
            dtype=config["dtype"],
            trainable=config["trainable"],
            quantization_config=None,
            lora_rank=None,
            lora_alpha=None,
            frozen=None,
            sublayers=None,
        )
        found = {}
        for layer in nested_layers(self, recursive=False):
            own = layer.get_config()
            different = {
                key: own[key]
                for key, value in given.items()
                if own.get(key, value) != value
            }
            if different:
                found[layer.name] = different
        return found


def _unchanged(x, training=None):
    return x
