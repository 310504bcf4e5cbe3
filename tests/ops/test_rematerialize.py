import functools

import keras
import numpy as np
import pytest
from small_runs import small_vit

from keras_vit import training

SCCE = keras.losses.SparseCategoricalCrossentropy
# XLA compiles for seconds on TensorFlow: once is enough.
TENSORFLOW = keras.backend.backend() == "tensorflow"
NO_XLA = dict(jit_compile=False) if TENSORFLOW else {}


def make_model(remat, **kwargs):
    keras.utils.set_random_seed(0)
    rates = dict(dropout_rate=0.2, attention_dropout_rate=0.1)
    rates |= dict(drop_path_rate=0.3)
    sizes = dict(num_layers=2, num_heads=2, input_shape=(8, 8, 3), classes=3)
    return small_vit(**rates | sizes | kwargs, remat=remat)


def make_data(count=24, size=8):
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (count, size, size, 3)).astype("float32")
    return images, rng.integers(0, 3, count)


def fit(model, micro_batches=1, **kwargs):
    """Three steps; returns the loss, the weights and the random state."""
    trained = training.accumulate(model, micro_batches)
    trained.compile("sgd", SCCE(from_logits=True), **(kwargs or NO_XLA))
    history = trained.fit(*make_data(), batch_size=8, shuffle=False, verbose=0)
    variables = model.weights + model.non_trainable_variables
    return (
        history.history["loss"][0],
        [keras.ops.convert_to_numpy(v) for v in variables],
    )


@functools.cache
def plain_run(policy="float32"):
    """Returns a run without recomputation, under the policy that is set."""
    return fit(make_model(remat=False))


def assert_equal_runs(plain, remat):
    np.testing.assert_allclose(plain[0], remat[0], rtol=1e-5)
    for value, other in zip(plain[1], remat[1], strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)


def test_training_is_the_same_with_dropout():
    assert_equal_runs(plain_run(), fit(make_model(remat=True)))


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
def test_xla_of_tensorflow_trains_the_same():
    # Without dropout, whose masks XLA draws otherwise.
    sizes = dict(num_layers=1, dropout_rate=0, attention_dropout_rate=0)
    plain, remat = (
        make_model(remat, drop_path_rate=0, **sizes) for remat in (False, True)
    )
    assert_equal_runs(fit(plain), fit(remat, jit_compile=True))


@pytest.mark.thorough("tensorflow", "jax")
def test_parts_of_a_batch_are_the_same_too():
    assert_equal_runs(
        fit(make_model(remat=False), 2), fit(make_model(remat=True), 2)
    )


@pytest.mark.parametrize(
    "dtype",
    [
        # Its loss is scaled; XLA compiles it slowly for CPUs.
        pytest.param("mixed_float16", marks=pytest.mark.backend("torch")),
        "mixed_bfloat16",
    ],
)
@pytest.mark.thorough("tensorflow", "jax")
def test_training_runs_in_mixed_precision(dtype):
    keras.config.set_dtype_policy(dtype)
    try:
        plain, _ = plain_run(dtype)
        remat, _ = fit(make_model(remat=True))
    finally:
        keras.config.set_dtype_policy("float32")
    assert remat == pytest.approx(plain, rel=1e-3)


@pytest.mark.thorough("tensorflow", "jax")
def test_relative_positions_and_frozen_blocks_are_the_same():
    runs = []
    for remat in (False, True):
        model = make_model(remat, position_embedding="relative")
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
