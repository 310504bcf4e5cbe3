"""What a frozen representation is worth, from the command line."""

import json

import keras
import numpy as np
import pytest
from small_runs import changed, small_vit

import keras_vit
from keras_vit import data, evaluation
from keras_vit.evaluation.features import labels_of
from recipes import cli, experiment, fewshot, probes

pytestmark = pytest.mark.backend("torch")

PNG = b"\x89PNG"


def parse(*arguments):
    config, workdir, _ = cli.parse(
        ["fewshot", *arguments], fewshot.DEFAULT_CONFIG
    )
    return config, workdir


def run(tmp_path, **changes):
    own = ("shots", "num_draws", "neighbours")
    own = {name: changes.pop(name) for name in own if name in changes}
    config = changed(fewshot.Config(**own), **changes)
    return fewshot.run(config, str(tmp_path / "run"))


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """The path of a saved model for digits."""
    path = tmp_path_factory.mktemp("model") / "best.keras"
    model = small_vit(hidden_size=16, num_layers=2, classes=10)
    rng = np.random.default_rng(0)
    model.get_layer("head").kernel.assign(rng.normal(size=(16, 10)))
    model.save(path)
    return path


def test_accuracy_on_the_digits_rises_with_shots(tmp_path, capsys):
    config, _ = parse()
    found = fewshot.run(config, str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert "an untrained model" in printed
    accuracies = [row["accuracy"] for row in found["few_shot"]]
    assert [row["shots"] for row in found["few_shot"]] == [1, 5, 10, 25]
    assert accuracies == sorted(accuracies)
    assert accuracies[0] > 0.2 and accuracies[-1] > 0.7
    for accuracy in accuracies:
        assert f"{accuracy:.2%}" in printed
    assert {row["k"] for row in found["neighbours"]} == {10, 20}
    assert all(row["accuracy"] > 0.7 for row in found["neighbours"])
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["accuracy"] for row in written["few_shot"]] == accuracies
    assert (tmp_path / "run" / "fewshot.png").read_bytes()[:4] == PNG


def test_any_layer_of_any_weights_is_measured(best, tmp_path):
    found = run(
        tmp_path,
        weights=str(best),
        layer="encoderblock_0",
        shots=(5,),
        num_draws=2,
        neighbours=(0,),
        max_train_images=500,
        eval_fraction=0.5,
    )
    assert (found["train_images"], found["test_images"]) == (500, 898)
    assert (found["feature_size"], found["neighbours"]) == (16, [])
    train, test = data.load("digits", eval_fraction=0.5)
    model = keras_vit.ViT(weights=str(best))
    arguments = dict(batch_size=100, image_size=(8, 8), channels=1)
    parts = [
        evaluation.features(
            model, data.eval_batches(part, **arguments), "encoderblock_0"
        )
        for part in (data.sample(train, 500), test)
    ]
    (expected,) = evaluation.few_shot(
        *parts, num_classes=10, shots=(5,), num_draws=2
    )
    (row,) = found["few_shot"]
    assert row["l2"] == expected.l2
    np.testing.assert_allclose(
        row["accuracies"], expected.accuracies, atol=2 / 898
    )


def test_the_callback_of_the_recipes_keeps_few_images(best, monkeypatch):
    model = keras.models.load_model(best)
    model.compile("sgd", "mse")
    monkeypatch.setattr(probes, "MAX_TEST_IMAGES", 50)
    few_shot = probes.callback(model, experiment.Source(), (1, 3))
    labels = [labels_of(batch) for batch in few_shot.train]
    assert np.bincount(np.concatenate(labels)).tolist() == [6] * 10
    assert sum(len(labels_of(x)) for x in few_shot.test) == 50
    history = model.fit(
        np.zeros((2, 8, 8, 1)),
        np.zeros((2, 10)),
        callbacks=[few_shot],
        verbose=0,
    ).history
    assert 0.1 < history["digits/3-shot"][0] < 1
    assert "digits/1-shot" in history
    with pytest.raises(ValueError, match="Received: shots=400"):
        probes.callback(model, experiment.Source(), (200,))


def test_flags_and_configs():
    config, workdir = parse(
        "--config.shots=1,5", "--config.model.weights=x", "--workdir=here"
    )
    assert (config.shots, workdir) == ((1, 5), "here")
    assert config.model.weights == "x"
    file = fewshot.DEFAULT_CONFIG
    config, _ = parse(f"--config={file}:ViTB16,cifar10")
    assert config.model == fewshot.Model(name="ViTB16", weights="imagenet21k")
    config, _ = parse(f"--config={file}:ViTS16,mine")
    assert config.model.weights == "augreg"
    config, _ = parse(f"--config={file}:DINOv2B14,mine")
    assert config.model.weights == "hf://facebook/dinov2-base"
    assert not config.model.include_top  # its files have no head
    assert parse(f"--config={file}:MixerS32,mine")[0].model.weights == ""
    with pytest.raises(ValueError, match="must be MODEL,DATASET"):
        parse(f"--config={file}:ViTB16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "ViTX9"}, "Received: model.name='ViTX9'"),
        ({"layer": "encoderblock_9"}, "Received: layer='encoderblock_9'"),
        ({"shots": (5000,)}, "Received: shots=5000"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": ()}, "`shots` must be one or more positive numbers"),
        ({"l2": (0.0,)}, "`l2` must be one or more positive numbers"),
        ({"num_draws": 0}, "`num_draws` must be at least 1"),
        ({"neighbours": (-1,)}, "`neighbours` must be at least 0"),
        ({"temperature": 0.0}, "`temperature` must be positive"),
        (
            {"neighbours": (0,), "temperature": 0.1},
            "`temperature` has no effect on a measurement of neighbours=",
        ),
        ({"seed": -1}, "`seed` must be at least 0"),
        (
            {"data": fewshot.Data(split_seed=-1)},
            "`data.split_seed` must be at least 0",
        ),
        (
            {"data": fewshot.Data(frame_step=2)},
            "`data.frame_step` has no effect on a set of images",
        ),
        ({}, "`workdir` must be a folder that can be written"),
    ],
)
def test_wrong_settings_are_refused_before_features_are_computed(
    tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr(evaluation, "features", None)
    if not changes:
        (tmp_path / "results.json").mkdir()
    config = fewshot.Config(**changes)
    with pytest.raises(ValueError, match=message):
        fewshot.run(config, str(tmp_path))
