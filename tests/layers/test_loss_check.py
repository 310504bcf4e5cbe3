"""Losses of probabilities on models of logits are noticed, and the reverse."""

import functools
import warnings

import catalogue
import keras
import numpy as np
import pytest

from keras_vit import training

pytestmark = pytest.mark.backend("torch")

losses, metrics = keras.losses, keras.metrics
PARTIAL = functools.partial(losses.categorical_crossentropy, from_logits=True)


def name_of(loss):
    """The same in each process, unlike addresses."""
    if isinstance(loss, str):
        return loss
    return getattr(loss, "__name__", type(loss).__name__)


OF_PROBABILITIES = [
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "CategoricalCrossentropy",
    "binary_crossentropy",
    "bce",
    "kld",
    losses.SparseCategoricalCrossentropy(),
    losses.BinaryFocalCrossentropy,
    losses.CategoricalFocalCrossentropy(from_logits=False),
    losses.KLDivergence(),
    losses.Dice(),
    losses.categorical_crossentropy,
    losses.kl_divergence,
    functools.partial(losses.binary_crossentropy, label_smoothing=0.1),
    ["categorical_crossentropy"],
    {"head": "categorical_crossentropy"},
]
OF_LOGITS = [
    losses.SparseCategoricalCrossentropy(from_logits=True),
    losses.CategoricalFocalCrossentropy(from_logits=True),
    training.SigmoidCrossentropy(),
    {"head": losses.BinaryCrossentropy(from_logits=True)},
    PARTIAL,
]
OF_ANYTHING = [
    None,
    "mse",
    "categorical_hinge",
    losses.Huber(),
    losses.CosineSimilarity(),
    lambda y, logits: logits[:, 0],
]


@functools.cache
def make_model(activation=None, **arguments):
    return catalogue.make_model(
        "token", classifier_activation=activation, **arguments
    )


def around(model):
    inputs = keras.Input(model.input_shape[1:])
    return [
        keras.Sequential([keras.layers.RandomFlip(), model]),
        keras.Model(model.input, model.output),
        keras.Model(
            inputs,
            keras.layers.Activation("linear", dtype="float32")(model(inputs)),
        ),
    ]


def compile_and_train(model, loss, is_compiled=True):
    if is_compiled:
        model.compile("sgd", loss)
    x = np.zeros((2, 16, 8, 3), "float32")
    model.train_on_batch(x, np.eye(2, 5))


@pytest.mark.parametrize("loss", OF_PROBABILITIES, ids=name_of)
def test_a_loss_of_probabilities_warns(loss):
    with pytest.warns(UserWarning, match="takes probabilities.*activation="):
        make_model().compile("sgd", loss)
    for activation in "softmax", "sigmoid", "relu":
        make_model(activation).compile("sgd", loss)


@pytest.mark.parametrize("loss", OF_LOGITS, ids=name_of)
def test_a_loss_of_logits_warns_of_probabilities(loss):
    for activation in "softmax", "sigmoid":
        with pytest.warns(UserWarning, match=f"{activation}. Pass from_logits"):
            make_model(activation).compile("sgd", loss)
    make_model().compile("sgd", loss)


@pytest.mark.parametrize("loss", OF_ANYTHING, ids=name_of)
def test_other_losses_and_models_do_not_warn(loss):
    with warnings.catch_warnings(record=True, action="always") as warned:
        make_model().compile("sgd", loss)
        make_model("softmax").compile("sgd", loss)
        make_model(include_top=False).compile("sgd", "categorical_crossentropy")
    assert not [w for w in warned if "from_logits" in str(w.message)]


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"),
        (metrics.BinaryCrossentropy(), "BinaryCrossentropy"),
        (metrics.AUC(), "AUC"),
        ("crossentropy", "SparseCategoricalCrossentropy"),
    ],
    ids=name_of,
)
def test_metrics_of_probabilities_warn(metric, name):
    remedy = rf"Pass {name}\(from_logits=True\), or build"
    for key in "metrics", "weighted_metrics":
        with pytest.warns(UserWarning, match=remedy):
            make_model().compile("sgd", "mse", **{key: ["accuracy", metric]})
    make_model().compile("sgd", "mse", metrics=[metrics.AUC(from_logits=True)])


def test_each_output_has_its_own_loss():
    model = make_model()
    probabilities = keras.layers.Softmax(name="probabilities")(model.output)
    both = type(model)(model.input, [model.output, probabilities])
    fitting = [OF_LOGITS[0], "categorical_crossentropy"]
    names = both.output_names
    both.compile("sgd", fitting)
    both.compile("sgd", dict(zip(names, fitting, strict=True)))
    for loss in fitting[::-1], dict(zip(names, fitting[::-1], strict=True)):
        with pytest.warns(UserWarning) as caught:
            both.compile("sgd", loss)
        assert len(caught) == 2


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_a_model_around_one_warns_when_it_trains():
    model = around(make_model(num_layers=1))[0]
    with pytest.warns(UserWarning, match="takes probabilities"):
        compile_and_train(model, "categorical_crossentropy")


def test_every_model_around_one_warns_once():
    for model in around(make_model()):
        with pytest.warns(UserWarning, match="takes probabilities"):
            compile_and_train(model, "categorical_crossentropy")
        compile_and_train(model, None, is_compiled=False)
    compile_and_train(model, OF_LOGITS[1])
    fitting = around(make_model("softmax"))[0]
    compile_and_train(fitting, "categorical_crossentropy")


def test_a_head_of_the_user_is_known():
    features = make_model(include_top=False)
    for activation in None, "softmax":
        head = keras.layers.Dense(5, activation)
        model = keras.Sequential([features, head])
        if activation is None:
            with pytest.warns(UserWarning, match="takes probabilities"):
                compile_and_train(model, "categorical_crossentropy")
        else:
            compile_and_train(model, "categorical_crossentropy")


def test_a_compiled_model_is_loaded_compiled(tmp_path):
    model = make_model()
    model.compile(keras.optimizers.Adam(0.5), OF_LOGITS[0], metrics=["mse"])
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert float(again.optimizer.learning_rate) == 0.5
    assert again.optimizer.built and again.loss.get_config()["from_logits"]


def test_the_loss_of_layers_in_float16_is_scaled(tmp_path):
    model = make_model(dtype="mixed_float16")
    model.compile("adam", OF_LOGITS[0], auto_scale_loss=False)
    assert isinstance(model.optimizer, keras.optimizers.Adam)
    model.compile("adam", OF_LOGITS[0])
    model.optimizer.build(model.trainable_variables)
    model.optimizer.dynamic_scale.assign(8.0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.optimizer, keras.optimizers.LossScaleOptimizer)
    assert float(again.optimizer.dynamic_scale) == 8.0
    again.compile(again.optimizer, OF_LOGITS[0])  # it is not scaled twice
    assert isinstance(again.optimizer.inner_optimizer, keras.optimizers.Adam)
