"""Private names of Keras, PyTorch and JAX: where they are, and without them."""

import ast
import inspect
import pathlib
import sys
import weakref

import catalogue
import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import _keras, training
from keras_vit import _loss_check as loss_check
from keras_vit.ops import adam, graph, linear

ROOT = pathlib.Path(__file__).parents[2]
FILES = [
    path
    for folder in ("keras_vit", "keras_vit_cli", "recipes", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# The two rooms that may name them, and the names.
ROOMS = (ROOT / "keras_vit/ops", ROOT / "keras_vit/_keras.py")
PYTORCH = {
    "_C._are_functorch_transforms_active",
    "_C._len_torch_dispatch_stack",
    "ops.mkldnn._is_mkldnn_bf16_supported",
    "ops.mkldnn._linear_pointwise",
}
KERAS = {
    "_all_reduce_sum_gradients",
    "_apply_weight_decay",
    "_backend_update_step",
    "_clip_gradients",
    "_custom_histogram_fixed_width",
    "_get_current_learning_rate",
    "_get_seed_generator",
    "_get_variable_index",
    "_keras_history",
    "_momentums",
    "_nodes_by_depth",
    "_run_through_graph",
    "_should_use_adamw",
    "_use_weight_decay",
    "_velocities",
}
# Of Python's own library, documented there.
PUBLIC = {"_asdict", "_exit", "_fields", "_replace"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def names_of(tree):
    """Yields (private name, whether it is defined there)."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, True
        elif isinstance(node, ast.Attribute):
            yield node.attr, isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2], False
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            function = getattr(node.func, "id", None)
            if function in ("getattr", "hasattr", "setattr"):
                yield getattr(node.args[1], "value", ""), False


def names_of_keras():
    """Returns the private names of the classes that ours derive from."""
    classes = [
        value
        for module in (keras, keras.layers, keras.optimizers, keras.callbacks)
        for value in vars(module).values()
        if isinstance(value, type)
    ]
    return {name for each in classes for name in dir(each) if is_private(name)}


@pytest.mark.backend_independent
def test_private_names_of_others_stand_in_two_rooms():
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    inherited = names_of_keras() | KERAS  # of any backend
    own = {
        name
        for tree in trees.values()
        for name, is_defined in names_of(tree)
        if is_defined and name not in inherited
    }
    modules = {path.stem for path in FILES}
    outside, inside = [], set()
    for path, tree in trees.items():
        found = {
            str(name) for name, _ in names_of(tree) if is_private(str(name))
        }
        top = {getattr(node, "name", None) for node in tree.body}
        found -= own | modules | PUBLIC | top
        if any(path.is_relative_to(room) for room in ROOMS):
            inside |= found
        else:
            outside += [f"{path.relative_to(ROOT)}: {name}" for name in found]
    assert not outside
    listed = KERAS | {name.rpartition(".")[2] for name in PYTORCH} | {"_C"}
    assert inside == listed


@pytest.mark.backend_independent
def test_no_module_looks_into_those_that_are_loaded():
    for path in FILES:
        text = path.read_text()
        assert "sys.modules" not in text, path
        assert "unittest" not in text, path


@pytest.fixture(scope="module")
def model():
    return catalogue.make_model("deit")


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", sorted(PYTORCH))
def test_without_a_name_of_pytorch_the_plain_form_runs(
    model, name, monkeypatch
):
    import torch

    x = torch.rand(2, *model.input_shape[1:]) * 255
    expected = [model(x, training=False), x_gradient(model, x)]
    for cached in (linear, "probes"), (linear, "_onednn_dtypes"):
        function = getattr(*cached).__wrapped__
        monkeypatch.setattr(*cached, function)
    *path, last = name.split(".")
    owner = torch
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.delattr(owner, last)
    with torch.no_grad():
        found = [model(x, training=False)]
    found.append(x_gradient(model, x))
    for ours, theirs in zip(found, expected, strict=True):
        scale = float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * scale)


def x_gradient(model, x):
    import torch

    x = x.clone().requires_grad_()
    return torch.autograd.grad((model(x, training=False) ** 2).sum(), x)[0]


def hide(monkeypatch, owner, hidden):
    """Hides an attribute from our modules, but not from those of Keras."""
    get = owner.__getattribute__

    def look_up(self, name):
        if name == hidden:
            caller = sys._getframe(1).f_globals["__name__"]
            if caller.startswith("keras_vit"):
                raise AttributeError(hidden)
        return get(self, name)

    monkeypatch.setattr(owner, "__getattribute__", look_up)


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    "name", ["_get_variable_index", "_momentums", "_velocities"]
)
def test_without_a_name_of_keras_adam_is_that_of_keras(name, monkeypatch):
    def step():
        variable = keras.Variable(np.ones(3, "float32"))
        optimizer = training.fuse_adam(keras.optimizers.AdamW)(0.1)
        optimizer.build([variable])
        optimizer.apply([ops.ones(3)])
        return ops.convert_to_numpy(variable)

    expected, used = step(), []
    monkeypatch.setattr(adam, "_update", lambda *_: used.append(1))
    hide(monkeypatch, adam.FusedAdam, name)
    np.testing.assert_allclose(step(), expected, rtol=1e-6)
    assert not used


@pytest.mark.backend("torch")
def test_outputs_are_let_go_after_they_are_read(monkeypatch):
    model = catalogue.make_model("deit", num_layers=4)
    images = np.random.default_rng(0).uniform(0, 255, (2, *model.image_shape))
    alive, most = weakref.WeakSet(), []

    def watch(layer, *_):
        most.append(len(alive))

    handles = []
    for block in model.blocks:
        handles.append(
            block.register_forward_hook(lambda *found: alive.add(found[-1]))
        )
        handles.append(block.register_forward_pre_hook(watch))
    results = []
    for is_hidden in (False, True):
        if is_hidden:
            hide(monkeypatch, type(model), "_nodes_by_depth")
            graph._PLANS.clear()
        most.clear()
        results.append(model.predict_on_batch(images))
        results.append(max(most))
    for handle in handles:
        handle.remove()
    np.testing.assert_array_equal(results[0], results[2])
    assert results[1] == 1 and results[3] == 3
    graph._PLANS.clear()


@pytest.mark.backend("torch")
def test_without_the_history_of_a_tensor_its_layer_is_unknown(monkeypatch):
    output = keras.layers.Dense(1)(keras.Input((2,)))
    assert loss_check.last_layer(output).units == 1
    hide(monkeypatch, keras.KerasTensor, "_keras_history")
    assert loss_check.last_layer(output) is None


@pytest.mark.backend("tensorflow")
def test_without_its_method_a_layer_draws_from_the_public_generator(
    monkeypatch,
):
    class Zeros(keras.random.SeedGenerator):
        def next(self, ordered=True):
            return np.zeros(2, "int32")

    drawn, images = [], np.full((1, 2, 2, 3), 99.0, "float32")
    for is_hidden in (False, True):
        layer = keras.layers.RandomBrightness(0.5, seed=is_hidden + 3)
        if is_hidden:
            hide(
                monkeypatch,
                keras.layers.RandomBrightness,
                "_get_seed_generator",
            )
        _keras.draw_from(layer, Zeros(0))
        drawn.append(layer(images))
    np.testing.assert_array_equal(*drawn)


@pytest.mark.backend("tensorflow")
def test_without_its_method_a_histogram_is_that_of_keras(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3))
    images = images.astype("float32")
    expected = _keras.Equalization()(images)
    monkeypatch.delattr(_keras.Equalization, "_custom_histogram_fixed_width")
    np.testing.assert_array_equal(_keras.Equalization()(images), expected)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    "name",
    [
        "_get_current_learning_rate",
        "_apply_weight_decay",
        "_use_weight_decay",
        "_backend_update_step",
    ],
)
def test_without_a_method_that_has_no_plain_form_rates_are_refused(name):
    methods = dict(inspect.getmembers(_keras.ScaledRates, inspect.isfunction))
    base = {n: f for n, f in methods.items() if n[0] == "_" != n[1]}
    optimizer = type("Optimizer", (), {n: base[n] for n in base if n != name})
    scaled = type("Scaled", (_keras.ScaledRates, optimizer), {})
    with pytest.raises(NotImplementedError, match=name):
        scaled(factor=None)
