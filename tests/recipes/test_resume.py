"""A run that is killed resumes, and ends with the same bits."""

import random

import keras
import numpy as np
import processes
import pytest

CONFIG = dict(
    architecture=processes.CONFIG["architecture"] | dict(dropout_rate=0.1),
    flip=True,
    total_steps=9,
    checkpoint_every=2,
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """(workdir, number of ticks) of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    processes.run(
        folder / "run", config=CONFIG, count=str(folder / "ticks.txt")
    )
    return folder / "run", int((folder / "ticks.txt").read_text())


def assert_same(workdir, expected):
    for name in ("metrics.csv", "config.json"):
        assert (workdir / name).read_bytes() == (expected / name).read_bytes()
    ours, theirs = map(processes.state_of, (workdir, expected))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


# What resumes on the others is tested in training/test_checkpoints.py.
@pytest.mark.thorough("tensorflow", "jax")
def test_killed_at_any_moment_it_ends_bitwise_equal(tmp_path, uninterrupted):
    """A run that is killed at a random moment, and then let end."""
    expected, ticks = uninterrupted
    rng = random.Random(keras.backend.backend())
    workdir, kill_at = tmp_path / "run", rng.randint(ticks // 3, ticks - 1)
    [(status, printed)] = processes.end(
        processes.start(workdir, config=CONFIG, kill_at=kill_at)
    )
    assert status == -9, printed
    processes.run(workdir, config=CONFIG)
    assert_same(workdir, expected)


def stopped(workdir, status, saved, **moment):
    """Starts a run that is stopped; returns what it printed."""
    [(found, printed)] = processes.end(
        processes.start(workdir, config=CONFIG, **moment)
    )
    assert found == status, printed
    assert (
        f"the state after step {saved} is saved. Run the same command again"
        in printed
    )
    assert (workdir / "checkpoints" / str(saved) / "crc32.json").exists()
    return printed


@pytest.mark.backend("torch")
def test_stopped_and_with_a_damaged_checkpoint_it_ends_bitwise_equal(
    tmp_path, uninterrupted
):
    workdir = tmp_path / "run"
    # The evaluation is begun again, with its last step.
    stopped(workdir, 130, 3, ctrl_c_in_evaluation_after=4)
    printed = stopped(workdir, 143, 7, sigterm_after=7)
    assert "Resuming from step 3." in printed
    # A damaged checkpoint costs steps and nothing else.
    newest = workdir / "checkpoints" / "7"
    largest = max(newest.rglob("*"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    printed = processes.run(workdir, config=CONFIG)
    assert "The checkpoint of step 7 is damaged" in printed
    assert "Resuming from step 6." in printed
    assert_same(workdir, uninterrupted[0])
