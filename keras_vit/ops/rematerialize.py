"""Recomputing activations in the backward pass."""

import keras
from keras import ops


def rematerialize(layer: keras.layers.Layer, function, inputs):
    """Return `function(inputs)` without storing its activations.

    Only `inputs` are stored for the backward pass, which runs `function` a
    second time: less memory, a third more work. The variables of `layer`, the
    only ones that `function` may use, are passed as arguments, and their new
    values are returned as results. The second run thus draws the same dropout
    masks as the first, and `keras.remat` sees a function without side effects.

    Args:
        layer: The layer, built, whose variables `function` uses.
        function: Takes one tensor and returns one tensor.
        inputs: Its argument.
    """
    variables = layer.variables  # with the states of seed generators
    state = [v for v in variables if not v.trainable]

    def forward(inputs, *values):
        mapping = list(zip(variables, values, strict=True))
        with keras.StatelessScope(mapping) as scope:
            outputs = function(inputs)
        return outputs, *[scope.get_current_value(v) for v in state]

    # State is copied, since PyTorch assigns in place.
    values = [v.value if v.trainable else ops.copy(v) for v in variables]
    outputs, *updates = keras.remat(forward)(inputs, *values)
    for variable, value in zip(state, updates, strict=True):
        variable.assign(value)
    return outputs
