"""One call onto the devices there are, or a sentence that says why not."""

import warnings

import keras
import numpy as np
import processes
import pytest
import start_recipe
from small_runs import small_vit

import keras_vit
from keras_vit import distribution

BACKEND = keras.backend.backend()


def test_one_device_needs_nothing():
    devices = distribution.setup()
    assert devices.kind == "cpu"
    assert (devices.num_devices, devices.num_replicas) == (1, 1)
    assert devices.is_main
    assert devices.strategy is None
    with devices.scope(), devices.training_scope():
        keras.layers.Dense(1).build((1, 1))


def test_batches_of_one_device_are_all_of_each_batch():
    asked = []
    distribution.setup().batches(lambda *what: asked.append(what))
    assert asked == [(0, 1, 1)]


@pytest.mark.backend("tensorflow", "jax")
def test_processes_of_torchrun_are_refused_by_other_backends(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    distribution.setup()  # of another launcher
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="torchrun .*Received: process 1 of 2"):
        distribution.setup()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(devices="tpus"), "`devices` must be one of"),
        (dict(strategy="model"), "`strategy` must be one of"),
        (dict(devices="gpu"), "gpu"),
        (dict(model_parallel=2), "`model_parallel` must be at most 1"),
    ],
)
def test_what_is_not_there_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        distribution.setup(**arguments)


@pytest.mark.backend("torch", "tensorflow")
def test_other_backends_name_the_one_that_can():
    with pytest.raises(ValueError, match="'data' alone; the JAX backend has"):
        distribution.setup(strategy="fsdp")
    with pytest.raises(ValueError, match="are for the JAX backend"):
        distribution.setup(coordinator="localhost:1", num_processes=2)


@pytest.mark.backend("torch")
def test_a_process_of_torch_has_one_device(monkeypatch):
    import torch

    with pytest.raises(ValueError, match="no TPUs; KERAS_BACKEND=jax"):
        distribution.setup("tpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ValueError, match="4 GPUs.*torchrun --nproc_per_node=4"):
        distribution.setup()
    assert distribution.setup("cpu").kind == "cpu"
    for name, value in (("WORLD_SIZE", 8), ("RANK", 5), ("LOCAL_RANK", 5)):
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ValueError, match="GPUs, 4. Received: local process 5"):
        distribution.setup()


@pytest.mark.backend("jax")
def test_jax_only_uses_the_tpu_of_its_machine():
    with pytest.raises(ValueError, match="`tpu` names a TPU to TensorFlow"):
        distribution.setup(tpu="my-tpu")


@pytest.mark.backend("jax")
def test_one_device_cannot_share_a_model():
    with pytest.raises(ValueError, match="needs several devices"):
        distribution.setup(strategy="tensor")


@pytest.mark.backend("tensorflow")
def test_a_missing_tpu_is_named(monkeypatch):
    import tensorflow as tf

    def resolver(tpu):
        raise ValueError("Please provide a TPU Name to connect to.")

    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", resolver
    )
    with pytest.raises(ValueError, match="tpu='mine': Please provide"):
        distribution.setup("tpu", tpu="mine")


@pytest.mark.backend("tensorflow")
def test_a_tpu_gets_its_strategy(monkeypatch):
    import tensorflow as tf

    seen = []

    class Strategy:
        num_replicas_in_sync = 8

        def __init__(self, resolver):
            seen.append(("strategy", resolver))

    monkeypatch.setattr(
        tf.distribute.cluster_resolver,
        "TPUClusterResolver",
        lambda tpu: f"resolver of {tpu}",
    )
    monkeypatch.setattr(
        tf.config,
        "experimental_connect_to_cluster",
        lambda resolver: seen.append(("connect", resolver)),
    )
    monkeypatch.setattr(
        tf.tpu.experimental,
        "initialize_tpu_system",
        lambda resolver: seen.append(("initialize", resolver)),
    )
    monkeypatch.setattr(tf.distribute, "TPUStrategy", Strategy)
    devices = distribution.setup("auto", tpu="mine")
    assert seen == [
        ("connect", "resolver of mine"),
        ("initialize", "resolver of mine"),
        ("strategy", "resolver of mine"),
    ]
    assert (devices.kind, devices.num_replicas) == ("tpu", 8)
    seen.clear()
    assert distribution.setup("tpu").kind == "tpu"
    # The TPU of this machine needs no connection.
    assert [name for name, _ in seen] == ["initialize", "strategy"]


def test_a_batch_is_shared_evenly():
    devices = distribution.Devices(kind="tpu", num_devices=8, num_replicas=8)
    devices.check_batch(512, micro_batches=4)
    with pytest.raises(ValueError, match="multiple of 8.*batch_size=12"):
        devices.check_batch(12)
    with pytest.raises(ValueError, match="multiple of 32.*4 micro_batches"):
        devices.check_batch(16, micro_batches=4)


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
def test_replicas_have_the_same_moving_averages():
    processes.call(move_averages)


def move_averages():
    start_recipe.pretend_devices(2)
    devices = distribution.setup()
    images = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    with devices.scope():
        norm = keras.layers.BatchNormalization(momentum=0.5)
        inputs = keras.Input((3,))
        model = keras.Model(inputs, norm(inputs))
        trained = keras_vit.training.accumulate(model, 2)
        trained.compile("sgd", "mse", jit_compile=False)
    distribution.synchronize(trained)
    trained.fit(images, images, batch_size=8, shuffle=False, verbose=0)
    first, second = norm.moving_mean.value.values
    np.testing.assert_array_equal(first, second)
    # Each of the two parts of a device moves the average by half.
    parts = images.reshape(2, 2, 2, 3).mean(1)  # device, part
    mean = (parts[:, 0] / 4 + parts[:, 1] / 2).mean(0)
    np.testing.assert_allclose(first, mean, atol=1e-6)


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
def test_an_optimizer_that_clips_each_replica_is_noticed():
    processes.call(clip_on_replicas)


def clip_on_replicas():
    start_recipe.pretend_devices(2)
    own = keras.optimizers.AdamW
    whole = keras_vit.training.clip_whole_gradient(own)
    with distribution.setup().scope():
        model = small_vit()
        with warnings.catch_warnings(action="error"):
            for optimizer in (own(), whole(global_clipnorm=1.0)):
                model.compile(optimizer, "mse")
        with pytest.warns(UserWarning, match="clips .* each of 2 replicas"):
            model.compile(own(global_clipnorm=1.0), "mse")
    with warnings.catch_warnings(action="error"):  # with one replica
        small_vit().compile(own(global_clipnorm=1.0), "mse")
