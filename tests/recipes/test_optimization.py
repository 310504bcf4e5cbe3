"""Learning rates and steps of the optimizers, against formulas in NumPy."""

import keras
import numpy as np
import pytest

from keras_vit import training
from recipes import inputs, training_step


def authors_rate(step, base, total, warmup, decay):
    """`create_learning_rate_schedule` of vit_jax/utils.py, in float64."""
    progress = np.clip((step - warmup) / (total - warmup), 0, 1)
    if decay == "linear":
        rate = 1e-5 + (base - 1e-5) * (1 - progress)
    else:
        rate = base * 0.5 * (1 + np.cos(np.pi * progress))
    return rate * np.minimum(1, step / warmup)


def rates_of(schedule, steps):
    if keras.backend.backend() != "jax":
        return [float(schedule(step)) for step in steps]
    import jax

    # As in a compiled step; one by one each would be compiled anew.
    return np.asarray(jax.jit(jax.vmap(schedule))(steps))


@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_rates_are_the_authors(make_config, decay):
    total, warmup, base = 311_948, 10_000, 1e-3
    schedule = training_step._schedule(
        make_config(base_lr=base, schedule=decay), total, warmup
    )
    steps = np.r_[0, 1, warmup - 1 : warmup + 2, 20_000:total:10_000, total]
    found = rates_of(schedule, steps)
    expected = authors_rate(steps, base, total, warmup, decay)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


def test_steps_of_adam_are_those_of_the_paper(make_config):
    rng = np.random.default_rng(0)
    values = {
        "kernel": rng.normal(size=(4, 3)),
        "bias": rng.normal(size=3),
    }
    gradients = [
        {name: rng.normal(size=v.shape) for name, v in values.items()}
        for _ in range(5)
    ]
    rate, weight_decay = 0.01, 0.3
    layer = keras.layers.Dense(3)
    layer.build((None, 4))
    layer.kernel.assign(values["kernel"])
    layer.bias.assign(values["bias"])
    config = make_config(
        optimizer="adam", weight_decay=weight_decay, clip_norm=1.0
    )
    config.optim.head_weight_decay = 1.0
    with pytest.raises(ValueError, match="without a layer `head`"):
        training_step._optimizer(config.optim, rate, layer, layer, 10)
    config.optim.head_weight_decay = 0.0
    optimizer = training_step._optimizer(config.optim, rate, layer, layer, 10)
    optimizer.build([layer.kernel, layer.bias])

    first = {name: np.zeros_like(v) for name, v in values.items()}
    second = {name: np.zeros_like(v) for name, v in values.items()}
    for step, gradient in enumerate(gradients, 1):
        optimizer.apply(
            [
                keras.ops.convert_to_tensor(gradient[name].astype("float32"))
                for name in ("kernel", "bias")
            ]
        )
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
        for name, value in values.items():
            g = gradient[name] / max(1.0, norm)
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            mean = first[name] / (1 - 0.9**step)
            square = second[name] / (1 - 0.999**step)
            # Decoupled, times the learning rate, of kernels alone.
            decay = weight_decay * value if name == "kernel" else 0.0
            values[name] = value - rate * (
                mean / (np.sqrt(square) + 1e-8) + decay
            )
    for name, value in values.items():
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(getattr(layer, name)), value, rtol=2e-5
        )


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["sgd", "Muon(exclude_layers=['head'])"])
def test_kernels_decay_by_step_and_layer(make_config, name):
    # Of the last norm nothing decays, and Muon leaves some kernels to AdamW.
    config = make_config(
        optimizer=name,
        base_lr=0.1,
        weight_decay=0.2,
        layer_decay=0.5,
        total_steps=10,
        warmup_steps=0,
    )
    config.optim.head_weight_decay, config.optim.final_weight_decay = 0.6, 0.4
    info = inputs.DatasetInfo(
        image_size=(8, 8), channels=1, class_names=("a", "b"), train_images=9
    )
    built = training_step.build(config, info)
    factor = training.depth_factor(built.model, 0.5)
    variables = built.trainer.trainable_variables
    for variable in variables:
        variable.assign(keras.ops.ones(variable.shape))
    optimizer = built.trainer.optimizer
    optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    for variable in variables:
        decay = 0.0
        if variable.name == "kernel":
            decay = 0.6 if variable.path == "head/kernel" else 0.2
        expected = 1 - 0.1 * factor(variable.path) * decay
        found = keras.ops.convert_to_numpy(variable)
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, err_msg=variable.path
        )
