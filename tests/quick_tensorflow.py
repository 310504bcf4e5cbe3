"""Settings of TensorFlow in every process of the tests, for graphs that run
once."""

import functools

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
