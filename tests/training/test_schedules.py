"""Learning rates against the authors' formula."""

import keras
import numpy as np
import pytest

from keras_vit import training


@pytest.mark.parametrize("warmup", [0, 10])
def test_linear_decay_is_the_authors(warmup):
    rate = training.LinearDecay(4e-4, 50, warmup)
    steps = np.arange(61)
    progress = np.clip((steps - warmup) / (50 - warmup), 0, 1)
    expected = 1e-5 + (4e-4 - 1e-5) * (1 - progress)
    expected *= np.minimum(1, steps / warmup) if warmup else 1
    found = [float(rate(step)) for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-10)


def test_linear_decay_survives_its_config():
    rate = training.LinearDecay(0.5, 20, 4, end=0.1)
    config = keras.optimizers.schedules.serialize(rate)
    again = keras.optimizers.schedules.deserialize(config)
    assert float(again(7)) == float(rate(7))


def test_a_rise_longer_than_training_is_refused():
    with pytest.raises(ValueError, match="warmup_steps=5, total_steps=5"):
        training.LinearDecay(1.0, 5, 5)


def test_step_decay_is_bits_hyper_rule():
    # bit_hyperrule.py for 500 steps: warm-up 100, divided at 200, 300, 400.
    rate = training.StepDecay(0.003, 500, (0.4, 0.6, 0.8), 100)
    for step, expected in (
        (0, 0.0),
        (50, 0.0015),
        (199, 0.003),
        (200, 0.0003),
        (300, 0.00003),
        (499, 0.000003),
    ):
        assert float(rate(step)) == pytest.approx(expected, rel=1e-5)
    config = keras.optimizers.schedules.serialize(rate)
    again = keras.optimizers.schedules.deserialize(config)
    assert float(again(299)) == float(rate(299))
    with pytest.raises(ValueError, match="`decay_at` must be .* 0 and 1"):
        training.StepDecay(0.1, 10, (2,))


@pytest.mark.parametrize("cooldown", [0, 30, 60])
def test_the_inverse_square_root_is_the_authors(cooldown):
    decay = training.InverseSquareRoot(8e-4, 90, cooldown, timescale=10)
    config = keras.optimizers.schedules.serialize(decay)
    decay = keras.optimizers.schedules.deserialize(config)
    rate = training.WarmUp(decay, 10)
    steps = np.arange(105)
    expected = 8e-4 / np.sqrt(1 + np.maximum(steps - 10, 0) / 10)
    expected *= np.minimum(1, steps / 10)
    if cooldown:
        # At most half of the 90 steps, and 0 after them.
        left = np.maximum(100 - steps, 0)
        expected *= np.minimum(1, left / min(cooldown, 45))
    found = [float(rate(step)) for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-10)
    usual = training.InverseSquareRoot(8e-4, 90_000)
    assert float(usual(30_000)) == pytest.approx(4e-4)  # of 10,000 steps


def test_an_inverse_square_root_of_wrong_steps_is_refused():
    for wrong in (dict(cooldown_steps=-5), dict(timescale=0)):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            training.InverseSquareRoot(1e-3, 90, **wrong)


def test_any_schedule_begins_after_a_rise():
    decay = keras.optimizers.schedules.PolynomialDecay(0.8, 10, 0.0)
    rate = training.WarmUp(decay, 4)
    config = keras.optimizers.schedules.serialize(rate)
    again = keras.optimizers.schedules.deserialize(config)
    for step, expected in ((0, 0), (2, 0.4), (4, 0.8), (9, 0.4), (14, 0)):
        assert float(rate(step)) == pytest.approx(expected, abs=1e-7)
        assert float(again(step)) == float(rate(step))


@pytest.mark.parametrize("share", [None, 0.5])
def test_weight_decay_follows_its_schedule(share):
    made = training.clip_whole_gradient(
        training.fuse_adam(keras.optimizers.AdamW)
    )
    made = training.schedule_decay(
        made, lambda step: training.cosine(step, 4, 0.1, 0.5)
    )
    if share:
        made = training.scale_rates(made, lambda path: share)
    variable = keras.Variable(np.ones(2, "float32"))
    optimizer = made(learning_rate=1.0, weight_decay=0.1)
    optimizer.build([variable])
    expected = 1.0
    for step in range(3):
        optimizer.apply([keras.ops.zeros(2)], [variable])
        decay = 0.5 - 0.4 * (1 + np.cos(np.pi * step / 4)) / 2
        expected *= 1 - decay * (share or 1)
        found = keras.ops.convert_to_numpy(variable)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_head_has_a_weight_decay_of_its_own():
    made = training.clip_whole_gradient(
        training.fuse_adam(keras.optimizers.AdamW)
    )
    made = training.multiply_head_decay(made, 100.0)
    made = training.schedule_decay(
        made, lambda step: 0.001 * (keras.ops.cast(step, "float32") + 1.0)
    )
    layers = [keras.layers.Dense(1, name=name) for name in ("body", "head")]
    for layer in layers:
        layer.build((None, 1))
        layer.kernel.assign([[1.0]])
    variables = [v for layer in layers for v in layer.weights]
    optimizer = made(learning_rate=0.5, weight_decay=0.1)
    optimizer.build(variables)
    zeros = [keras.ops.zeros(v.shape) for v in variables]
    for _ in range(2):
        optimizer.apply(zeros, variables)
    for layer, times in zip(layers, (1, 100), strict=True):
        expected = (1 - 0.5 * 0.001 * times) * (1 - 0.5 * 0.002 * times)
        found = keras.ops.convert_to_numpy(layer.kernel)[0, 0]
        assert found == pytest.approx(expected, rel=1e-5)
