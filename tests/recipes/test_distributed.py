"""The recipe on several devices and in several processes: one result."""

import json
import random
import re
import signal
import time

import hold_workdir
import keras
import numpy as np
import processes
import pytest
import small_runs

from tests.distribution import train_set_losses, train_torch_processes

pytestmark = [pytest.mark.slow, pytest.mark.backend("tensorflow", "jax")]
BACKEND = keras.backend.backend()
CONFIG = dict(total_steps=7)
DROPPING = dict(
    architecture=processes.CONFIG["architecture"] | dict(dropout_rate=0.1),
    checkpoint_every=2,
)


def jax_cluster(count):
    """Arguments for each of `count` processes."""
    coordinator = processes.free_address()
    return [
        dict(
            cluster=dict(
                coordinator=coordinator, num_processes=count, process_id=i
            )
        )
        for i in range(count)
    ]


def start_workers(workdir, count, devices=1, each=None, **config):
    """Starts the processes of one run; `each` has arguments of each (torch)."""
    if BACKEND == "jax":
        return [
            processes.start(
                workdir, devices=devices, config=CONFIG | config | cluster
            )
            for cluster in jax_cluster(count)
        ]
    if BACKEND == "torch":
        return [
            processes.start(
                workdir, environment, config=CONFIG | config, **each
            )
            for environment, each in zip(
                processes.as_torchrun(count),
                each or [{}] * count,
                strict=True,
            )
        ]
    workers = [processes.free_address() for _ in range(count)]
    return [
        processes.start(
            workdir,
            {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": workers},
                        "task": {"type": "worker", "index": i},
                    }
                )
            },
            config=CONFIG | config,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The workdir of a run on one device."""
    workdir = tmp_path_factory.mktemp("alone") / "run"
    processes.run(workdir, config=CONFIG)
    return workdir


def rows_of(workdir):
    return [
        {name: float(value) for name, value in row.items()}
        for row in small_runs.rows_of(workdir)
    ]


def assert_equal_to_rounding(workdir, expected):
    ours, theirs = rows_of(workdir), rows_of(expected)
    assert [row["step"] for row in theirs] == [4, 7]
    for one, other in zip(ours, theirs, strict=True):
        # Sums over devices are formed in another order.
        assert one == pytest.approx(other, rel=2e-6)
    ours, theirs = map(processes.state_of, (workdir, expected))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name
        )


def assert_same(workdir, expected):
    for name in ("metrics.csv", "config.json"):
        assert (workdir / name).read_bytes() == (expected / name).read_bytes()
    ours, theirs = map(processes.state_of, (workdir, expected))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    return ours


@pytest.mark.backend("tensorflow")
def test_mirrored_devices_train_as_one_device(tmp_path, alone):
    # Blocks that recompute their activations have the same gradients there too.
    config = CONFIG | dict(remat=True)
    processes.run(tmp_path / "run", devices=2, config=config)
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["derived"]["devices"] == "2 cpu"
    assert_equal_to_rounding(tmp_path / "run", alone)


@pytest.mark.thorough("jax")  # whose arrays are those of all devices
def test_losses_of_sets_count_the_objects_of_all_devices():
    processes.call(train_set_losses.main)


@pytest.mark.backend("jax")
def test_processes_of_jax_train_as_one(tmp_path, alone):
    config = dict(strategy="fsdp+tensor", micro_batches=2)
    started = start_workers(tmp_path / "run", 2, 2, **config)
    for status, printed in processes.end(*started):
        assert status == 0, printed
    assert_equal_to_rounding(tmp_path / "run", alone)


@pytest.mark.backend("tensorflow")
def test_workers_of_tensorflow_give_what_one_gives(tmp_path, alone):
    for status, printed in processes.end(*start_workers(tmp_path / "run", 2)):
        assert status == 0, printed
    assert_equal_to_rounding(tmp_path / "run", alone)


@pytest.mark.backend("torch")
def test_processes_of_torch_train_as_one_and_one_resumes_them(tmp_path, alone):
    workdir = tmp_path / "run"
    # Asked to stop after the first evaluation.
    started = start_workers(workdir, 2, each=[{}, dict(sigterm_after=5)])
    for status, printed in processes.end(*started):
        assert status == 143, printed
    assert [row["step"] for row in rows_of(workdir)] == [4]
    written = json.loads((workdir / "config.json").read_text())
    assert written["derived"]["devices"] == "2 cpu"
    processes.run(workdir, config=CONFIG)
    assert_equal_to_rounding(workdir, alone)


@pytest.mark.backend("torch")
def test_killed_processes_of_torch_resume_bitwise(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    config = DROPPING | dict(micro_batches=2, total_steps=7)
    for status, printed in processes.end(*start_workers(whole, 2, **config)):
        assert status == 0, printed
    # After an evaluation: four ticks a step, six an evaluation.
    started = start_workers(killed, 2, each=[{}, dict(kill_at=34)], **config)
    (status, printed), (died, _) = processes.end(*started, timeout=60)
    assert (status, died) == (1, -signal.SIGKILL), printed
    assert "another process has ended" in printed
    ended = processes.end(*start_workers(killed, 2, **config))
    assert [status for status, _ in ended] == [0, 0], ended
    assert "Resuming from step" in ended[0][1]
    ours = assert_same(killed, whole)
    # Each process drops other units.
    assert (ours["generators/0"] != ours["generators/0.1"]).any()


@pytest.mark.backend("torch")
def test_losses_of_whole_batches_count_all_processes_of_torch():
    started = [
        processes.Forked(train_torch_processes.main, **environment)
        for environment in processes.as_torchrun(2)
    ]
    for status, printed in processes.end(*started, timeout=120):
        assert status == 0, printed


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_processes_agree_on_the_lock_and_on_ctrl_c(tmp_path):
    addresses = [processes.free_address() for _ in range(2)]
    if BACKEND == "jax":
        addresses = addresses[:1]
    environments = [{}, {}]
    if BACKEND == "torch":
        environments = processes.as_torchrun(2)
    started = [
        processes.Forked(hold_workdir.main, tmp_path, addresses, i, **each)
        for i, each in enumerate(environments)
    ]
    (first, main), (second, other) = processes.end(*started)
    assert (first, second) == (0, 0), main + other
    assert f"in use by process {started[0].pid} on " in main
    assert "The main process could not lock the workdir" in other
    # One was asked to; both stop at the same step.
    [stop] = re.findall(r"stopped at call \d+ by signal 2", main)
    assert stop in other


def seals_of(workdir):
    return set(workdir.glob("checkpoints/*/crc32.json"))


def wait_for_checkpoint(workdir, started):
    """Returns when there is a checkpoint that was not there before."""
    before = seals_of(workdir)
    deadline = time.monotonic() + 240
    while seals_of(workdir) <= before:
        time.sleep(0.1)
        for process in started:
            assert process.is_running(), process.printed()
        if time.monotonic() > deadline:
            processes.end(*started, timeout=0)


@pytest.mark.thorough("tensorflow")
def test_where_a_process_dies_the_others_end_and_all_resume(tmp_path):
    workdir = tmp_path / "run"
    # A checkpoint often falls on the first step after an evaluation.
    config = dict(total_steps=2000, checkpoint_every=2)
    started = start_workers(workdir, 2, **config)
    wait_for_checkpoint(workdir, started)
    started[1].send_signal(signal.SIGKILL)
    (status, printed), _ = processes.end(*started, timeout=60)
    assert status != 0
    assert "another process has ended" in printed or "task died" in printed

    # All resume together, until one of them is asked to stop.
    started = start_workers(workdir, 2, **config)
    wait_for_checkpoint(workdir, started)
    started[1].send_signal(signal.SIGTERM)
    ended = processes.end(*started, timeout=60)
    assert [status for status, _ in ended] == [143, 143], ended
    assert "Resuming from step" in ended[0][1]
    assert "is saved. Run the same command again to resume." in ended[0][1]


# A process alone is killed or stopped, and ends with the same bits.
ONE = DROPPING | dict(flip=True, total_steps=9)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """(workdir, number of ticks) of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    processes.run(folder / "run", config=ONE, count=str(folder / "ticks.txt"))
    return folder / "run", int((folder / "ticks.txt").read_text())


# What resumes on the others is tested in training/test_checkpoints.py.
@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("tensorflow", "jax")
def test_killed_at_any_moment_it_ends_bitwise_equal(tmp_path, uninterrupted):
    """A run that is killed at a random moment, and then let end."""
    expected, ticks = uninterrupted
    rng = random.Random(keras.backend.backend())
    workdir, kill_at = tmp_path / "run", rng.randint(ticks // 3, ticks - 1)
    [(status, printed)] = processes.end(
        processes.start(workdir, config=ONE, kill_at=kill_at)
    )
    assert status == -9, printed
    processes.run(workdir, config=ONE)
    assert_same(workdir, expected)


def stopped(workdir, status, saved, **moment):
    """Starts a run that is stopped; returns what it printed."""
    [(found, printed)] = processes.end(
        processes.start(workdir, config=ONE, **moment)
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
    printed = processes.run(workdir, config=ONE)
    assert "The checkpoint of step 7 is damaged" in printed
    assert "Resuming from step 6." in printed
    assert_same(workdir, uninterrupted[0])
