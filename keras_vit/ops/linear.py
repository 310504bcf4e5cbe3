"""Products of matrices, and the activations that follow them."""

import functools
import math

import keras
from keras import ops

from keras_vit._keras import say_once
from keras_vit.ops.dtypes import at_least_float32
from keras_vit.ops.xla import by_rows, with_derivative


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu(x):
    """Return the exact GELU."""
    if keras.backend.standardize_dtype(x.dtype) == "float64":
        # TensorFlow's operation has the root of 2 in float32.
        return 0.5 * x * (1 + ops.erf(x * 0.5**0.5))
    return _gelu(x)


def _derive_gelu(primals, tangents):
    (x,), (change,) = primals, tangents
    wide = at_least_float32(x)
    y = 0.5 * wide * (1 + ops.erf(wide * 0.5**0.5))
    # Of -x, so that XLA does not keep what it computes again in a moment.
    share = 0.5 * (1 - ops.erf(-wide * 0.5**0.5))
    density = ops.exp(-0.5 * ops.square(wide)) * (2 * math.pi) ** -0.5
    slope = ops.cast(share + wide * density, x.dtype)
    return ops.cast(y, x.dtype), slope * change


# XLA keeps x and the result; for JAX' derivative it keeps three arrays more.
@with_derivative(_derive_gelu)
def _gelu(x):
    return ops.gelu(x, approximate=False)


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu_tanh(x):
    """Return the tanh form of GELU."""
    if keras.backend.backend() == "torch" and _is_fused():
        # The same function; tanh takes twice as long in PyTorch's programs.
        y = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        y = y * ops.sigmoid((8 / math.pi) ** 0.5 * (y + 0.044715 * y**3))
        return ops.cast(y, x.dtype)
    return _gelu_tanh(x)


def _derive_gelu_tanh(primals, tangents):
    (x,), (change,) = primals, tangents
    wide = at_least_float32(x)
    factor = (8 / math.pi) ** 0.5
    # Not by tanh, so that XLA does not keep what it computes again in a moment.
    share = ops.sigmoid(factor * (wide + 0.044715 * wide**3))
    slope = factor * (1 + 3 * 0.044715 * ops.square(wide))
    slope = share + wide * share * (1 - share) * slope
    return ops.gelu(x, approximate=True), ops.cast(slope, x.dtype) * change


@with_derivative(_derive_gelu_tanh)
def _gelu_tanh(x):
    return ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_vit")
def quick_gelu(x):
    """Return x sigmoid(1.702 x), the activation of OpenAI's CLIP."""
    y = 1.702 * x
    if keras.backend.backend() == "torch" and _may_overwrite(x):
        return y.sigmoid_().mul_(x)
    return x * ops.sigmoid(y)


def multiply_add(x, factor, y):
    """Return `x * factor + y`; PyTorch reads and writes memory once.

    Args:
        x, y: Tensors of one shape and dtype.
        factor: A tensor of this dtype that broadcasts to them.
    """
    if keras.backend.backend() != "torch":
        return x * factor + y
    import torch

    return torch.addcmul(y, x, factor)


def _is_fused():
    import torch

    # ONNX has an operation for GELU.
    return torch.compiler.is_compiling() and not torch.onnx.is_in_onnx_export()


def is_compiled() -> bool:
    """Return whether PyTorch makes a graph of its own kind of a program."""
    import torch

    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed(*tensors) -> bool:
    """Return whether PyTorch needs operations for which it has all rules.

    torch.func, derivatives in forward mode, recorders such as make_fx and
    FlopCounterMode, and subclasses of tensors know PyTorch's public operations.
    Those of a library or of a device they reject, drop or record as they are.

    Args:
        tensors: What an operation takes; None is ignored.
    """
    import torch

    unpack = torch.autograd.forward_ad.unpack_dual
    return any(is_active() for is_active in probes()) or any(
        type(x) not in (torch.Tensor, torch.nn.Parameter)
        or unpack(x).tangent is not None
        for x in tensors
        if x is not None
    )


@functools.cache
def probes() -> tuple:
    """Return functions that say whether the process transforms operations."""
    import torch

    try:
        return (
            torch._C._are_functorch_transforms_active,
            torch._C._len_torch_dispatch_stack,
        )
    except AttributeError as error:  # without them one cannot know
        say_once(str(error))
        return (lambda: True,)


# oneDNN's names of the activations that it fuses into a product.
_FUSED = {gelu: "none", gelu_tanh: "tanh"}


def linear(x, kernel, bias=None, activation=None):
    """Return `activation(x @ kernel + bias)`.

    XLA and TensorFlow fuse the bias and the activation into the product. Keras
    calls an operation of PyTorch for each. On x86 CPUs PyTorch computes
    products of float32 with MKL, which takes twice as long as its other
    library, oneDNN, on processors of AMD with AVX-512, and less on those
    without (docs/benchmarks.md).

    Args:
        x: Inputs, `[..., D]`.
        kernel: Its weights, `[D, F]`.
        bias: Added to each row, `[F]`, or None.
        activation: A function of `keras_vit.ops.linear`, or None.
    """
    dtype = keras.backend.standardize_dtype(x.dtype)
    # On CPUs Keras computes PyTorch's products of float16 in float32.
    fits = dtype in ("float32", "bfloat16")
    if keras.backend.backend() != "torch" or not fits:
        return by_rows(lambda x: _linear(x, kernel, bias, activation), x)
    import torch

    kernel = ops.cast(kernel, dtype)
    bias = None if bias is None else ops.cast(bias, dtype)
    x = x.to(kernel.device)
    by_onednn = _fits_onednn(x, kernel, bias)
    if by_onednn and not needs_gradient(x, kernel, bias):
        product = torch.ops.mkldnn._linear_pointwise
        if activation in _FUSED:
            form = _FUSED[activation]
            return product(x, kernel.T, bias, "gelu", [], form)
        y = product(x, kernel.T, bias, "none", [], "")
    elif by_onednn and x.dtype == torch.float32:
        y = _product()(x.reshape(-1, x.shape[-1]), kernel, bias)
        y = y.reshape(*x.shape[:-1], -1)
    else:
        y = torch.nn.functional.linear(x, kernel.T, bias)
        if activation in _FUSED and _may_overwrite(x, kernel, bias):
            return torch.ops.aten.gelu_(y, approximate=_FUSED[activation])
    return y if activation is None else activation(y)


def _linear(x, kernel, bias, activation):
    y = ops.matmul(x, kernel)
    y = y if bias is None else ops.add(y, bias)
    return y if activation is None else activation(y)


def _may_overwrite(*tensors):
    """Return whether PyTorch needs no values of an operation afterwards.

    Memory that was just written is in the cache of the processor.
    """
    return not (
        is_compiled() or is_transformed(*tensors) or needs_gradient(*tensors)
    )


def _fits_onednn(x, *weights):
    import torch

    return (
        # First, so that a compiler skips the rest.
        not is_compiled()
        and x.device.type == "cpu"
        and x.dtype in _onednn_dtypes()
        and x.numel() > 0
        and not is_transformed(x, *weights)
        # oneDNN's operation ignores autocast.
        and not torch.is_autocast_enabled("cpu")
    )


@functools.cache
def _onednn_dtypes():
    """Return the dtypes of oneDNN's products on this machine."""
    import torch

    # With AVX2 alone MKL is the faster one. The names are private.
    onednn = torch.ops.mkldnn
    names = "_linear_pointwise", "_is_mkldnn_bf16_supported"
    if not (
        torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and all(hasattr(onednn, name) for name in names)
    ):
        return ()
    if onednn._is_mkldnn_bf16_supported():
        return torch.float32, torch.bfloat16
    return (torch.float32,)


def needs_gradient(*tensors) -> bool:
    """Return whether autograd follows an operation on tensors, or None."""
    import torch

    return torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in tensors
    )


@functools.cache
def _product():
    """Return oneDNN's `a @ b + bias` of matrices, which has a gradient."""
    import torch

    # torch.compile has products of its own, and must not trace these.
    not_compiled = torch.compiler.disable

    class Product(torch.autograd.Function):
        @staticmethod
        @not_compiled
        def forward(a, b, bias):
            return torch.ops.mkldnn._linear_pointwise(
                a, b.T, bias, "none", [], ""
            )

        @staticmethod
        def setup_context(ctx, inputs, output):
            a, b, _ = inputs
            ctx.save_for_backward(a, b)

        @staticmethod
        @not_compiled
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            is_needed = ctx.needs_input_grad
            return (
                product(g, b.T) if is_needed[0] else None,
                product(a.T, g) if is_needed[1] else None,
                g.sum(0) if is_needed[2] else None,
            )

    def product(a, b):
        # Gradients may be transformed where the result was not.
        return a @ b if is_transformed(a, b) else Product.apply(a, b, None)

    return Product.apply
