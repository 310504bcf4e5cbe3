"""Fixtures and settings of all tests, where Keras is imported."""

import gc
import importlib
import os
import resource

import keras
import pytest
import quick_keras  # noqa: F401, sets what it says
import quick_tensorflow  # noqa: F401, as well
import tensorflow as tf  # reads the images on every backend

BACKEND = keras.backend.backend()

# Goldens are compared at the highest precision of matrix products.
if BACKEND == "jax":
    import jax
    import quick_jax  # noqa: F401

    jax.config.update("jax_default_matmul_precision", "highest")
elif BACKEND == "tensorflow":
    tf.config.experimental.enable_tensor_float_32_execution(False)
else:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def pytest_collection_modifyitems(config, items):
    # Files with long tests come first, so that no long test remains for the
    # end.
    slow = {item.path for item in items if "slow" in item.keywords}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        # The mark of a case comes last, and takes precedence.
        own = [mark for mark in item.own_markers if mark.name == "backend"]
        mark = own[-1] if own else item.get_closest_marker("backend")
        if mark and "backend_independent" in item.keywords:
            raise pytest.UsageError(
                f"{item.nodeid}: `backend_independent` tests run on the first"
                f" backend, which {mark.args} may leave out; keep one mark"
            )
        if mark and BACKEND not in mark.args:
            item.add_marker(
                pytest.mark.skip(reason=f"only on {', '.join(mark.args)}")
            )
        for mark in item.iter_markers("thorough"):
            if BACKEND in (mark.args or (BACKEND,)) and not config.getoption(
                "--thorough"
            ):
                item.add_marker(pytest.mark.skip(reason="needs --thorough"))
        if "network" in item.keywords and config.option.markexpr != "network":
            item.add_marker(pytest.mark.skip(reason="needs -m network"))


# Tracing creates millions of objects, few of which are garbage.
gc.set_threshold(100_000)


@pytest.fixture(autouse=True, scope="module")
def small_heap():
    """Excludes earlier imports and objects from garbage collection.

    There are many of them, and Keras makes one for each layer it quantises.
    """
    gc.collect()
    gc.freeze()


def peak_memory():
    """The largest resident size of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


PEAK_AT_RELEASE = [peak_memory()]


@pytest.fixture(autouse=True)
def bounded_memory():
    """Releases compiled programs whenever the process has grown by 2 GB.

    JAX keeps all of them, some a third of a GB.
    """
    yield
    if peak_memory() > PEAK_AT_RELEASE[0] + 2:
        if BACKEND == "jax":
            jax.clear_caches()
        gc.collect()
        PEAK_AT_RELEASE[0] = peak_memory()


@pytest.fixture
def update_goldens(request):
    return request.config.getoption("--update-goldens")


@pytest.fixture
def plain_decoding(monkeypatch):
    """Decodes PNG and JPEG alone, as they are stored.

    The graph for every kind of file takes two seconds to start, for each
    pipeline of images.
    """

    def decode_image(encoded, channels=3):
        return tf.io.decode_png(encoded, channels)

    for name in ("crops", "decode", "vtab"):
        module = importlib.import_module(f"keras_vit.data.{name}")
        monkeypatch.setattr(module, "decode_image", decode_image)


def needs_export():
    """Skip where the newest TensorFlow does not run the programs of JAX."""
    if BACKEND == "jax":
        from keras_vit.export import graph

        try:
            graph.check_jax()
        except ValueError as error:
            pytest.skip(str(error))


def serve_plainly(monkeypatch):
    """Exports SavedModels that decode PNG and JPEG alone, and refuse nothing.

    The graph for every kind of file, valid or not, takes seconds to export and
    to load.
    """

    def decode_valid(image_bytes, image_size, channels, budget, resize):
        def read(encoded):
            image = tf.io.decode_png(encoded, channels)
            image = tf.cast(image, tf.float32)
            return resize(image, image_size), tf.shape(image)[:2]

        number = tf.size(image_bytes)
        images, sizes = tf.map_fn(
            read,
            image_bytes,
            fn_output_signature=(
                tf.TensorSpec((*image_size, channels), tf.float32),
                tf.TensorSpec((2,), tf.int32),
            ),
        )
        indices = tf.range(tf.cast(number, tf.int64))
        return images, indices, sizes, tf.zeros(number[None], tf.int32)

    module = importlib.import_module("keras_vit.export.decoding")
    monkeypatch.setattr(module, "decode_valid", decode_valid)


@pytest.fixture
def plain_serving(monkeypatch):
    needs_export()
    serve_plainly(monkeypatch)


@pytest.fixture(autouse=True)
def optimization(request):
    if BACKEND == "jax" and "optimized" in request.keywords:
        fast = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] in ("1", "true")
        jax.config.update("jax_disable_most_optimizations", False)
        yield
        # Before the fixtures of a following module compile.
        jax.config.update("jax_disable_most_optimizations", fast)
    else:
        yield


@pytest.fixture(autouse=True, scope="module")
def seed_of_module():
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def seed(seed_of_module, monkeypatch):
    # Setting TensorFlow's seed resets all functions, which costs seconds for
    # each that is called again; no test draws from that seed.
    with monkeypatch.context() as patch:
        patch.setattr("tensorflow.random.set_seed", lambda seed: None)
        keras.utils.set_random_seed(0)
