"""Derivatives in both modes, and what else transforms a program."""

import catalogue
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.models.mvit_pooling import TokenPooling
from keras_vit.ops import attention, linear, norm, xla

# Between them they have every operation of this library that has a form of its
# own on a backend: products, attention, norms, convolutions and pooling.
FAMILIES = {
    "deit": {},
    "mixer": dict(num_layers=1),
    "axial vit": dict(remat=False),
    "bit": dict(depths=(1,)),
    "mvit": dict(
        depths=(1,),
        hidden_sizes=(8,),
        num_heads=(2,),
        query_stride=((1, 1, 1),),
        key_value_stride=((1, 2, 2),),
    ),
}
# PyTorch's own rules of forward derivatives are scripts.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is depr")


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return make_model(request.param)


def make_model(name):
    model = catalogue.make_model(name, **FAMILIES[name])
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        change = rng.normal(0, 0.2, weight.shape).astype("float32")
        weight.assign_add(change)
    return model


def on_line(model):
    """Returns the outputs on a line of images, as a function of a number."""
    rng = np.random.default_rng(1)
    shape = (2, 1, *model.input_shape[1:])
    start, change = rng.uniform(50, 200, shape).astype("float32")

    def outputs(s):
        x = ops.convert_to_tensor(start) + s * ops.convert_to_tensor(change)
        return model(x, training=False)

    return outputs


def assert_is_difference(derivative, model, function, step=3e-4):
    """Compares a derivative at 0 with central differences."""
    if model.name == "BiT":  # which has kinks, of ReLU
        return
    values = [function(ops.convert_to_tensor(s)) for s in (step, -step)]
    difference = (values[0] - values[1]) / (2 * step)
    assert_all_close(derivative, [difference], 1e-2)


def assert_all_close(expected, found, tolerance=1e-4):
    expected, *found = map(ops.convert_to_numpy, [expected, *found])
    scale = abs(expected).max()
    assert scale > 1e-6
    for values in found:
        np.testing.assert_allclose(values, expected, atol=tolerance * scale)


@pytest.mark.backend("torch")
def test_pytorch_differentiates_in_both_modes(model):
    import torch
    from torch.autograd import forward_ad

    outputs = on_line(model)
    zero, one = torch.zeros(()), torch.ones(())
    found = []
    for context in (torch.no_grad, torch.enable_grad):
        with context(), forward_ad.dual_level():
            y = outputs(forward_ad.make_dual(zero, one))
            found.append(forward_ad.unpack_dual(y).tangent)
    found.append(torch.func.jacfwd(outputs)(zero))
    jacobian = torch.autograd.functional.jacobian
    found.append(jacobian(outputs, zero, vectorize=True))
    expected = jacobian(outputs, zero)
    assert_all_close(expected, found)
    with torch.no_grad():
        assert_is_difference(expected, model, outputs)


@pytest.mark.backend("torch")
def test_pytorch_differentiates_twice(model):
    import torch

    outputs = on_line(model)

    def loss(s):
        return (outputs(s) ** 2).sum()

    def gradient(s):
        return torch.autograd.grad(loss(s.requires_grad_()), s)[0]

    s = torch.zeros((), requires_grad=True)
    (first,) = torch.autograd.grad(loss(s), s, create_graph=True)
    (second,) = torch.autograd.grad(first, s)
    assert_all_close(second, [torch.func.hessian(loss)(torch.zeros(()))])
    assert_is_difference(second, model, gradient)


@pytest.mark.backend("torch")
def test_pytorch_records_public_operations(model):
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    outputs = on_line(model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        outputs(0.0)
    flops = counter.get_total_flops()
    assert flops == 2 * keras_vit.cost(model).macs
    y = outputs(torch.zeros((), requires_grad=True))
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_total_flops() >= 2 * flops
    with torch.no_grad():
        program = make_fx(outputs)(torch.zeros(()))
        names = {str(node.target) for node in program.graph.nodes}
        assert not [n for n in names if "mkldnn" in n or "for_cpu" in n]
        s = torch.tensor(0.5)
        assert_all_close(outputs(s), [program(s)])


@pytest.mark.backend("torch")
def test_pytorch_maps_over_images(model):
    import torch

    outputs, places = on_line(model), torch.tensor([0.0, 0.5])
    with torch.no_grad():
        found = torch.vmap(outputs)(places)
        assert_all_close(torch.stack([outputs(s) for s in places]), [found])


@pytest.mark.backend("torch")
def test_tensors_of_another_class_take_plain_operations():
    import torch

    class Own(torch.Tensor):
        pass

    assert linear.is_transformed(torch.zeros(1).as_subclass(Own))
    assert not linear.is_transformed(torch.zeros(1), None)


@pytest.mark.backend("torch")
def test_plain_operations_replace_private_ones(monkeypatch):
    import torch

    outputs = on_line(make_model("deit"))
    with torch.no_grad():
        expected = outputs(0.0)
        uncached = linear.probes.__wrapped__
        monkeypatch.setattr(linear, "probes", uncached)
        monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack")
        assert linear.is_transformed()
        assert_all_close(expected, [outputs(0.0)])


# Its poolings have the one derivative of ours that the test of any order lacks.
@pytest.mark.backend("jax")
def test_jax_differentiates_in_both_modes():
    import jax

    model = make_model("mvit")
    outputs = jax.jit(on_line(model))
    forward = jax.jit(jax.jacfwd(outputs))(0.0)
    assert_all_close(jax.jit(jax.jacrev(outputs))(0.0), [forward])
    assert_is_difference(forward, model, outputs)


@pytest.mark.backend("jax")
def test_jax_traces_second_derivatives_for_tpus(monkeypatch):
    import jax

    monkeypatch.setattr(xla, "targets_tpu", lambda: True)
    outputs = on_line(make_model("deit"))
    for outer in (jax.jacrev, jax.jacfwd):
        assert jax.eval_shape(outer(jax.jacrev(outputs)), 0.0).shape == (1, 5)


@pytest.mark.backend("jax")
def test_jax_computes_gradients_of_rows_without_copies():
    import jax

    inputs, kernel, bias = (
        np.ones(n, "float32") for n in ((1, 7, 4), (4, 3), 3)
    )

    def loss(x, kernel, bias):
        return ops.sum(linear.linear(x, kernel, bias, linear.gelu) ** 2)

    gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
    program = gradient.lower(inputs, kernel, bias).as_text()
    # Of products with one axis of examples, and sums over this axis alone.
    assert "tensor<1x7x3xf32>, tensor<1x7x4xf32>" not in program
    assert "tensor<7x3xf32>, tensor<7x4xf32>" in program


@pytest.mark.backend("jax")
def test_jax_differentiates_in_any_order(monkeypatch):
    import jax

    start, direction = np.random.default_rng(0).normal(size=(2, 2, 3, 5, 5))
    forms = (
        (attention, "_softmax"),
        (attention, "_weighted_sum"),
        (linear, "_gelu"),
        (linear, "_gelu_tanh"),
        (norm, "_variance"),
        (norm, "_normalize_rows"),
        (xla, "_gradient_barrier"),
        (xla, "_gradient_by_rows"),
    )

    def loss(s):
        x = start.astype("float32") + s * direction.astype("float32")
        sums = attention._weighted_sum(x, xla.gradient_barrier(x**2))
        variance = norm._variance(x, ops.mean(x, -1, keepdims=True))
        matrix = xla.gradient_by_rows(x[0, 0]) ** 3
        rows = norm._normalize_rows(matrix, x[1, 0, 0], x[1, 1, 0], 1e-6)
        sums = attention.softmax(x) * sums * variance
        units = linear.gelu(rows) * linear.gelu_tanh(rows)
        return ops.sum((sums + matrix + units) ** 2)

    def tangent(function):
        return lambda s: jax.linearize(function, s)[1](1.0)

    @jax.jit
    def derivatives(s):
        once = [d(loss) for d in (jax.grad, jax.jacfwd, tangent)]
        twice = [d(f) for d in (jax.grad, jax.jacfwd) for f in once[:2]]
        return [f(s) for f in once], [f(s) for f in twice]

    found = derivatives(0.0)
    # Those that JAX derives from the operations themselves.
    for module, name in forms:
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
    expected = jax.grad(loss), jax.grad(jax.grad(loss))
    for derivative, values in zip(expected, found, strict=True):
        assert_all_close(jax.jit(derivative)(0.0), values)


@pytest.mark.backend("jax")
def test_jax_keeps_less_for_gradients_on_cpus(monkeypatch):
    import jax

    if jax.__version_info__ < (0, 10, 2):
        pytest.skip("an XLA that plans memory otherwise")
    pool = TokenPooling(
        (2, 8, 8), kernel_size=(1, 3, 3), strides=(1, 1, 1), class_token=False
    )
    pool.build((1, 128, 64))
    kernel = np.full((64, 64), 0.1, "float32")

    def memory():
        def loss(x, kernel, weights):
            for _ in range(3):
                x = norm._normalize_rows(x, kernel[0], kernel[1], 1e-6)
                x = linear.linear(linear.gelu(x @ kernel), kernel)
                x = linear.linear(linear.gelu_tanh(x @ kernel), kernel)
                x = pool.stateless_call(weights, [], x[None])[0][0]
            return ops.sum(x**2)

        weights = [pool.kernel.value]
        gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
        program = gradient.lower(np.ones((128, 64), "float32"), kernel, weights)
        return program.compile().memory_analysis().temp_size_in_bytes

    found = memory()
    for module, name in (
        (linear, "_gelu"),
        (linear, "_gelu_tanh"),
        (norm, "_normalize_rows"),
        (xla, "bilinear"),
    ):
        own = getattr(module, name)
        with monkeypatch.context() as patch:  # what JAX derives itself
            patch.setattr(
                module, name, getattr(own, "__wrapped__", lambda f: f)
            )
            assert found < 0.97 * memory(), name
