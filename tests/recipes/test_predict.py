"""Predictions of a saved model, from the command line."""

import re
import shlex

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data
from recipes import predict


def test_the_command_that_the_run_printed_works(
    digits_run, monkeypatch, capsys
):
    _, workdir, _, printed = digits_run
    (command,) = re.findall(r"python -m recipes\.predict (.*)", printed)
    assert predict.main(shlex.split(command)) == 0
    out = capsys.readouterr().out
    assert out.count("examples/") == 3
    assert out.count("%") == 15
    assert (workdir / "attention.png").read_bytes()[:4] == b"\x89PNG"


def test_probabilities_are_those_of_the_model(digits_run, capsys):
    path = str(next((digits_run[1] / "examples").iterdir()))
    model_path = str(digits_run[1] / "best.keras")
    assert predict.main([model_path, path, "--top_k=10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == path
    printed = {
        line.split()[1]: float(line.split()[0].rstrip("%"))
        for line in lines[1:]
    }
    model = keras.models.load_model(model_path)
    logits = model.predict(data.read_image(path, (8, 8), 1)[None], verbose=0)[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert list(printed.values()) == sorted(printed.values(), reverse=True)
    for i in range(10):
        assert printed[str(i)] == pytest.approx(100 * expected[i], abs=0.01)


def test_it_goes_on_after_a_broken_image_and_ends_with_one(
    digits_run, tmp_path, capsys
):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG and no more")
    good = str(next((digits_run[1] / "examples").iterdir()))
    arguments = [
        str(digits_run[1] / "best.keras"),
        str(tmp_path / "broken.png"),
        good,
        str(tmp_path / "missing.png"),
    ]
    assert predict.main(arguments) == 1
    out, err = capsys.readouterr()
    assert good in out
    assert "broken.png" in err and "missing.png" in err
    assert predict.main(arguments[:2]) == 1


def test_a_model_without_class_names_is_answered_by_index(
    digits_run, tmp_path, capsys
):
    model = keras_vit.ViT(
        patch_size=8,
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        mlp_dim=8,
        input_shape=(16, 8, 3),
        classes=3,
        classifier_activation="softmax",
    )
    model.save(tmp_path / "model.keras")
    image = str(next((digits_run[1] / "examples").iterdir()))
    assert predict.main([str(tmp_path / "model.keras"), image]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert sorted(line.split()[1] for line in lines) == ["0", "1", "2"]
    assert {line.split()[0] for line in lines} == {"33.33%"}


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        predict.main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_what_is_no_usable_model_is_refused(tmp_path, capsys):
    assert "which is no file" in refused(capsys, tmp_path / "no.keras", "x")
    (tmp_path / "text.keras").write_text("text")
    assert "does not load" in refused(capsys, tmp_path / "text.keras", "x")
    inputs = keras.Input((4,))
    keras.Model(inputs, keras.layers.Dense(2)(inputs)).save(
        tmp_path / "other.keras"
    )
    assert "a layer `head`" in refused(capsys, tmp_path / "other.keras", "x")
    keras_vit.ViT(
        patch_size=4,
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        mlp_dim=8,
        input_shape=(8, 8, 5),
        classes=2,
    ).save(tmp_path / "five.keras")
    assert "1 or 3 channels" in refused(capsys, tmp_path / "five.keras", "x")


def test_bad_options_are_refused(digits_run, capsys):
    model = digits_run[1] / "best.keras"
    assert "--top_k" in refused(capsys, model, "x", "--top_k=0")
    assert "--attention" in refused(
        capsys, model, "x", "--attention", "nowhere/out.png"
    )
