import os
import pathlib
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training

ROOT = pathlib.Path(__file__).parents[2]
SCCE = keras.losses.SparseCategoricalCrossentropy


def make_model(remat, **kwargs):
    keras.utils.set_random_seed(0)
    arguments = dict(
        patch_size=4,
        hidden_size=8,
        num_layers=2,
        num_heads=2,
        mlp_dim=8,
        input_shape=(8, 8, 3),
        classes=3,
        dropout_rate=0.2,
        attention_dropout_rate=0.1,
        drop_path_rate=0.3,
        remat=remat,
    )
    return keras_vit.ViT(**{**arguments, **kwargs})


def make_data(count=24, size=8):
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (count, size, size, 3)).astype("float32")
    return images, rng.integers(0, 3, count)


def fit(model, micro_batches=1, **kwargs):
    """Three steps; returns the loss, the weights and the random state."""
    trained = training.accumulate(model, micro_batches)
    # Epsilon keeps gradients that are zero but for rounding from counting.
    optimizer = keras.optimizers.Adam(0.01, epsilon=1e-3)
    trained.compile(optimizer, SCCE(from_logits=True), **kwargs)
    history = trained.fit(*make_data(), batch_size=8, shuffle=False, verbose=0)
    variables = model.weights + model.non_trainable_variables
    return (
        history.history["loss"][0],
        [keras.ops.convert_to_numpy(v) for v in variables],
    )


def assert_equal_runs(plain, remat):
    np.testing.assert_allclose(plain[0], remat[0], rtol=1e-5)
    for value, other in zip(plain[1], remat[1], strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)


def options():
    if keras.backend.backend() == "tensorflow":
        return [dict(jit_compile=False), dict(jit_compile=True)]
    return [dict()]


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("kwargs", options(), ids=str)
def test_training_is_the_same_with_dropout(kwargs, micro_batches):
    assert_equal_runs(
        fit(make_model(remat=False), micro_batches, **kwargs),
        fit(make_model(remat=True), micro_batches, **kwargs),
    )


@pytest.mark.parametrize("kwargs", options(), ids=str)
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_training_runs_in_mixed_precision(dtype, kwargs):
    keras.config.set_dtype_policy(dtype)
    try:
        plain, _ = fit(make_model(remat=False), **kwargs)
        remat, _ = fit(make_model(remat=True), **kwargs)
    finally:
        keras.config.set_dtype_policy("float32")
    assert remat == pytest.approx(plain, rel=1e-3)


def test_relative_positions_are_recomputed_too():
    kwargs = dict(position_embedding="relative")
    assert_equal_runs(
        fit(make_model(remat=False, **kwargs)),
        fit(make_model(remat=True, **kwargs)),
    )


def test_a_frozen_block_keeps_its_weights():
    runs = []
    for remat in (False, True):
        model = make_model(remat)
        model.get_layer("encoderblock_1").trainable = False
        runs.append(fit(model))
    assert_equal_runs(*runs)


def test_saving_and_loading_keeps_it(tmp_path):
    model = make_model(remat=True)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for i in range(2):
        assert again.get_layer(f"encoderblock_{i}").remat is True
    images, _ = make_data(3)
    np.testing.assert_array_equal(
        model.predict(images, verbose=0), again.predict(images, verbose=0)
    )


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
def test_replicas_of_tf_distribute_train_the_same():
    program = """
        import tensorflow as tf
        import test_rematerialize as t

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        for micro_batches in (1, 2):
            with strategy.scope():
                plain = t.fit(t.make_model(remat=False), micro_batches)
                remat = t.fit(t.make_model(remat=True), micro_batches)
            t.assert_equal_runs(plain, remat)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'layers'}",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.backend("jax")
def test_the_backward_pass_keeps_one_tensor_a_block():
    # What JAX keeps; XLA's CPU compiler undoes rematerialization.
    import jax

    kept = {}
    for remat in (False, True):
        model = make_model(remat, num_layers=6, input_shape=(32, 32, 3))
        other = [v.value for v in model.non_trainable_variables]
        images, _ = make_data(8, size=32)

        def loss(values, model=model, other=other, images=images):
            y, _ = model.stateless_call(values, other, images, training=True)
            return jax.numpy.sum(y)

        values = [v.value for v in model.trainable_variables]
        _, backward = jax.eval_shape(lambda v, f=loss: jax.vjp(f, v), values)
        kept[remat] = sum(x.size for x in jax.tree.leaves(backward))
    assert kept[True] < kept[False] / 5, kept
