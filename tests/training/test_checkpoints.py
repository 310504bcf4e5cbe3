"""Checkpoints: all of a run's state, and nothing that is damaged."""

import shutil

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training import checkpoints as checkpoints_module

pytestmark = pytest.mark.backend("torch")

BATCH = (
    np.arange(4 * 64, dtype="float32").reshape(4, 8, 8, 1),
    np.eye(3, dtype="float32")[[0, 1, 2, 0]],
)


def make_model():
    # Names count on, as in a process that makes its layers in another order.
    keras.layers.Dropout(0.5)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            # Its moving statistics change in a step, as the seeds of dropout.
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(3),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    model.optimizer.build(model.trainable_variables)
    model.evaluate(*BATCH, verbose=0)
    return model


def state_of(model):
    return [
        keras.ops.convert_to_numpy(v)
        for v in (
            *model.trainable_variables,
            *model.non_trainable_variables,
            *model.optimizer.variables,
        )
    ]


def train(model, epochs):
    model.fit(*BATCH, epochs=epochs, verbose=0, shuffle=False)
    return state_of(model)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Checkpoints of steps 2, 3 and 4; the model, its metrics,
    and what 3 steps more make of it."""
    keras.utils.set_random_seed(1)
    model, folder = make_model(), tmp_path_factory.mktemp("written")
    checkpoints = training.Checkpoints(folder, keep=3)
    for step in (1, 2, 3, 4):
        train(model, 1)
        checkpoints.save(step, model)
    checkpoints.close()
    metrics = [np.array(v) for v in model.metrics_variables]
    return folder, model, metrics, train(model, 3)


@pytest.fixture
def saved(written, tmp_path):
    """The same, with a copy of the checkpoints."""
    shutil.copytree(written[0], tmp_path / "c")
    return tmp_path / "c", *written[1:]


def test_saving_leaves_the_count_of_preemption_alone(saved, monkeypatch):
    from jax.experimental import multihost_utils

    folder, model, *_ = saved
    calls = []
    monkeypatch.setattr(
        multihost_utils, "reached_preemption_sync_point", calls.append
    )
    checkpoints = training.Checkpoints(folder, keep=3)
    checkpoints.save(5, model)
    checkpoints.close()
    assert checkpoints.latest == 5
    assert calls == []


def steps_in(folder):
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())


def test_the_last_checkpoints_are_kept(saved):
    assert steps_in(saved[0]) == [2, 3, 4]


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_a_restored_model_resumes_bitwise(saved):
    folder, _, expected_metrics, expected_states = saved
    keras.utils.set_random_seed(2)
    other = make_model()
    checkpoints = training.Checkpoints(folder)
    step, metrics = checkpoints.restore(other)
    checkpoints.restore_generators()
    checkpoints.close()
    assert step == checkpoints.latest == 4
    if keras.backend.backend() == "jax":
        # Else JAX compiles the step again when a new array is among them.
        assert not any(v.value.committed for v in other.trainable_variables)
    for ours, expected in zip(metrics, expected_metrics, strict=True):
        np.testing.assert_array_equal(ours, expected)
    # Dropout is on: the masks must continue, too.
    for ours, expected in zip(train(other, 3), expected_states, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_without_a_checkpoint_training_starts(tmp_path):
    checkpoints = training.Checkpoints(tmp_path / "c")
    assert checkpoints.latest == 0
    assert checkpoints.restore(make_model()) == (0, None)
    checkpoints.close()


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage", ["flipped", "truncated", "missing", "{", "null", "[1]", "{}"]
)
def test_a_damaged_checkpoint_falls_back_and_is_set_aside(
    saved, damage, capsys
):
    folder, model, *_ = saved
    # The largest holds the numbers, which Orbax does not check.
    largest = max(files_of(folder / "4"), key=lambda p: p.stat().st_size)
    if damage == "flipped":
        flip(largest)
    elif damage == "truncated":
        largest.write_bytes(largest.read_bytes()[:-9])
    elif damage == "missing":
        largest.unlink()
    else:
        (folder / "4" / "crc32.json").write_text(damage)
    checkpoints = training.Checkpoints(folder)
    step, _ = checkpoints.restore(model)
    assert step == 3
    assert "step 4 is damaged" in capsys.readouterr().out
    train(model, 1)
    checkpoints.save(4, model)
    checkpoints.close()
    assert steps_in(folder) == [2, 3, 4]
    assert (folder / "damaged-4").is_dir()


@pytest.mark.parametrize("kind", ["empty", "without its item", "stray"])
def test_a_step_without_content_costs_only_itself(saved, kind, capsys):
    """As an interrupted copy leaves it; Orbax would blame all steps."""
    folder, model, *_ = saved
    step = "999" if kind == "stray" else "4"
    if kind == "without its item":
        shutil.rmtree(folder / step / "default")
        (folder / step / "crc32.json").unlink()
    else:
        shutil.rmtree(folder / step, ignore_errors=True)
        (folder / step).mkdir()
    checkpoints = training.Checkpoints(folder)
    restored, _ = checkpoints.restore(model)
    assert restored == (4 if kind == "stray" else 3)
    assert (
        f"step {step} is damaged: it is incomplete" in capsys.readouterr().out
    )
    assert step in [path.name for path in folder.iterdir()]
    train(model, 1)
    checkpoints.save(5, model)
    checkpoints.close()
    assert steps_in(folder)[-1] == 5
    assert (folder / f"damaged-{step}").is_dir()


def test_an_intact_checkpoint_that_cannot_be_read_stays(saved, monkeypatch):
    folder, model, *_ = saved

    def fails(*args):
        raise OSError("no route to host")

    monkeypatch.setattr(checkpoints_module, "_read", fails)
    checkpoints = training.Checkpoints(folder)
    with pytest.raises(OSError, match="4 is intact, .*no route to host"):
        checkpoints.restore(model)
    checkpoints.close()
    assert steps_in(folder) == [2, 3, 4]


def test_a_checkpoint_of_another_model_is_refused_and_stays(saved):
    folder, *_ = saved
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    checkpoints = training.Checkpoints(folder)
    with pytest.raises(ValueError, match="shape .* there, .* here"):
        checkpoints.restore(model)
    checkpoints.close()
    assert steps_in(folder) == [2, 3, 4]


def test_without_an_intact_checkpoint_training_restarts_only_if_asked(saved):
    folder, model, *_ = saved
    for step in (2, 3, 4):
        (folder / str(step) / "crc32.json").write_text("{")
    checkpoints = training.Checkpoints(folder)
    with pytest.raises(ValueError, match=r"None of .*2, 3, 4.*`restart`"):
        checkpoints.restore(model)
    checkpoints.close()
    assert steps_in(folder) == [2, 3, 4]
    checkpoints = training.Checkpoints(folder, restart=True)
    assert checkpoints.restore(model) == (0, None)
    checkpoints.save(1, model)
    checkpoints.close()
    assert steps_in(folder) == [1]
    assert (folder / "damaged-4").is_dir()


@pytest.mark.parametrize("gpus", [0, 2])
def test_generators_of_devices_are_optional(saved, gpus, monkeypatch, capsys):
    """Saved with another backend, or another number of GPUs."""
    folder, model, *_ = saved
    state = {"none": np.zeros(1)}
    if gpus:
        own = checkpoints_module._generators()["0"]
        state = {str(i): own for i in range(1 + gpus)}
    checkpoints = training.Checkpoints(folder)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints_module, "_generators", lambda: state)
        checkpoints.save(5, model)
    other = make_model()
    assert checkpoints.restore(other)[0] == 5
    checkpoints.restore_generators()
    checkpoints.close()
    assert "resumes with other random masks" in capsys.readouterr().out
    for ours, expected in zip(state_of(other), state_of(model), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_a_checkpoint_without_a_seal_is_taken_if_it_reads(saved):
    folder, model, *_ = saved
    (folder / "4" / "crc32.json").unlink()
    checkpoints = training.Checkpoints(folder)
    assert checkpoints.restore(model)[0] == 4
    checkpoints.close()


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_weights_that_are_not_finite_are_not_saved(saved):
    folder, model, *_ = saved
    variable = model.trainable_variables[0]
    finite = np.array(keras.ops.convert_to_numpy(variable))
    variable.assign(finite * np.nan)
    checkpoints = training.Checkpoints(folder)
    with pytest.raises(FloatingPointError, match="not finite after step 5"):
        checkpoints.save(5, model)
    checkpoints.close()
    assert steps_in(folder) == [2, 3, 4]
    variable.assign(finite)
