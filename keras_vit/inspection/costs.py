"""The cost of a model: its parameters, multiply-accumulates and activations."""

import contextlib
import dataclasses
import functools
import inspect
import math
import sys

import keras
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit._keras import nested_layers
from keras_vit.ops import attention, convolution, linear


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

    @checked
    def grouped(self, depth: Count = 1) -> tuple[LayerCost, ...]:
        """Return the costs of layers, including their sublayers.

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
    """Build models whose variables have no values, and so take no memory.

    For `cost` of models that do not fit. Keras would give them values when the
    next stateless call ends, such as `predict` on JAX: its session is cleared,
    which forgets them.
    """
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session(free_memory=False)


@checked
def cost(
    model: keras.Model, input_shape: tuple[Count, ...] | None = None
) -> Cost:
    """Return what a model costs: parameters, MACs and activations.

    Counted while the backend traces the forward pass of one example, at
    inference: nothing is computed, and variables need neither memory nor
    values. A multiply-accumulate (MAC) is one product in a matrix product or
    a convolution, and its sum: twice as many operations (FLOPs). Other work,
    such as that of norms, is not counted.

    Args:
        model: A model with one input.
        input_shape: Shape of an example, without the batch; the model's.

    Raises:
        ValueError: If the model's input has unknown sizes, or does not fit, or
            the model has recurrent layers.

    Example:
        model = keras_vit.ViTB16(input_shape=(32, 32, 3))
        print(keras_vit.cost(model))
        print(keras_vit.cost(model).macs)
    """
    for layer in nested_layers(model):
        if isinstance(layer, keras.layers.RNN):
            # Backends trace none of its steps, or one, or two.
            raise ValueError(
                "`model` must have no recurrent layers, whose steps are not "
                f"counted. Received: {model.name!r} with {layer.name!r}"
            )
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


class _Counter:
    """A context that counts the products of a model's layers.

    It watches the calls of Python functions, as a profiler does.
    """

    def __init__(self, model):
        self.model = model
        self.layers = [
            layer
            for layer in nested_layers(model)
            if isinstance(layer, keras.layers.Layer)
        ]
        self.calls = {
            _code(call)
            for layer in self.layers
            for call in (layer.call, layer.quantized_call)
        }
        self.counted = _COUNTED | _of_graphs((model, *self.layers))
        self.counts = {"": [0, 0]}
        self.owners = {}  # path -> layer
        self.entered = []  # (frame, layer) of each call that has not returned
        self.product = None  # the frame that counts, and what it counts

    def __enter__(self):
        self.before = sys.getprofile()
        sys.setprofile(self._watch)
        return self

    def __exit__(self, *error):
        sys.setprofile(self.before)

    def _watch(self, frame, event, result):
        if event == "call":
            if frame.f_code in self.calls:
                self._enter(frame)
            elif frame.f_code in self.counted and self.product is None:
                count = functools.partial(
                    self.counted[frame.f_code], **frame.f_locals
                )
                self.product = frame, count
        elif event == "return":
            if self.product and self.product[0] is frame:
                (_, count), self.product = self.product, None
                if result is not None:  # not of an error
                    self._add(*count(result.shape))
            if self.entered and self.entered[-1][0] is frame:
                self.entered.pop()

    def _enter(self, frame):
        layer = frame.f_locals.get("self")
        if all(layer is not one for one in self.layers) or (
            self.entered and self.entered[-1][1] is layer
        ):
            return  # the base class of a layer that was entered
        self.entered.append((frame, layer))
        path = self._path()
        self.owners.setdefault(path, layer)
        self.counts.setdefault(path, [0, 0])
        # A layer that computes products in another form counts them itself.
        count = getattr(layer, "count_products", None)
        if count is not None and self.product is None:
            self._add(*count())
            self.product = frame, lambda shape: (0, 0)

    def _path(self):
        return "/".join(layer.name for _, layer in self.entered)

    def _add(self, macs, activations):
        counts = self.counts[self._path()]
        counts[0] += macs
        counts[1] += activations

    def result(self):
        """Return the `Cost`; each variable counts for the first of its
        layers."""
        counted, parameters = set(), {}
        owners = self.owners | {"": self.model}
        for layer in self.layers:  # those that the forward pass does not call
            if all(layer is not owner for owner in owners.values()):
                owners[layer.path] = layer
        for path, layer in owners.items():
            below = {
                id(v) for each in nested_layers(layer) for v in each.weights
            }
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
    """Add up the numbers of several `LayerCost`."""
    numbers = (dataclasses.astuple(layer)[1:] for layer in layers)
    return map(sum, zip(*numbers, strict=True))


def _shape(model, given):
    """Return the shape of an example, all sizes known."""
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
    own = inputs[0].shape[1:] if inputs else shape
    if len(own) != len(shape) or any(
        n not in (None, m) for n, m in zip(own, shape, strict=True)
    ):
        raise ValueError(
            f"`input_shape` must be {own}, without the batch, as "
            f"{model.name!r} takes. Received: input_shape={given}"
        )
    return tuple(shape)


def _code(function):
    """Return what identifies a function of Python when it runs."""
    return getattr(inspect.unwrap(function), "__code__", None)


def _matmul(shape, x1, **unused):
    return math.prod(shape) * x1.shape[-1], math.prod(shape)


def _linear(shape, x, **unused):
    return math.prod(shape) * x.shape[-1], math.prod(shape)


def _tensordot(shape, x1, x2, **unused):
    # Each is the product of two of three sizes: x1's free axes, x2's, and
    # those that are summed over.
    sizes = (shape, x1.shape, x2.shape)
    return math.isqrt(math.prod(map(math.prod, sizes))), math.prod(shape)


def _einsum(shape, operands, subscripts=None, self=None, **unused):
    if len(operands) == 1:
        return 0, 0
    subscripts = subscripts or self.subscripts
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


def _conv(shape, kernel, **unused):
    return math.prod(shape) * math.prod(kernel.shape[:-1]), math.prod(shape)


def _depthwise_conv(shape, kernel, **unused):
    return math.prod(shape) * math.prod(kernel.shape[:-2]), math.prod(shape)


def _separable_conv(shape, depthwise_kernel, pointwise_kernel, **unused):
    channels_in, channels = pointwise_kernel.shape[-2:]
    between = math.prod(shape) // channels * channels_in
    macs, written = _depthwise_conv((between,), depthwise_kernel)
    return macs + math.prod(shape) * channels_in, written + math.prod(shape)


def _conv_transpose(shape, inputs, kernel, **unused):
    macs = math.prod(inputs.shape) * math.prod(kernel.shape[:-1])
    return macs, math.prod(shape)


def _fused_attention(shape, key, **unused):
    batch_size, tokens, heads, width = shape
    logits = batch_size * heads * tokens * key.shape[2]
    return 2 * logits * width, logits + math.prod(shape)


def _attention(shape, query, key, **unused):
    batch_size, queries, heads, width = query.shape
    logits = batch_size * heads * queries * key.shape[1]
    return 2 * logits * width, logits + math.prod(shape)


# Functions of `keras.ops`, and our own, that are counted, and how: from the
# shape of the output and the arguments, MACs and values written.
_COUNTED = {
    _code(function): count
    for function, count in (
        (ops.matmul, _matmul),
        (linear.linear, _linear),
        (ops.dot, _tensordot),
        (ops.tensordot, _tensordot),
        (ops.einsum, _einsum),
        (ops.conv, _conv),
        (convolution.conv, _conv),
        (ops.depthwise_conv, _depthwise_conv),
        (ops.separable_conv, _separable_conv),
        (ops.conv_transpose, _conv_transpose),
        (ops.dot_product_attention, _attention),
        (attention.fused_attention, _fused_attention),
    )
}


def _of_graphs(models):
    """Return how the products in graphs of models that are no layers count.

    There an `Einsum` with a `call` of its own stands for `keras.ops.einsum`.
    """
    of_name = {
        function.__name__.replace("_", ""): _COUNTED[_code(function)]
        for function in vars(ops).values()
        if _code(function) in _COUNTED
    }
    found = {}
    for model in models:
        for operation in getattr(model, "operations", ()):
            name = type(operation).__name__.lower()
            if name in of_name and not isinstance(operation, keras.Layer):
                found[_code(operation.call)] = of_name[name]
    return found
