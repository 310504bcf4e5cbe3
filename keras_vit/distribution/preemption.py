"""Stops all processes at the same step after a signal to any of them."""

import contextlib
import functools
import os
import signal
import socket
import threading
import time

import keras
import numpy as np

from keras_vit.distribution import torch_processes
from keras_vit.distribution.devices import Devices

# Programs that start others, such as `uv run`, forward the Ctrl-C that the
# terminal has already sent to all of them: two signals at once are one key
# press.
SAME_KEY_PRESS = 0.1  # seconds


@contextlib.contextmanager
def preemption(devices: Devices):
    """Catch SIGTERM, sent before a machine is preempted, and Ctrl-C.

    A second Ctrl-C ends the process at once, with exit status 130.

    Args:
        devices: The result of `setup`.

    Yields:
        A function without arguments, which every process must call equally
        often. It returns 0, or the number of the signal after which all
        processes must save and stop now; the value is the same in all of them.
    """
    caught = []
    # With several processes, JAX' service catches SIGTERM in each of them since
    # initialize(), and they agree on a step.
    agreed = keras.backend.backend() == "jax" and devices.num_processes > 1

    def on_ctrl_c(count):
        if count > 1:
            _exit("Ended by the second Ctrl-C.")
        _say("Ctrl-C: saving after this step. Press it again to end at once.")
        if agreed:
            os.kill(os.getpid(), signal.SIGTERM)

    signals = (signal.SIGINT,) if agreed else (signal.SIGINT, signal.SIGTERM)
    with _handled(signals, caught.append), _watched(on_ctrl_c):
        if agreed:
            yield _jax_sync_point(devices, caught)
        elif devices.num_processes > 1:
            yield lambda: _signal_of(devices, caught)
        else:
            yield lambda: caught[0] if caught else 0


@contextlib.contextmanager
def end_at_ctrl_c(message: str):
    """End the process at the first Ctrl-C, with exit status 130.

    For a program that has nothing to save: Python's own KeyboardInterrupt
    waits until compiled code returns, and is lost in callbacks of libraries.
    Within `preemption`, its handler has precedence.
    """
    with (
        _handled((signal.SIGINT,), lambda number: None),
        _watched(lambda count: _exit(message)),
    ):
        yield


def any_process(devices: Devices, *flags: bool) -> tuple[bool, ...]:
    """Return for each flag whether it is set in any process.

    Every process must call it; none returns before all of them have.

    Args:
        devices: What `setup` returned.
        *flags: The flags of this process.
    """
    if devices.num_processes == 1:
        return flags
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        gathered = multihost_utils.process_allgather(np.array(flags))
        return tuple(bool(flag) for flag in gathered.any(axis=0))
    if keras.backend.backend() == "torch":
        return torch_processes.any_flag(flags)
    total = _sum_over_workers(devices.strategy)(np.array(flags, "float32"))
    return tuple(bool(count > 0) for count in np.asarray(total))


def _signal_of(devices, caught):
    """Return the number of the signal that any process has caught, or 0."""
    signals = (signal.SIGINT, signal.SIGTERM)
    flags = any_process(devices, *(number in caught for number in signals))
    return next((n for n, flag in zip(signals, flags, strict=True) if flag), 0)


def _jax_sync_point(devices, caught):
    from jax.experimental import multihost_utils

    calls = 0

    def reached():
        nonlocal calls
        calls += 1
        if not multihost_utils.reached_preemption_sync_point(calls):
            return 0
        return _signal_of(devices, caught) or signal.SIGTERM

    return reached


@functools.cache
def _sum_over_workers(strategy):
    import tensorflow as tf

    @tf.function(autograph=False)
    def total(flags):
        flags = strategy.run(lambda flags: flags, args=(flags,))
        return strategy.reduce("SUM", flags, axis=None)

    return total


@contextlib.contextmanager
def _handled(signals, handle):
    """Call `handle(number)` in the main thread, where compiled code ends."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set signal handlers.
        yield
        return
    before = {
        number: signal.signal(number, lambda number, _: handle(number))
        for number in signals
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _watched(on_ctrl_c):
    """Call `on_ctrl_c(count)` in a thread, as soon as the key is pressed.

    The main thread may be in compiled code for minutes. Python writes the
    number of a signal that it handles to the "wakeup" file even then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch():
        count, last = 0, -SAME_KEY_PRESS
        while received := reader.recv(1):
            now = time.monotonic()
            if received[0] == signal.SIGINT and now - last >= SAME_KEY_PRESS:
                count, last = count + 1, now
                on_ctrl_c(count)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()


def _say(message):
    # Without print(), whose lock the main thread may hold.
    os.write(2, f"\n{message}\n".encode())


def _exit(message):
    _say(message)
    os._exit(128 + signal.SIGINT)  # as shells count
