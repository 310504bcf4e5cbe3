"""Properties of every layer and every model."""

import inspect
import json
import pathlib
import re
import sys

import keras
import numpy as np
import pytest
import realistic
from catalogue import (
    LAYERS,
    MODELS,
    OTHER_FAMILIES,
    SHRUNK,
    make_layer,
    make_model,
)
from keras import ops

import keras_vit
from keras_vit.inspection import costs

NAMES = pathlib.Path(__file__).parent / "goldens" / "names"
pytestmark = pytest.mark.backend("torch")
# On JAX it would be another compiled program for the same lines.
not_on_jax = pytest.mark.backend("tensorflow", "torch")
# Those of MODELS that have a layer which no other has.
OWN_LAYERS = ("token", "relative", "2-D", "hybrid")
DTYPES = [
    "mixed_bfloat16",
    pytest.param("mixed_float16", marks=pytest.mark.backend("torch")),
]


def images_for(model, batch_size=2, seed=0):
    rng = np.random.default_rng(seed)
    shape = (batch_size, *model.input_shape[1:])
    if "preprocessing" in [layer.name for layer in model.layers]:
        return rng.integers(0, 256, shape).astype("float32")
    return rng.uniform(-1, 1, shape).astype("float32")


def values_for(shape, batch_size=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch_size, *shape)).astype("float32")


def fill(weights, seed=0):
    """Random values everywhere, so that no zero hides a difference."""
    rng = np.random.default_rng(seed)
    for weight in weights:
        value = rng.normal(size=weight.shape) * 0.2
        is_variance = weight.name == "moving_variance"
        weight.assign(np.abs(value) + 0.5 if is_variance else value)


def test_every_public_layer_is_in_the_catalogue():
    listed = {entry[0].__name__ for entry in LAYERS.values()}
    public = {
        name
        for name in keras_vit.layers.__all__
        if inspect.isclass(getattr(keras_vit.layers, name))
    }
    assert public <= listed
    of_families = listed - public
    blocks = {
        name
        for module in vars(keras_vit.models).values()
        if inspect.ismodule(module)
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, keras.layers.Layer)
        and value.__module__ == module.__name__
        and keras.saving.get_registered_name(value) == f"keras_vit>{name}"
        and not issubclass(value, keras.Model)
    }
    assert of_families == blocks


def test_every_constructor_is_public():
    for package in (keras_vit, keras_vit.models):
        assert set(keras_vit.list_models()) <= set(vars(package))


def outputs_of(model, x):
    return ops.convert_to_numpy(realistic.run(model, x))


@pytest.fixture(scope="module", params=LAYERS)
def layer_case(request):
    """A layer's name in the table, a model of it, inputs and its outputs."""
    layer, shape = make_layer(request.param)
    inputs = keras.Input(shape)
    model = keras.Model(inputs, layer(inputs))
    fill(model.weights)
    x = values_for(shape)
    return request.param, model, x, outputs_of(model, x)


class TestLayers:
    def test_symbolic_shape_is_that_of_outputs(self, layer_case):
        _, model, x, y = layer_case
        assert model.output_shape == (None, *y.shape[1:])
        layer = model.layers[-1]
        shape = layer.compute_output_shape((None, *x.shape[1:]))
        assert shape == model.output_shape

    def test_config_holds_every_argument(self, layer_case):
        layer, _ = make_layer(layer_case[0])
        config = layer.get_config()
        signature = inspect.signature(type(layer).__init__).parameters
        own = [p for p in signature if p not in ("self", "kwargs")]
        assert set(own) <= set(config)
        again = type(layer).from_config(config)
        assert again.get_config() == config

    def test_saving_and_loading_keeps_the_output(self, layer_case, tmp_path):
        _, model, x, y = layer_case
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(y, outputs_of(again, x))
        assert [w.path for w in model.weights] == [
            w.path for w in again.weights
        ]

    @not_on_jax
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_mixed_precision_computes_in_its_dtype(self, layer_case, dtype):
        name, _, x, _ = layer_case
        layer, shape = make_layer(name, dtype=dtype)
        inputs = keras.Input(shape)
        y = outputs_of(keras.Model(inputs, layer(inputs)), x)
        assert keras.backend.standardize_dtype(y.dtype) == dtype[6:]
        for weight in layer.trainable_weights:
            assert weight.dtype == "float32"

    def test_calling_leaves_the_weights_alone(self, layer_case):
        _, model, x, _ = layer_case
        before = model.get_weights()
        outputs_of(model, x)
        for weight, value in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, value)

    # JAX knows the shapes that PyTorch knows.
    @not_on_jax
    def test_another_shape_is_an_error_or_gives_outputs_of_its_own(
        self, layer_case
    ):
        _, model, x, y = layer_case
        layer = model.layers[-1]
        call = of_unknown_sizes(layer, x.shape)
        # Compiled, it gives what it gives eagerly.
        try:
            compiled = ops.convert_to_numpy(call(x))
        except (TypeError, ValueError):  # of layers that must know their sizes
            compiled = model.predict_on_batch(x)
        np.testing.assert_allclose(compiled, y, rtol=1e-4, atol=1e-5)
        for shape in other_shapes(x.shape[1:]):
            try:
                y = call(values_for(shape))
            except Exception:  # of many kinds, from Keras and backends
                continue
            shape = layer.compute_output_shape((2, *shape))
            assert tuple(y.shape) == tuple(shape)


def other_shapes(shape):
    """Yields shapes in which an axis is one, or twice as long, or two change.

    Broadcasting hides the first, a reshape moves the others into the batch.
    """
    for axis, size in enumerate(shape):
        for other in {1, 2 * size} - {size}:
            yield (*shape[:axis], other, *shape[axis + 1 :])
    if shape[0] != shape[-1]:
        yield shape[::-1]


def of_unknown_sizes(layer, shape):
    """Returns the layer, under TensorFlow in a graph that knows no sizes."""
    if keras.backend.backend() != "tensorflow":
        return layer
    import tensorflow as tf

    spec = tf.TensorSpec([None] * len(shape), "float32")
    return tf.function(layer, input_signature=[spec])


@pytest.fixture(scope="module", params=[*MODELS, *OTHER_FAMILIES])
def case(request):
    """A model's name in the table, the model, three images and its outputs."""
    model = make_model(request.param)
    fill(model.weights)
    x = images_for(model, batch_size=3)
    return request.param, model, x, outputs_of(model, x)


class TestModels:
    def test_saving_and_loading_keeps_the_output(self, case, tmp_path):
        _, model, x, y = case
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(y, outputs_of(again, x))
        assert np.isfinite(y).all()
        assert y.std() > 0

    def test_each_image_is_judged_alone(self, case):
        _, model, x, y = case
        others = np.stack([x[2], x[1], x[0]])
        np.testing.assert_array_equal(y[1], outputs_of(model, others)[1])

    @pytest.mark.thorough("tensorflow", "jax")
    def test_images_of_another_shape_are_refused(self, case):
        model, x = case[1:3]
        # In models that are built on this graph, and in exports of them.
        assert isinstance(model.layers[1], keras_vit.layers.EnsureShape)
        own = x.shape[1:]
        for shape in (*other_shapes(own), own[1:], (*own, 1)):
            with pytest.raises(ValueError) as error:
                model(np.zeros((2, *shape), "float32"))
            assert f"[B, {str(own)[1:-1]}]" in str(error.value)
            assert str((2, *shape)) in str(error.value)

    @not_on_jax
    @pytest.mark.parametrize(
        "dtype",
        [
            "mixed_bfloat16",
            # The layers are tested in it.
            pytest.param("mixed_float16", marks=pytest.mark.thorough),
        ],
    )
    @pytest.mark.thorough("tensorflow")
    def test_mixed_precision_agrees_and_has_float32_logits(self, case, dtype):
        name, model, x, expected = case
        keras.config.set_dtype_policy(dtype)
        try:
            mixed = make_model(name)
        finally:
            keras.config.set_dtype_policy("float32")
        mixed.set_weights(model.get_weights())
        y = outputs_of(mixed, x)
        if name != "features":
            assert y.dtype == "float32"
        difference = np.abs(y.astype("float32") - expected).max()
        assert difference <= 0.1 * np.abs(expected).max()

    # The graph is the same on all backends; recipes train on the others.
    def test_every_trainable_variable_moves_in_a_training_step(self, case):
        model = keras.models.clone_model(case[1])
        # Before it computes, as `quantize` requires.
        assert all(layer.built for layer in model._flatten_layers())
        fill(model.weights)
        before = [w.copy() for w in model.get_weights()]
        x = images_for(model)
        y = np.random.default_rng(1).normal(size=(2, *model.output_shape[1:]))
        model.compile(keras.optimizers.SGD(1.0), "mse")
        model.train_on_batch(x, y)
        still = [
            w.path
            for w, old in zip(model.weights, before, strict=True)
            if np.array_equal(ops.convert_to_numpy(w), old)
        ]
        # Gradients that are zero up to rounding: those of values that are added
        # to all channels of a token, which the LayerNorms of a Mixer remove, or
        # to all logits, which softmax ignores.
        zero = r"(token_mixing|tokens|mlp2)/Dense_1/bias|bn_similarity/beta"
        zero += r"|attn/norm_k/beta"
        if case[0] == "eamlp":  # the same for all tokens, before a softmax
            zero += r"|norm1/beta|attn/(trans_dims|linear_0)/bias"
        # Of a Hire-MLP, biases that the BatchNorms after them remove.
        zero += r"|embed\d/bias|level\d_block\d/(proj|fc2)/bias"
        assert [path for path in still if not re.search(zero, path)] == []

    def test_variable_names_are_those_released(self, case, update_goldens):
        name, model, *_ = case
        found = {w.path: [list(w.shape), w.dtype] for w in model.weights}
        prefix = "vit_" if name in MODELS else ""
        path = NAMES / f"{prefix}{name.replace(' ', '_')}.json"
        if update_goldens:
            path.write_text(json.dumps(found, indent=1) + "\n")
        frozen = json.loads(path.read_text())
        assert found == frozen
        # The state of training has variables by their number.
        assert list(found) == list(frozen)


# Under JAX and PyTorch Keras rounds products to float32.
@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("name", [*OWN_LAYERS, *OTHER_FAMILIES])
def test_float64_is_computed_throughout(name):
    model = make_model(name, dtype="float64")
    fill(model.weights)
    for layer in model._flatten_layers(include_self=False):
        assert layer.compute_dtype == "float64", layer.path
    # In float32, outputs of three inputs on a line would be off a line.
    x = images_for(model, batch_size=1)[0]
    step = np.random.default_rng(0).normal(size=x.shape) * 1e-6
    line = np.stack([x - step, x, x + step])
    y = model(ops.convert_to_tensor(line, "float64"), training=False)
    assert keras.backend.standardize_dtype(y.dtype) == "float64"
    y = ops.convert_to_numpy(y)
    assert y.std() > 0
    assert np.abs(y[0] - 2 * y[1] + y[2]).max() <= 1e-11 * np.abs(y).max()


@pytest.mark.parametrize("name", keras_vit.list_models())
class TestConstructors:
    def test_arguments_override_the_variant(self, name):
        constructor = getattr(keras_vit, name)
        family = sys.modules[constructor.__module__].FAMILY
        fields = SHRUNK[family.name]
        with costs.shapes_alone():
            model = constructor(**fields, classes=3)
        assert (model.name, model.family) == (name, family.name)
        shape = family.input_shapes.get(name, (224, 224, 3))
        assert model.input_shape == (None, *shape)
        assert model.output_shape == (None, 3)
        assert len(model.blocks) <= 3
        for key, value in fields.items():
            assert getattr(model.architecture, key) == value
