"""Settings of TensorFlow in every process of the tests, for graphs that run
once."""

import functools

import keras
import tensorflow as tf

# Optimizing a graph that runs once takes longer than running it: a third of the
# time of a test of data.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def without_autotuner(finish):
    """Turns off what tunes a pipeline while it runs.

    It sleeps for 10 ms, then 20, 40, and so on, and an iterator is not deleted
    before it wakes, which is half of the time of some tests.
    """

    @functools.wraps(finish)
    def untuned(dataset):
        options = tf.data.Options()
        options.autotune.enabled = False
        return finish(dataset.with_options(options))

    return untuned


name = "_apply_debug_options"  # of every data set that is iterated over
setattr(
    tf.data.Dataset, name, without_autotuner(getattr(tf.data.Dataset, name))
)


def with_optimizer_built(call):
    """Creates the optimizer's variables before the first step is traced.

    By default Keras creates them in that step, which TensorFlow then traces a
    second time.
    """

    @functools.wraps(call)
    def wrapped(model, *args, **kwargs):
        optimizer = model.optimizer
        layers_built = all(layer.built for layer in model._flatten_layers())
        alone = model.distribute_strategy is None
        if optimizer and alone and not optimizer.built and layers_built:
            optimizer.build(model.trainable_variables)
        return call(model, *args, **kwargs)

    return wrapped


if keras.backend.backend() == "tensorflow":
    for name in ("fit", "train_on_batch"):
        call = getattr(keras.Model, name)
        setattr(keras.Model, name, with_optimizer_built(call))
