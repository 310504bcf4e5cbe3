"""Stopping all processes at the same step when one of them must go."""

import contextlib
import signal
import threading

import keras

from keras_vit.distribution.devices import Devices


@contextlib.contextmanager
def preemption(devices: Devices):
    """Catches SIGTERM, with which machines are taken back.

    Args:
        devices: What `setup` returned.

    Yields:
        A function without arguments, to be called equally often by every
        process, that returns whether all of them must save and stop now.
    """
    backend = keras.backend.backend()
    if backend == "jax" and devices.num_processes > 1:
        # JAX' own service has caught the signal since initialize().
        yield _jax_sync_point()
        return
    caught = threading.Event()
    any_caught = caught.is_set
    if devices.num_processes > 1:
        any_caught = _any_worker(devices.strategy, caught.is_set)

    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may say what a signal does.
        yield any_caught
        return
    before = signal.signal(signal.SIGTERM, lambda *_: caught.set())
    try:
        yield any_caught
    finally:
        signal.signal(signal.SIGTERM, before)


def _jax_sync_point():
    from jax.experimental import multihost_utils

    calls = 0

    def reached():
        nonlocal calls
        calls += 1
        return multihost_utils.reached_preemption_sync_point(calls)

    return reached


def _any_worker(strategy, is_set):
    import tensorflow as tf

    @tf.function
    def total(flag):
        flags = strategy.run(lambda flag: flag, args=(flag,))
        return strategy.reduce("SUM", flags, axis=None)

    return lambda: float(total(tf.constant(float(is_set())))) > 0
