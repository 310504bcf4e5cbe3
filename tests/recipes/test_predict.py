"""Predictions of a saved model, from the command line."""

import csv
import json
import os
import pathlib
import re
import shlex
import shutil

import keras
import numpy as np
import pytest
from small_runs import small_vit

import keras_vit
import keras_vit_cli
from keras_vit import data
from keras_vit_cli import predict_tasks
from keras_vit_cli.opening import load
from tests.drawn_folders import drawn

pytestmark = pytest.mark.backend("torch")


def predict(*words):
    return keras_vit_cli.main(["predict", *map(str, words)])


GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"


def test_the_command_that_the_run_printed_works(
    digits_run, monkeypatch, capsys
):
    _, workdir, _, printed = digits_run
    (command,) = re.findall(r"keras-vit predict (.*)", printed)
    assert predict(*shlex.split(command)) == 0
    out = capsys.readouterr().out
    assert out.count("examples/") == 3
    assert out.count("%") == 15
    assert (workdir / "attention.png").read_bytes()[:4] == b"\x89PNG"


def test_probabilities_are_those_of_the_model(digits_run, capsys):
    path = str(next((digits_run[1] / "examples").iterdir()))
    model_path = str(digits_run[1] / "best.keras")
    assert predict(model_path, path, "--top_k=10") == 0
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


def test_it_continues_after_a_broken_image_and_exits_with_1(
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
    assert predict(*arguments) == 1
    out, err = capsys.readouterr()
    assert good in out
    assert "broken.png" in err and "missing.png" in err
    assert predict(*arguments[:2]) == 1


def test_a_model_without_class_names_is_answered_by_index(
    digits_run, tmp_path, capsys
):
    model = small_vit(
        input_shape=(16, 8, 3), classes=3, classifier_activation="softmax"
    )
    model.save(tmp_path / "model.keras")
    image = str(next((digits_run[1] / "examples").iterdir()))
    assert predict(tmp_path / "model.keras", image) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert sorted(line.split()[1] for line in lines) == ["0", "1", "2"]
    assert {line.split()[0] for line in lines} == {"33.33%"}


def test_a_loss_that_does_not_load_is_said(tmp_path, capsys):
    def unknown(labels, scores):
        return scores

    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", unknown)
    model.save(tmp_path / "model.keras")
    load(str(tmp_path / "model.keras"))
    assert "are taken for logits" in capsys.readouterr().err


def refused(capsys, *arguments):
    assert predict(*arguments) == 2
    return capsys.readouterr().err


def test_pictures_are_missed_before_a_model_is_loaded(tmp_path, capsys):
    error = refused(capsys, "ViTB16:augreg", tmp_path / "absent.png")
    assert error.startswith("IMAGE must be a file") and "absent.png" in error


def test_what_is_no_usable_model_is_refused(tmp_path, capsys):
    assert "no such file" in refused(capsys, tmp_path / "no.keras", __file__)
    (tmp_path / "text.keras").write_text("text")
    assert "does not load" in refused(capsys, tmp_path / "text.keras", __file__)
    assert "constructors: ['ViTB16'" in refused(
        capsys, "ViTB61:augreg", __file__
    )
    inputs = keras.Input((4,))
    keras.Model(inputs, keras.layers.Dense(2)(inputs)).save(
        tmp_path / "other.keras"
    )
    assert "a layer `head`" in refused(
        capsys, tmp_path / "other.keras", __file__
    )
    # The names of its head are not those of another layer's classes.
    model = small_vit(classes=3, class_names=("cat", "dog", "frog"))
    other = keras.Model(model.input, keras.layers.Dense(3)(model.output))
    other.save(tmp_path / "other.keras")
    assert "a layer `head`" in refused(
        capsys, tmp_path / "other.keras", __file__
    )
    small_vit(input_shape=(8, 8, 5)).save(tmp_path / "five.keras")
    assert "1 or 3 channels" in refused(
        capsys, tmp_path / "five.keras", __file__
    )
    backbone = small_vit(include_top=False, include_preprocessing=False)
    keras_vit.heads.linear(backbone, classes=2).save(tmp_path / "raw.keras")
    assert "scale pixels" in refused(capsys, tmp_path / "raw.keras", __file__)


def test_bad_options_are_refused(digits_run, capsys):
    model = digits_run[1] / "best.keras"
    assert "--attention" in refused(
        capsys, model, __file__, "--attention", "nowhere/out.png"
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--frame_step=4", "--frame_step needs a model of videos. Received"),
        ("--frame_rate=30", "--frame_rate needs a model of videos. Received"),
        ("--templates={}", "--templates needs --classes"),
        ("--attention=o.xyz", "--attention must be a file .* ends in .*.png"),
        ("--attention=picture", "Received: 'picture'"),
        ("--drawing=o.xyz", "--drawing must be a file"),
        # Of variables of the shell that are not set.
        ("--attention=", "--attention must be a file"),
        ("--drawing=", "--drawing must be a file"),
        ("--classes=", "--classes needs a model with a text tower"),
        ("--templates=", "--templates needs --classes"),
        ("--score=nan", "--score must be a number"),
        ("--score=0.5", "--drawing and --score need a model with a head"),
    ],
)
def test_options_without_effect_are_refused(
    digits_run, capsys, option, message
):
    pytest.importorskip("matplotlib")
    words = digits_run[1] / "best.keras", example(digits_run), option
    assert re.search(message, refused(capsys, *words))
    assert not capsys.readouterr().out


def example(digits_run, n=0):
    return str(sorted((digits_run[1] / "examples").iterdir())[n])


def test_csv_and_json_lines_agree(digits_run, capsys):
    model = str(digits_run[1] / "best.keras")
    arguments = [model, example(digits_run), "--top_k=2"]
    assert predict(*arguments, "--format=csv") == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert predict(*arguments, "--format=jsonl") == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["image"] == rows[0]["image"] == arguments[1]
    assert [row["rank"] for row in rows] == ["1", "2"]
    for row, prediction in zip(rows, found["predictions"], strict=True):
        assert row["class"] == prediction["class"]
        assert int(row["index"]) == prediction["index"]
        assert float(row["score"]) == pytest.approx(
            prediction["score"], rel=1e-5
        )


def test_folders_and_patterns_are_read_whatever_the_batch(
    digits_run, tmp_path, capsys, monkeypatch
):
    model, folder = str(digits_run[1] / "best.keras"), tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    for i in range(4):
        shutil.copy(example(digits_run, i), folder / f"{i}.PNG")
    for other in ("notes.txt", "._0.PNG"):
        (folder / other).write_text("no image")
    outputs = []
    for images in (str(tmp_path), str(tmp_path / "**" / "*.PNG")):
        for batch_size in (1, 3, 32):
            arguments = [model, images, f"--batch_size={batch_size}"]
            assert predict(*arguments) == 0
            outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1
    assert outputs[0].count(".PNG") == 4
    shutil.copytree(folder, tmp_path / "__MACOSX")
    (tmp_path / "a" / "again").symlink_to(folder)
    assert predict(model, str(tmp_path)) == 0
    printed = capsys.readouterr()
    assert printed.out == outputs[0]
    assert f"Left out: {tmp_path / 'a' / 'again'}, a link" in printed.err
    assert "Left out: 2 hidden files or folders" in printed.err
    (tmp_path / "b").mkdir()
    scandir = os.scandir

    def locked(path):
        if path == str(tmp_path / "b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    assert predict(model, str(tmp_path)) == 0
    printed = capsys.readouterr()
    assert printed.out == outputs[0]
    assert f"Left out: {tmp_path / 'b'}: Permission denied" in printed.err
    monkeypatch.undo()
    (tmp_path / "empty").mkdir()
    assert "has none" in refused(capsys, model, tmp_path / "empty")


def test_weights_are_models_too(digits_run, capsys, monkeypatch):
    golden = GOLDENS / "vit_token.ckpt.npz"
    image = example(digits_run)
    assert predict(str(golden), image) == 0
    printed = capsys.readouterr().out
    assert printed.count("%") == 5
    built = []

    def constructor(weights):
        built.append(weights)
        return keras_vit.ViT(weights=golden)

    monkeypatch.setattr(keras_vit, "ViTB16", constructor)
    assert predict("ViTB16:augreg", image) == 0
    assert built == ["augreg"]
    assert capsys.readouterr().out == printed


def test_words_are_the_classes_of_a_model_with_a_text_tower(tmp_path, capsys):
    tokenizer = keras_vit.text.word_tokenizer(["cat", "dog"], 8)
    sizes = dict(hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8)
    text = keras_vit.text.text_tower(
        *("siglip",),
        **sizes,
        vocab_size=8,
        context_length=8,
        embedding_size=8,
        tokenizer=tokenizer,
    )
    image = keras_vit.ViT(
        patch_size=4, **sizes, input_shape=(8, 8, 3), include_top=False
    )
    towers = keras_vit.two_towers(image, text, logit_bias=0.0)
    model, photo = tmp_path / "model.keras", tmp_path / "photo.png"
    towers.save(model)
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), "uint8")
    keras.utils.save_img(photo, pixels, scale=False)
    words = ("--classes", "a cat, a dog", "--templates", "{}", "--format=jsonl")
    assert predict(model, photo, *words) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)["predictions"]
    names = ["a cat", "a dog"]
    logits = towers.logits(data.read_image(str(photo), (8, 8), 3)[None], names)
    for one in found:
        logit = logits[0, names.index(one["class"])]
        assert one["score"] == pytest.approx(1 / (1 + np.exp(-logit)), 1e-4)
    assert predict(model, photo) == 2
    assert "--classes must name classes" in capsys.readouterr().err


def test_images_of_any_shape_are_classified_as_squares(tmp_path, capsys):
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path / "model"
    shutil.copytree(drawn("towers") / "siglip2", folder)
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "a", "cat", "dog"]
    vocab = {word: i for i, word in enumerate(words)}
    own = tokenizers.models.WordLevel(vocab, unk_token="<unk>")
    tokenizers.Tokenizer(own).save(str(folder / "tokenizer.json"))
    config = json.dumps(dict(tokenizer_class="Siglip2Tokenizer"))
    (folder / "tokenizer_config.json").write_text(config)
    photo = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), "uint8")
    keras.utils.save_img(photo, pixels, scale=False)
    words = ("--classes", "a, cat", "--templates", "{}", "--format=jsonl")
    assert predict(folder, photo, *words) == 0
    out, err = capsys.readouterr()
    assert "resized to 16 x 16 pixels" in err
    # Of this shape, the model for any shape gives the same.
    logits = keras_vit.from_pretrained(folder).logits([pixels], ["a", "cat"])
    for one in json.loads(out)["predictions"]:
        logit = logits[0, ["a", "cat"].index(one["class"])]
        assert one["score"] == pytest.approx(1 / (1 + np.exp(-logit)), 1e-4)


def test_shares_of_classes_of_one_name_are_added():
    found = dict(classes=np.array([[0, 1], [2, 2]]))
    names = ("door", "wall", "door")
    expected = dict(classes=dict(door=0.75, wall=0.25))
    assert predict_tasks.summary(found, names) == expected
