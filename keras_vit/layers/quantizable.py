"""Which layers can be quantised."""

import keras


def quantizable(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer can be quantised, as a filter for `quantize`.

    `keras.Model.quantize` warns about every layer that it does not quantise,
    including layers without a kernel.

    Args:
        layer: A layer.

    Example:
        model.quantize("int8", filters=keras_vit.layers.quantizable)
    """
    return type(layer).quantize is not keras.layers.Layer.quantize
