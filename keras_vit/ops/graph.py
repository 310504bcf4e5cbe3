"""The layers of a functional model, one after the other."""

import weakref

import keras
from keras import tree

from keras_vit._keras import say_once
from keras_vit.ops.linear import is_compiled


class Model(keras.Model):
    """A functional model that keeps no output longer than layers read it.

    Keras keeps those of all layers until the last is there. PyTorch, where it
    needs no gradient, so takes new memory for each layer, twice as much as here
    with ViT-B/16, and time to write to it first (docs/benchmarks.md).
    """

    if keras.backend.backend() == "torch":

        def _run_through_graph(self, inputs, *args, **kwargs):
            plan = None
            # Keras passes `call_fn` where it computes no values.
            if not (args or "call_fn" in kwargs) and _is_eager(inputs):
                plan = _plan(self)
            if plan is None:
                return super()._run_through_graph(inputs, *args, **kwargs)
            of = kwargs.get("operation_fn", lambda operation: operation)
            flat = [id(x) for x in self.inputs]
            values = dict(zip(flat, tree.flatten(inputs), strict=True))
            del inputs
            for node, read_last in plan:
                arguments, keywords = node.arguments.fill_in(values)
                outputs = of(node.operation)(*arguments, **keywords)
                del arguments, keywords
                for x, y in zip(
                    node.outputs, tree.flatten(outputs), strict=True
                ):
                    values[id(x)] = y
                del outputs, x, y
                for name in read_last:
                    del values[name]
            return tree.map_structure(lambda x: values[id(x)], self.output)

        def zero_grad(self, set_to_none=True):
            """Clear the gradient of each variable.

            Keras clears that of one of each path, and two towers have blocks
            of the same paths: the others would add up over the steps.
            """
            for variable in self.trainable_variables:
                variable.value.grad = None


def _is_eager(inputs):
    import torch

    flat = tree.flatten(inputs)
    return (
        not is_compiled()
        and not torch.is_grad_enabled()
        and all(isinstance(x, torch.Tensor) for x in flat)
    )


_PLANS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _plan(model):
    """Return the calls of layers in order, and what each is the last to read.

    None where Keras has not the names that this needs.
    """
    if model not in _PLANS:
        try:
            _PLANS[model] = _planned(model)
        except AttributeError as error:
            say_once(str(error))
            _PLANS[model] = None
    return _PLANS[model]


def _planned(model):
    by_depth = model._nodes_by_depth
    nodes = [
        node
        for depth in sorted(by_depth, reverse=True)
        for node in by_depth[depth]
        if node.operation is not None and not node.is_input
    ]
    last: dict[int, int] = {}
    for i, node in enumerate(nodes):
        _ = node.arguments.fill_in
        for x in (*node.input_tensors, *node.outputs):
            last[id(x)] = i
    for x in model.outputs:
        last.pop(id(x), None)
    read_last: list[list[int]] = [[] for _ in nodes]
    for name, i in last.items():
        read_last[i].append(name)
    return tuple(zip(nodes, read_last, strict=True))
