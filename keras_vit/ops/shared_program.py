"""One compiled program for the layers of a model that are alike (PyTorch)."""

import threading
from collections.abc import Callable

import keras

from keras_vit._keras import has_other_values
from keras_vit.ops.linear import is_compiled, is_transformed

# PyTorch records and compiles for one thread at a time.
_COMPILING = threading.Lock()


class SharedProgram:
    """What a layer computes, compiled, with its weights as arguments.

    Where torch.compile meets a model of Keras, it follows every call of every
    layer, which takes seconds for each block of ViT-B/16. Here torch.export
    records the operations of one layer, and those like it use the same program.

    Args:
        function: What `layer` computes of one tensor, without dropout.
        layer: A layer, built.
        **options: Those of torch.compile.
    """

    def __init__(
        self, function: Callable, layer: keras.layers.Layer, **options
    ):
        self._function = function
        self._weights = list(layer.weights)
        self._options = options
        self._programs: dict = {}

    def of(self, layer: keras.layers.Layer) -> Callable:
        """Return a function of the inputs and the mode of a layer like it.

        It returns None where the layer has to compute itself: with dropout in
        training, with other weights than it had, such as those of LoRA or of
        `stateless_call`, and where PyTorch computes shapes, or records or
        transforms operations.
        """
        # Read now, since within a call Keras casts them to the layer's type.
        values = [weight.value for weight in layer.weights]
        has_dropout = len(layer.variables) > len(values)

        def call(inputs, training):
            if (
                (training and has_dropout)
                or len(layer.weights) != len(values)
                or has_other_values()
                or inputs.is_meta
                or is_compiled()
                or is_transformed(inputs)
            ):
                return None
            key = (inputs.dtype, inputs.device, *inputs.shape[1:])
            if key in self._programs:
                return self._programs[key](inputs, values)
            with _COMPILING:
                program = self._programs.get(key)
                if program is None:
                    program = self._compile(inputs, values)
                outputs = program(inputs, values)  # compiles what is recorded
                self._programs[key] = program
            return outputs

        return call

    def _compile(self, inputs, values):
        import torch

        function, weights = self._function, self._weights

        class Stateless(torch.nn.Module):
            def forward(self, inputs, values):
                mapping = list(zip(weights, values, strict=True))
                with keras.StatelessScope(mapping):
                    return function(inputs)

        # PyTorch would take a batch of one for a constant.
        example = torch.zeros_like(inputs[:1]).repeat_interleave(2, dim=0)
        recorded = torch.export.export(
            Stateless(),
            (example, [value.detach() for value in values]),
            dynamic_shapes=(
                {0: torch.export.Dim("batch")},
                [None] * len(values),
            ),
            strict=False,
        )
        return torch.compile(recorded.module(), **self._options)
