import functools

import keras
import numpy as np
import processes
import pytest
import start_recipe

from keras_vit import training

# XLA compiles for seconds on TensorFlow; one test is there for it.
TENSORFLOW = keras.backend.backend() == "tensorflow"
NO_XLA = dict(jit_compile=False) if TENSORFLOW else {}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(
        0.1, momentum=0.9, weight_decay=0.01, global_clipnorm=0.5
    ),
    # Epsilon keeps gradients that are zero but for rounding from counting.
    "adam": lambda: keras.optimizers.Adam(
        0.01, epsilon=1e-3, weight_decay=0.01, use_ema=True
    ),
}

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_model(width=8, depth=1):
    """A model of dense layers, which every backend traces in no time."""
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 3))
    x = keras.layers.Rescaling(1 / 127.5, -1)(images)
    x = keras.layers.Flatten()(x)
    for _ in range(depth):
        x = keras.layers.Dense(width, "gelu")(x)
    return keras.Model(images, keras.layers.Dense(3)(x))


def make_data(count):
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (count, 8, 8, 3)).astype("float32")
    weights = rng.uniform(0, 2, count).astype("float32")
    return images, rng.integers(0, 3, count), weights


def compile_for(trained, optimizer, **kwargs):
    trained.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(
                name="crossentropy", from_logits=True
            )
        ],
        **kwargs,
    )


def fit(model, micro_batches, optimizer, weighted=True, **kwargs):
    """Three steps; returns the trained model and the logs."""
    images, labels, weights = make_data(24)
    trained = training.accumulate(model, micro_batches)
    compile_for(trained, optimizer, **(kwargs or NO_XLA))
    history = trained.fit(
        images,
        labels,
        sample_weight=weights if weighted else None,
        batch_size=8,
        shuffle=False,
        verbose=0,
    )
    return trained, {k: v[0] for k, v in history.history.items()}


def assert_equal_runs(model, trained, logs, model_2, trained_2, logs_2):
    assert trained.optimizer.iterations == trained_2.optimizer.iterations == 3
    assert logs.keys() == logs_2.keys()
    for name in logs:
        np.testing.assert_allclose(logs[name], logs_2[name], rtol=1e-5)
    for variable, other in zip(
        model.weights + trained.optimizer.variables,
        model_2.weights + trained_2.optimizer.variables,
        strict=True,
    ):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable),
            keras.ops.convert_to_numpy(other),
            rtol=1e-4,
            atol=1e-5,
            err_msg=variable.path,
        )


@functools.cache
def full_batch(name, weighted=True):
    """Returns a model that was trained without accumulation."""
    model = make_model()
    return model, *fit(model, 1, OPTIMIZERS[name](), weighted)


@pytest.mark.parametrize(
    ("name", "weighted"),
    [
        ("sgd", True),
        pytest.param("adam", False, marks=pytest.mark.backend("torch")),
    ],
)
def test_parts_train_as_the_full_batch(name, weighted):
    parts = make_model()
    result = fit(parts, 4, OPTIMIZERS[name](), weighted)
    assert_equal_runs(*full_batch(name, weighted), parts, *result)


@pytest.mark.backend("tensorflow", "jax")
@pytest.mark.parametrize(
    "options",
    [
        dict(jit_compile=True),
        pytest.param(dict(run_eagerly=True), marks=pytest.mark.thorough),
    ],
    ids=str,
)
@pytest.mark.thorough("jax")
def test_compiled_or_eager_it_is_the_same(options):
    parts = make_model()
    result = fit(parts, 4, OPTIMIZERS["sgd"](), **options)
    assert_equal_runs(*full_batch("sgd"), parts, *result)


@pytest.mark.thorough("jax")
def test_float16_scales_its_loss():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        accumulated = training.accumulate(make_model(), 4)
        compile_for(accumulated, OPTIMIZERS["sgd"]())
        assert accumulated.optimizer.name == "loss_scale_optimizer"
        # A scale at which no gradient overflows: that step would be skipped.
        scaled = keras.optimizers.LossScaleOptimizer(
            OPTIMIZERS["sgd"](), initial_scale=2.0**10
        )
        trained, logs = fit(make_model(), 4, scaled)
    finally:
        keras.config.set_dtype_policy("float32")
    assert trained.optimizer.iterations == 3
    _, _, expected = full_batch("sgd")
    assert logs["loss"] == pytest.approx(expected["loss"], rel=1e-2)


def test_each_part_draws_its_own_dropout_mask():
    inputs = keras.Input((64,))
    x = keras.layers.Dropout(0.5, seed=1)(inputs)
    outputs = keras.layers.Dense(1, use_bias=False)(x)
    model = keras.Model(inputs, outputs)
    before = model.get_weights()[0]
    trained = training.accumulate(model, 2)
    trained.compile(keras.optimizers.SGD(1.0), lambda y, y_pred: y_pred)
    trained.fit(np.ones((2, 64)), np.zeros((2, 1)), batch_size=2, verbose=0)
    # The mean of two masks, 0 or 2 each: 1 where they differ.
    mean = np.round(before - model.get_weights()[0], 3)
    assert set(mean.ravel()) == {0, 1, 2}


def test_one_part_is_the_model_itself():
    model = make_model()
    assert training.accumulate(model, 1) is model


@pytest.mark.backend_independent
def test_a_model_with_its_own_loss_is_refused():
    model = make_model()
    with pytest.raises(ValueError, match="an integer, at least 1.*=0"):
        training.accumulate(model, 0)
    with pytest.raises(ValueError, match="must be functional.*'plain'"):
        training.accumulate(keras.Sequential([model], name="plain"), 2)
    for loss in (keras.losses.MeanSquaredError(), None):
        with pytest.raises(ValueError, match="`loss` must be a loss of sev"):
            training.set_loss(model, loss)
    training.set_loss(model, training.PixelCrossentropy())
    with pytest.raises(ValueError, match="own `compute_loss`. Call `set_loss`"):
        training.accumulate(model, 2)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["train_step", "test_step", "compute_metrics"])
def test_a_model_with_its_own_steps_is_refused(name):
    step = getattr(keras.Model, name)
    own = type("Own", (keras.Model,), {name: lambda *given: step(*given)})
    model = make_model()
    with pytest.raises(ValueError, match=f"its own `{name}`.$"):
        training.accumulate(own(model.input, model.output), 2)


def test_a_batch_must_be_divisible():
    images, labels, _ = make_data(6)
    trained = training.accumulate(make_model(), 4)
    compile_for(trained, "sgd")
    with pytest.raises(ValueError, match="a multiple of 4.*a batch of 6"):
        trained.fit(images, labels, batch_size=6, verbose=0)


@pytest.mark.backend("tensorflow")
def test_a_batch_of_unknown_size_is_checked_in_training():
    import tensorflow as tf

    images, labels, _ = make_data(10)
    trained = training.accumulate(make_model(), 4)
    compile_for(trained, "sgd")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`micro_batches` must divide"
    ):
        trained.fit(images, labels, batch_size=8, verbose=0)


@pytest.mark.backend("torch")
def test_evaluation_and_saving_are_those_of_the_model(tmp_path):
    model = make_model()
    trained, _ = fit(model, 4, "sgd")
    images, labels, _ = make_data(5)
    logs = trained.evaluate(images, labels, verbose=0, return_dict=True)
    assert set(logs) == {"loss", "accuracy", "crossentropy"}
    expected = trained.predict(images, verbose=0)
    # As `keras.callbacks.ModelCheckpoint` saves it, which continues.
    for saved in (model, trained):
        saved.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(
            again.predict(images, verbose=0), expected
        )
    assert again.micro_batches == trained.micro_batches == 4


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
def test_replicas_of_tf_distribute_train_as_one():
    processes.call(train_on_replicas, 2, "adam")


def train_on_replicas(replicas, name):
    import tensorflow as tf

    start_recipe.pretend_devices(replicas)
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(replicas)]
    )
    data = tf.data.Dataset.from_tensor_slices(make_data(48))
    data = data.batch(16, drop_remainder=True)

    def make_optimizer():
        optimizer = OPTIMIZERS[name]()
        # Keras clips before it sums over replicas.
        optimizer.global_clipnorm = None
        return optimizer

    whole = make_model()
    compile_for(whole, make_optimizer(), **NO_XLA)
    logs = whole.fit(data, verbose=0).history
    with strategy.scope():
        model = make_model()
        trained = training.accumulate(model, 4)
        compile_for(trained, make_optimizer(), **NO_XLA)
    logs_2 = trained.fit(data, verbose=0).history
    assert trained.distribute_strategy is strategy
    assert_equal_runs(whole, whole, logs, model, trained, logs_2)


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_devices_of_a_jax_mesh_train_as_one_and_exchange_no_examples():
    processes.call(train_on_a_mesh)


def train_on_a_mesh():
    import jax

    start_recipe.pretend_devices(4)
    images, labels, weights = make_data(48)

    def fit(micro_batches):
        model = make_model()
        trained = training.accumulate(model, micro_batches)
        compile_for(trained, OPTIMIZERS["sgd"]())
        history = trained.fit(
            images,
            labels,
            sample_weight=weights,
            batch_size=16,
            shuffle=False,
            verbose=0,
        )
        return model, trained, history.history

    alone = fit(1)
    distribution = keras.distribution.DataParallel()
    assert len(jax.devices()) == 4
    keras.distribution.set_distribution(distribution)
    spread = fit(4)
    assert_equal_runs(*alone, *spread)

    model, trained, _ = spread
    mesh = jax.sharding.Mesh(jax.devices(), "batch")
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    batch = jax.device_put((images[:16], labels[:16]), rows)
    program = compile_step(trained, batch).as_text()
    assert "all-reduce" in program
    for movement in ("all-gather", "all-to-all", "collective-permute"):
        assert movement not in program, movement

    with pytest.raises(ValueError, match="a multiple of 16"):
        trained.fit(images, labels, batch_size=8, verbose=0)


def compile_step(trained, batch):
    """Returns JAX's compiled training step for a batch."""
    import jax

    trained.optimizer.build(trained.trainable_variables)
    state = [
        [v.value for v in variables]
        for variables in (
            trained.trainable_variables,
            trained.non_trainable_variables,
            trained.optimizer.variables,
            trained.metrics_variables,
        )
    ]
    return jax.jit(trained.train_step).lower(state, batch).compile()


@pytest.mark.backend("jax")
def test_the_activations_of_one_part_are_in_memory():
    images, labels, _ = make_data(512)
    sizes = {}
    for micro_batches in (1, 4):
        model = make_model(width=256, depth=4)
        trained = training.accumulate(model, micro_batches)
        trained.compile("sgd", LOSS)
        step = compile_step(trained, (images, labels))
        sizes[micro_batches] = step.memory_analysis().temp_size_in_bytes
    assert sizes[4] < sizes[1] / 2


@pytest.mark.backend("tensorflow")
def test_the_graph_does_not_grow_with_the_number_of_parts():
    import tensorflow as tf

    images, labels, _ = make_data(16)
    counts = set()
    for micro_batches in (2, 4):
        trained = training.accumulate(make_model(), micro_batches)
        trained.compile("sgd", LOSS)
        trained.optimizer.build(trained.trainable_variables)
        step = tf.function(trained.train_step).get_concrete_function(
            (tf.constant(images), tf.constant(labels))
        )
        graph = step.graph.as_graph_def()
        counts.add(
            len(graph.node)
            + sum(len(f.node_def) for f in graph.library.function)
        )
    assert len(counts) == 1
