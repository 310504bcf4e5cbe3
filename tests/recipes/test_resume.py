"""A run that is killed resumes, and ends with the same bits."""

import random
import shutil

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


@pytest.mark.slow
@pytest.mark.backend("tensorflow", "jax")
def test_killed_at_any_moment_it_ends_bitwise_equal(tmp_path, uninterrupted):
    """Two runs side by side, each killed twice and then let end.

    With two backends these are eight random moments: in the start, in saving
    and between.
    """
    expected, ticks = uninterrupted
    rng = random.Random(keras.backend.backend())
    kills = {tmp_path / "a": 0, tmp_path / "b": 0}
    while min(kills.values()) < 2:
        started = {
            workdir: processes.start(
                workdir, config=CONFIG, kill_at=rng.randint(1, ticks)
            )
            for workdir, count in kills.items()
            if count < 2
        }
        for (workdir, _), (status, printed) in zip(
            started.items(), processes.end(*started.values()), strict=True
        ):
            assert status in (-9, 0), printed
            kills[workdir] += status == -9
            if status == 0:
                # One that resumes has fewer ticks, and came to its end.
                assert_same(workdir, expected)
                shutil.rmtree(workdir)
    for workdir in kills:
        processes.run(workdir, config=CONFIG)
        assert_same(workdir, expected)


@pytest.mark.parametrize(
    ("moment", "saved", "expected_status"),
    [("sigterm_after", 5, 143), ("ctrl_c_in_evaluation_after", 4, 130)],
)
def test_sigterm_and_ctrl_c_save_first(
    tmp_path, uninterrupted, moment, saved, expected_status
):
    workdir = tmp_path / "run"
    [(status, printed)] = processes.end(
        processes.start(workdir, config=CONFIG, **{moment: saved})
    )
    assert status == expected_status, printed
    if moment == "ctrl_c_in_evaluation_after":
        saved -= 1  # the evaluation is begun again, with its last step
    assert (
        f"the state after step {saved} is saved. Run the same command again"
        in printed
    )
    assert (workdir / "checkpoints" / str(saved) / "crc32.json").exists()
    printed = processes.run(workdir, config=CONFIG)
    assert f"Resuming from step {saved}." in printed
    assert_same(workdir, uninterrupted[0])


@pytest.mark.backend("jax")
def test_moving_statistics_resume_bitwise(tmp_path):
    architecture = dict(num_units=(1,), width_factor=0.25, num_heads=2)
    config = CONFIG | dict(
        model="AxialResNet", architecture=architecture, total_steps=5
    )
    expected, workdir = tmp_path / "expected", tmp_path / "run"
    processes.run(expected, config=config)
    processes.end(processes.start(workdir, config=config, sigterm_after=3))
    printed = processes.run(workdir, config=config)
    assert "Resuming from step 3." in printed
    assert_same(workdir, expected)
    last = keras.models.load_model(workdir / "last.keras", compile=False)
    means = [v for v in last.variables if v.name == "moving_mean"]
    assert all(np.any(v != 0) for v in means) and means


def test_a_damaged_checkpoint_costs_steps_and_nothing_else(
    tmp_path, uninterrupted
):
    workdir = tmp_path / "run"
    processes.end(processes.start(workdir, config=CONFIG, sigterm_after=7))
    newest = workdir / "checkpoints" / "7"
    largest = max(newest.rglob("*"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    printed = processes.run(workdir, config=CONFIG)
    assert "The checkpoint of step 7 is damaged" in printed
    assert "Resuming from step 6." in printed
    assert_same(workdir, uninterrupted[0])
