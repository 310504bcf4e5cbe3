"""Signals that stop a run."""

import hashlib
import os
import signal
import threading
import time

import numpy as np
import pytest

from keras_vit import distribution
from keras_vit.distribution.preemption import SAME_KEY_PRESS

ONE = distribution.Devices(kind="cpu")


@pytest.fixture
def exits(monkeypatch):
    """Statuses with which the process would have ended."""
    statuses = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    return statuses


@pytest.mark.backend_independent
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_nothing_is_raised(number, exits):
    before = signal.getsignal(number)
    with distribution.preemption(ONE) as must_stop:
        assert must_stop() == 0
        os.kill(os.getpid(), number)
        assert must_stop() == number
    assert exits == []
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.backend_independent
def test_the_second_ctrl_c_ends_the_process_while_compiled_code_runs(
    exits, capfd
):
    def press_twice():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(2 * SAME_KEY_PRESS)
        os.kill(os.getpid(), signal.SIGINT)

    keys = threading.Thread(target=press_twice)
    with distribution.preemption(ONE):
        keys.start()
        # Two seconds in which Python calls no handler in this thread.
        hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)
        assert exits == [130]
        keys.join()
    said = capfd.readouterr().err
    assert said.index("saving after this step") < said.index("second Ctrl-C")


@pytest.mark.backend_independent
def test_two_signals_of_one_key_press_count_as_one(exits):
    with distribution.preemption(ONE) as must_stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # forwarded by a parent
        assert must_stop() == signal.SIGINT
    assert exits == []


@pytest.mark.backend_independent
def test_where_nothing_is_saved_the_first_ctrl_c_ends_the_process(exits, capfd):
    with distribution.end_at_ctrl_c("Start again."):
        with distribution.preemption(ONE) as must_stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert must_stop()
        assert exits == []
        os.kill(os.getpid(), signal.SIGINT)
    assert exits == [130]
    assert "Start again." in capfd.readouterr().err


@pytest.mark.backend_independent
def test_signals_are_left_alone_outside_the_main_thread():
    found = []

    def in_thread():
        with distribution.preemption(ONE) as must_stop:
            found.append((signal.getsignal(signal.SIGINT), must_stop()))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert found == [(signal.getsignal(signal.SIGINT), 0)]


@pytest.mark.backend_independent
def test_one_process_agrees_with_itself():
    assert distribution.any_process(ONE, True, False) == (True, False)


@pytest.mark.backend("jax")
def test_ctrl_c_in_one_process_of_jax_stops_all(monkeypatch, exits):
    from jax.experimental import multihost_utils

    kill, sent = os.kill, []
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    # What catches SIGTERM agrees with the other process on a step; there
    # nothing was pressed.
    monkeypatch.setattr(
        multihost_utils, "reached_preemption_sync_point", lambda _: bool(sent)
    )
    monkeypatch.setattr(
        multihost_utils,
        "process_allgather",
        lambda flags: np.stack([np.zeros_like(flags), flags]),
    )
    two = distribution.Devices(kind="cpu", num_processes=2)
    with distribution.preemption(two) as must_stop:
        assert must_stop() == 0
        kill(os.getpid(), signal.SIGINT)
        while not sent:
            time.sleep(0.01)
        assert sent == [signal.SIGTERM]
        assert must_stop() == signal.SIGINT
    assert exits == []
