"""Learning rates by depth, against steps of plain optimizers."""

import catalogue
import keras
import numpy as np
import pytest
from small_runs import seeded_vit

from keras_vit import training

pytestmark = pytest.mark.backend("torch")


def test_factors_fall_from_the_head_to_the_patches():
    factor = training.depth_factor(seeded_vit(), 0.5)
    found = {v.path: factor(v.path) for v in seeded_vit().trainable_variables}
    assert {found[path] for path in found if path.startswith("head/")} == {1}
    assert found["encoder_norm/gamma"] == 1
    assert found["encoderblock_1/MlpBlock_0/Dense_0/kernel"] == 0.5
    assert found["encoderblock_0/LayerNorm_0/gamma"] == 0.25
    others = [p for p in found if "encoder" not in p and "head" not in p]
    assert len(others) == 4  # kernel, bias, class token, positions
    assert {found[path] for path in others} == {0.125}


@pytest.mark.parametrize("name", catalogue.ENCODERS)
def test_every_encoder_has_rates_by_depth(name):
    model = catalogue.make_model(name)  # of one block
    factor = training.depth_factor(model, 0.5)
    found = {}
    for variable in model.trainable_variables:
        layer = variable.path.partition("/")[0]
        found.setdefault(layer, set()).add(factor(variable.path))
    assert found.pop("encoderblock_0") == {0.5}
    after = {"encoder_norm", "attention_pooling"}
    for layer, factors in found.items():
        is_after = layer in after or layer.startswith("head")
        assert factors == {1.0 if is_after else 0.25}, layer
    assert found["embedding"] == {0.25}


def test_layers_of_the_same_names_are_refused():
    backbone = seeded_vit(include_top=False, pooling=None)
    named = keras.layers.Dense(3, name="embedding")
    model = keras.Sequential([backbone, named])
    model.build((None, 8, 8, 3))
    with pytest.raises(ValueError, match="`?embedding/kernel.* Rename"):
        training.depth_factor(model, 0.5)
    factor = training.depth_factor(backbone, 0.5)
    other = seeded_vit()
    optimizer = training.scale_rates(keras.optimizers.SGD, factor)()
    with pytest.raises(ValueError, match="2 variables 'embedding/kernel'"):
        optimizer.build(
            backbone.trainable_variables + other.trainable_variables
        )


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SGD", dict(momentum=0.9, weight_decay=0.1, global_clipnorm=0.5)),
        ("Adam", dict(weight_decay=0.1, global_clipnorm=0.5)),
        ("Nadam", dict(weight_decay=0.1)),  # it has a state of all variables
    ],
)
def test_a_step_uses_the_rate_of_each_variable(name, arguments):
    optimizer_class = getattr(keras.optimizers, name)
    start = [np.full(3, 1.0), np.full(2, -2.0), np.full(4, 0.5)]
    gradients = [np.full(3, 0.3), np.full(2, 1.0), np.full(4, -0.2)]
    factors = {"a": 1.0, "b": 0.5, "c": 0.5}

    def steps(optimizer):
        variables = [
            keras.Variable(value.astype("float32"), name=key)
            for key, value in zip(factors, start, strict=True)
        ]
        optimizer.build(variables)
        for _ in range(3):
            optimizer.apply(
                [
                    keras.ops.convert_to_tensor(g.astype("float32"))
                    for g in gradients
                ]
            )
        return [keras.ops.convert_to_numpy(v) for v in variables]

    scaled = training.scale_rates(optimizer_class, factors.get)
    ours = steps(scaled(learning_rate=0.1, **arguments))
    for i, key in enumerate(factors):
        # Alone with its rate, but with the others' gradients in the norm.
        plain = steps(
            optimizer_class(learning_rate=0.1 * factors[key], **arguments)
        )
        np.testing.assert_allclose(ours[i], plain[i], rtol=4e-6, err_msg=key)
    assert not np.allclose(
        ours[1], steps(optimizer_class(learning_rate=0.1, **arguments))[1]
    )


def test_the_rate_that_is_logged_is_that_of_the_head():
    optimizer = training.scale_rates(keras.optimizers.SGD, lambda path: 0.5)(
        learning_rate=0.1
    )
    assert float(optimizer.learning_rate) == pytest.approx(0.1)


def test_a_head_of_any_name_has_the_full_rate():
    backbone = seeded_vit(include_top=False)
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Dense(4, name="mine")(backbone(inputs))
    outputs = keras.layers.Dense(4, name="logits")(x)
    model = keras.Model(inputs, outputs)
    factor = training.depth_factor(model, 0.5)
    found = {v.path: factor(v.path) for v in model.trainable_variables}
    assert found["mine/kernel"] == found["logits/bias"] == 1
    assert found["encoderblock_1/LayerNorm_1/beta"] == 0.5
    assert found["embedding/kernel"] == 0.125


def test_a_backbone_that_warms_up_late():
    factor = training.depth_factor(seeded_vit(), 0.5, warmup=(2, 4))
    optimizer = training.scale_rates(keras.optimizers.SGD, factor)(0.1)
    variables = [
        keras.Variable(np.zeros(2, "float32"), name=name) for name in "ab"
    ]
    paths = ("encoderblock_1/a", "head/b")
    optimizer.factor = dict(
        zip((v.path for v in variables), map(factor, paths), strict=True)
    ).get
    optimizer.build(variables)
    shares = []
    for _ in range(8):
        before = [keras.ops.convert_to_numpy(v)[0] for v in variables]
        optimizer.apply([keras.ops.ones(2)] * 2)
        after = [keras.ops.convert_to_numpy(v)[0] for v in variables]
        shares.append((np.array(before) - after) / 0.1)
    np.testing.assert_allclose(np.array(shares)[:, 1], 1, rtol=1e-5)
    np.testing.assert_allclose(
        np.array(shares)[:, 0],
        0.5 * np.array([0, 0, 0, 0.25, 0.5, 0.75, 1, 1]),
        rtol=1e-5,
    )
    for wrong in ((1, 0), (-1, 2), (3,)):
        with pytest.raises(ValueError, match="`warmup` must be a number"):
            training.depth_factor(seeded_vit(), 0.5, warmup=wrong)


def test_a_file_finds_the_class_of_each_optimizer():
    optimizers = {
        name
        for name, kind in vars(keras.optimizers).items()
        if isinstance(kind, type) and issubclass(kind, keras.Optimizer)
    }
    optimizers -= {"LossScaleOptimizer", "MultiOptimizer", "Optimizer"}
    for name in optimizers:
        registered = f"keras_vit>ScaledRates{name}"
        assert keras.saving.get_registered_object(registered), name


def test_a_compiled_model_loads_with_its_rates(tmp_path):
    model = seeded_vit()
    optimizer_class = training.scale_rates(
        keras.optimizers.AdamW, training.depth_factor(model, 0.5, (0, 1))
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The epsilon keeps Adam from making steps of rounding errors.
    optimizer = optimizer_class(0.1, weight_decay=0.1, epsilon=0.1)
    model.compile(optimizer, loss)
    x = np.random.default_rng(0).uniform(0, 255, (4, 8, 8, 3))
    y = np.arange(4) % 3
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        each.fit(x, y, shuffle=False, verbose=0)
    assert float(again.optimizer.factor("embedding/kernel")(1)) == 0.125
    for old, new in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(old),
            keras.ops.convert_to_numpy(new),
            atol=1e-6,
        )


def test_rates_by_depth_need_blocks():
    inputs = keras.Input((4,))
    dense = keras.Model(inputs, keras.layers.Dense(2, name="head")(inputs))
    with pytest.raises(ValueError, match="must be a model of keras_vit"):
        training.depth_factor(dense, 0.5)


@pytest.mark.parametrize("decay", [0, -1, 1.5])
def test_other_decays_are_refused(decay):
    with pytest.raises(ValueError, match="`decay` must be above 0"):
        training.depth_factor(seeded_vit(), decay)


@pytest.mark.parametrize(
    ("derive", "more"),
    [
        (training.scale_rates, [len]),
        (training.fuse_adam, []),
        (training.clip_whole_gradient, []),
        (training.schedule_decay, [float]),
        (training.multiply_head_decay, [2.0]),
    ],
)
def test_an_optimizer_in_place_of_its_class_is_refused(derive, more):
    with pytest.raises(ValueError, match="`optimizer_class` must be a class"):
        derive(keras.optimizers.SGD(0.1), *more)


@pytest.mark.parametrize("name", ["scale_rates", "schedule_decay"])
def test_a_number_is_no_function(name):
    with pytest.raises(ValueError, match="must be a function. .*=0.5"):
        getattr(training, name)(keras.optimizers.AdamW, 0.5)
