"""Few-shot accuracy in the logs of a training run."""

import csv
import json
import math

import keras
import numpy as np
import processes
import pytest
import start_recipe
from small_runs import small_vit

import keras_vit
from keras_vit import data, evaluation

pytestmark = pytest.mark.backend("torch")

# What shares the work of two devices.
JAX = keras.backend.backend() == "jax"
STRATEGY = "fsdp" if JAX else "data"


def make_vit(**changes):
    return small_vit(classes=10, dropout_rate=0.1, **changes)


def parts(batch_size=64):
    """Batches of digits to draw from, and to measure on."""
    train, test = data.load("digits")
    arguments = dict(batch_size=batch_size, image_size=(8, 8), channels=1)
    return [
        data.eval_batches(data.sample(part, count), **arguments)
        for part, count in ((train, 200), (test, 100))
    ]


def direct(model, **changes):
    arguments = dict(num_classes=10, shots=(5,), num_draws=3) | changes
    found = [evaluation.features(model, part) for part in parts()]
    return [row.mean for row in evaluation.few_shot(*found, **arguments)]


def fit(model, *callbacks, epochs=1):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (8, 8, 8, 1), "uint8")
    return model.fit(
        images,
        np.eye(10)[rng.integers(0, 10, 8)],
        batch_size=4,
        epochs=epochs,
        callbacks=list(callbacks),
        shuffle=False,
        verbose=0,
    ).history


def compiled(**changes):
    keras.utils.set_random_seed(0)
    model = make_vit(**changes)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model


def test_the_logs_hold_the_few_shot_accuracies(tmp_path):
    model = compiled()
    few_shot = evaluation.FewShot(
        "digits", *parts(), num_classes=10, shots=(1, 5), every=2
    )
    log = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    history = fit(model, few_shot, log, epochs=3)
    text = (tmp_path / "log.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    # The second by `every`, the third because it is the last.
    for key in ("digits/1-shot", "digits/5-shot"):
        values = [float(row[key]) for row in rows]
        assert list(map(math.isnan, values)) == [True, False, False]
        assert values[1:] == pytest.approx(history[key][1:])
    last = [history[f"digits/{shots}-shot"][-1] for shots in (1, 5)]
    assert last == pytest.approx(direct(model, shots=(1, 5)), abs=0.011)
    assert last[0] < last[1]


def test_training_is_left_alone():
    few_shot = evaluation.FewShot("digits", *parts(), num_classes=10)
    models = []
    for callbacks in ([], [few_shot]):
        models.append(compiled())
        fit(models[-1], *callbacks, epochs=2)
    for one, other in zip(*(model.weights for model in models), strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other)
        )
    assert len(models[0].variables) == len(models[1].variables)


def test_what_cannot_be_measured_is_refused_before_training():
    few_shot = evaluation.FewShot(
        "digits", *parts(), num_classes=10, shots=(50,)
    )
    model = compiled()
    before = model.get_weights()
    with pytest.raises(ValueError, match="Received: shots=50"):
        fit(model, few_shot)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    batches = [[dict(labels=np.arange(count))] for count in (9, 10)]
    few_shot = evaluation.FewShot(
        "digits", *batches, num_classes=10, shots=(1,)
    )
    with pytest.raises(ValueError, match=r"none of the classes \[9\]"):
        few_shot.on_train_begin()
    batches = [[dict(labels=np.arange(count) % 9)] for count in (27, 9)]
    batches[1][0]["labels"][0] = 9
    probe = evaluation.Probe("digits", *batches, num_classes=10)
    with pytest.raises(ValueError, match=r"none of the classes \[9\]"):
        probe.on_train_begin()
    batches[0][0]["labels"] = np.arange(19)
    with pytest.raises(ValueError, match="at least 20 .* Received: 19"):
        probe.on_train_begin()
    for name, wrong in (("num_draws", 0), ("shots", ()), ("l2", 1.0)):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            evaluation.FewShot("x", [], [], **{"num_classes": 9, name: wrong})


def test_a_probe_chooses_its_penalty_on_a_tenth():
    rng = np.random.default_rng(4)
    y, test_y = rng.integers(0, 3, 60), rng.integers(0, 3, 200)
    x, test_x = (
        np.eye(30)[labels] + rng.normal(0, 0.7, (len(labels), 30))
        for labels in (y, test_y)
    )
    probe = evaluation.Probe("digits", [], [], num_classes=3, seed=1)
    _, found = probe._measure((x, y), (test_x, test_y))
    order = np.random.default_rng(1).permutation(60)
    accuracies = [
        evaluation.LeastSquares(x[order[6:]], y[order[6:]], 3).accuracy(
            x[order[:6]], y[order[:6]], l2
        )
        for l2 in evaluation.L2
    ]
    solver = evaluation.LeastSquares(x, y, 3)
    best = evaluation.L2[int(np.argmax(accuracies))]
    assert found == solver.accuracy(test_x, test_y, best)


@pytest.mark.backend("tensorflow", "jax")
@pytest.mark.thorough("tensorflow")
def test_several_devices_log_the_values_of_one(tmp_path):
    path = tmp_path / "model.keras"
    printed = processes.call(train_on_two_devices, STRATEGY, path)
    (logged,) = json.loads(printed.splitlines()[-1])
    model = keras.models.load_model(path)
    assert logged == pytest.approx(direct(model)[0], abs=0.011)
    assert logged > 0.2


def train_on_two_devices(strategy, path):
    start_recipe.pretend_devices(2)
    devices = keras_vit.distribution.setup("cpu", strategy)
    assert devices.num_devices == 2, devices
    keras.utils.set_random_seed(0)
    with devices.scope():
        model = make_vit()
        model.compile("sgd", "mse")
    few_shot = evaluation.FewShot("digits", *parts(), num_classes=10)
    with devices.training_scope():
        history = model.fit(
            np.zeros((8, 8, 8, 1), "uint8"),
            np.ones((8, 10)),
            batch_size=4,
            epochs=1,
            callbacks=[few_shot],
            verbose=0,
        )
    keras_vit.distribution.gather(model, devices).save(path)
    print(json.dumps(history.history["digits/5-shot"]))
