"""The cost of a model: its parameters, multiply-accumulates and activations."""

import contextlib
import dataclasses
import functools
import math
import sys

import keras
from keras import ops

from keras_vit.ops import attention_products, linear


@dataclasses.dataclass(frozen=True, slots=True)
class LayerCost:
    """The cost of one layer, without its sublayers.

    Attributes:
        path: Names of the layer and of those that contain it, such as
            "predictions/dense"; "" for the model itself.
        parameters: Values of its variables.
        macs: Multiply-accumulates for one example.
        activations: Values that its matrix products and convolutions write.
    """

    path: str
    parameters: int
    macs: int
    activations: int


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a model, by layer and in total; prints as a table.

    Attributes:
        layers: The layers that cost anything, in the order of the forward
            pass.
    """

    layers: tuple[LayerCost, ...]

    @property
    def parameters(self) -> int:
        """Values of all variables."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one example's forward pass."""
        return sum(layer.macs for layer in self.layers)

    @property
    def activations(self) -> int:
        """Values that matrix products and convolutions write, of one example.

        The definition of Radosavovic et al. 2020 (2003.13678, section 3),
        with the products of attention among them.
        """
        return sum(layer.activations for layer in self.layers)

    def grouped(self, depth: int = 1) -> tuple[LayerCost, ...]:
        """Returns the costs of layers, including their sublayers.

        Args:
            depth: Names of a path that make a group; 1 gives the model's own
                layers, such as each block.
        """
        groups = {}
        for layer in self.layers:
            path = "/".join(layer.path.split("/")[:depth])
            groups.setdefault(path, []).append(layer)
        return tuple(
            LayerCost(path, *_sums(members)) for path, members in groups.items()
        )

    def __str__(self) -> str:  # noqa: D105
        rows = [
            *self.grouped(),
            LayerCost("all", self.parameters, self.macs, self.activations),
        ]
        cells = [("layer", "parameters", "MACs", "activations")] + [
            (row.path, *(f"{n:,}" for n in dataclasses.astuple(row)[1:]))
            for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            f"{first:<{widths[0]}}"
            + "".join(
                f"  {n:>{width}}"
                for n, width in zip(rest, widths[1:], strict=True)
            )
            for first, *rest in cells
        )


@contextlib.contextmanager
def shapes_alone():
    """Builds models whose variables have no values, and so take no memory.

    For `cost` of models that do not fit. Keras would give them values when the
    next stateless call ends, such as `predict` on JAX: its session is cleared,
    which forgets them.
    """
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session(free_memory=False)


def cost(
    model: keras.Model, input_shape: tuple[int, ...] | None = None
) -> Cost:
    """Returns what a model costs: parameters, MACs and activations.

    Counted while the backend traces the forward pass of one example, at
    inference: nothing is computed, and variables need neither memory nor
    values. A multiply-accumulate (MAC) is one product in a matrix product or
    a convolution, and its sum: twice as many operations (FLOPs). Other work,
    such as that of norms, is not counted.

    Args:
        model: A model with one input.
        input_shape: Shape of an example, without the batch; the model's.

    Raises:
        ValueError: If the model's input has unknown sizes, or does not fit.

    Example:
        model = keras_vit.ViTB16(input_shape=(32, 32, 3))
        print(keras_vit.cost(model))
        print(keras_vit.cost(model).macs)
    """
    spec = keras.KerasTensor((1, *_shape(model, input_shape)))
    counters = []

    def run(x):
        # If shapes do not suffice, PyTorch traces again on the CPU.
        counters.append(_Counter(model))
        # Traced zeros replace the values of the variables.
        values = [(v, ops.zeros(v.shape, v.dtype)) for v in model.variables]
        with keras.StatelessScope(values), counters[-1]:
            return model(x, training=False)

    # The outermost scope would initialise a model that was built without
    # values.
    with keras.StatelessScope(initialize_variables=False):
        _Traced(run).compute_output_spec(spec)
    return counters[-1].result()


class _Traced(keras.Operation):
    """Returns a function of symbolic tensors, which the backend traces."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


class _Counter(contextlib.ExitStack):
    """A context that counts the products of a model's layers."""

    def __init__(self, model):
        super().__init__()
        self.layers = [
            layer
            for layer in model._flatten_layers()
            if isinstance(layer, keras.layers.Layer) and layer is not model
        ]
        self.model = model
        self.counts = {"": [0, 0]}
        self.owners = {}  # path -> layer
        self.path = []
        self.counting = True

    def __enter__(self):
        super().__enter__()
        # Keras' layers import these functions from other modules than
        # `keras.ops`.
        for name, count in _COUNTED.items():
            function = _OURS.get(name) or getattr(ops, name)
            for module in list(sys.modules.values()):
                if getattr(module, "__dict__", {}).get(name) is function:
                    watch = functools.partial(self._count, count)
                    self._replace(module, name, watch)
        for layer in self.layers:
            self._replace(layer, "call", functools.partial(self._enter, layer))
        return self

    def _replace(self, owner, name, watch):
        """Replaces a function by a call of `watch(function, ...)`."""
        function = getattr(owner, name)
        is_own = name in vars(owner)
        setattr(owner, name, functools.partial(watch, function))
        if is_own:
            self.callback(setattr, owner, name, function)
        else:
            self.callback(delattr, owner, name)

    def _count(self, count, function, *args, **kwargs):
        with self._paused() as was_counting:
            output = function(*args, **kwargs)
        if was_counting:
            self._add(*count(output.shape, *args, **kwargs))
        return output

    @contextlib.contextmanager
    def _paused(self):
        """Suspends counting; yields whether counting was active."""
        before, self.counting = self.counting, False
        try:
            yield before
        finally:
            self.counting = before

    def _add(self, macs, activations):
        counts = self.counts["/".join(self.path)]
        counts[0] += macs
        counts[1] += activations

    def _enter(self, layer, function, *args, **kwargs):
        self.path.append(layer.name)
        path = "/".join(self.path)
        self.owners.setdefault(path, layer)
        self.counts.setdefault(path, [0, 0])
        try:
            # A layer that computes products in another form counts them itself.
            count = getattr(layer, "count_products", None)
            if count is None or not self.counting:
                return function(*args, **kwargs)
            self._add(*count())
            with self._paused():
                return function(*args, **kwargs)
        finally:
            self.path.pop()

    def result(self):
        """Returns the `Cost`; each variable counts for the first of its
        layers."""
        counted, parameters = set(), {}
        owners = self.owners | {"": self.model}
        for layer in self.layers:  # those that the forward pass does not call
            if all(layer is not owner for owner in owners.values()):
                owners[layer.path] = layer
        for path, layer in owners.items():
            within = layer._flatten_layers(include_self=False)
            below = {id(v) for each in within for v in each.weights}
            own = [
                v
                for v in layer.weights
                if id(v) not in below and id(v) not in counted
            ]
            counted |= {id(v) for v in own}
            parameters[path] = sum(math.prod(v.shape) for v in own)
        costs = [
            LayerCost(path, count, *self.counts.get(path, (0, 0)))
            for path, count in parameters.items()
        ]
        return Cost(
            tuple(c for c in costs if c.parameters or c.macs or c.activations)
        )


def _sums(layers):
    """Adds up the numbers of several `LayerCost`."""
    numbers = (dataclasses.astuple(layer)[1:] for layer in layers)
    return map(sum, zip(*numbers, strict=True))


def _shape(model, given):
    """Returns the shape of an example, all sizes known."""
    inputs = getattr(model, "inputs", None)
    if inputs is not None and len(inputs) != 1:
        raise ValueError(
            f"`model` must have one input. Received: {model.name!r}, with "
            f"{len(inputs)}"
        )
    shape = inputs[0].shape[1:] if given is None and inputs else given
    if shape is None or None in shape:
        raise ValueError(
            f"`input_shape` must be given for {model.name!r}, whose input "
            f"leaves sizes open. Received: input_shape={given}"
        )
    return tuple(shape)


def _matmul(shape, x1, x2, *args):
    return math.prod(shape) * x1.shape[-1], math.prod(shape)


def _tensordot(shape, x1, x2, *args, **kwargs):
    # Each is the product of two of three sizes: x1's free axes, x2's, and
    # those that are summed over.
    sizes = (shape, x1.shape, x2.shape)
    return math.isqrt(math.prod(map(math.prod, sizes))), math.prod(shape)


def _einsum(shape, subscripts, *operands, **kwargs):
    if len(operands) == 1:
        return 0, 0
    names, *_ = subscripts.replace(" ", "").split("->")
    sizes = {}
    for letters, operand in zip(names.split(","), operands, strict=True):
        before, dots, after = letters.partition("...")
        ends = operand.shape[len(operand.shape) - len(after) :]
        sizes |= zip(before, operand.shape, strict=False)
        sizes |= zip(after, ends, strict=True)
        if dots:
            rest = operand.shape[len(before) : len(operand.shape) - len(after)]
            sizes["..."] = max(sizes.get("...", 0), math.prod(rest))
    products = math.prod(sizes.values()) * (len(operands) - 1)
    return products, math.prod(shape)


def _conv(shape, inputs, kernel, *args, **kwargs):
    return math.prod(shape) * math.prod(kernel.shape[:-1]), math.prod(shape)


def _depthwise_conv(shape, inputs, kernel, *args, **kwargs):
    return math.prod(shape) * math.prod(kernel.shape[:-2]), math.prod(shape)


def _separable_conv(
    shape, inputs, depthwise_kernel, pointwise_kernel, *args, **kwargs
):
    channels_in, channels = pointwise_kernel.shape[-2:]
    between = math.prod(shape) // channels * channels_in
    macs, written = _depthwise_conv((between,), inputs, depthwise_kernel)
    return macs + math.prod(shape) * channels_in, written + math.prod(shape)


def _conv_transpose(shape, inputs, kernel, *args, **kwargs):
    macs = math.prod(inputs.shape) * math.prod(kernel.shape[:-1])
    return macs, math.prod(shape)


def _fused_attention(shape, query, key, value):
    batch_size, tokens, heads, width = shape
    logits = batch_size * heads * tokens * key.shape[2]
    return 2 * logits * width, logits + math.prod(shape)


def _attention(shape, query, key, *args, **kwargs):
    batch_size, queries, heads, width = query.shape
    logits = batch_size * heads * queries * key.shape[1]
    return 2 * logits * width, logits + math.prod(shape)


# Functions of `keras.ops`, and our own, that are counted, and how: from the
# shape of the output and the arguments, MACs and values written.
_COUNTED = dict(
    matmul=_matmul,
    linear=_matmul,  # of our dense layers
    dot=_tensordot,
    tensordot=_tensordot,
    einsum=_einsum,
    conv=_conv,
    depthwise_conv=_depthwise_conv,
    separable_conv=_separable_conv,
    conv_transpose=_conv_transpose,
    dot_product_attention=_attention,
    fused_attention=_fused_attention,
)
_OURS = dict(
    linear=linear.linear, fused_attention=attention_products.fused_attention
)
