"""The export command, from a saved model to what a server reads."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shutil
import sys

import keras
import pytest
import realistic

import keras_vit
import keras_vit_cli
from keras_vit.export import limits, serving_assets
from keras_vit_cli import export as export_command
from recipes import experiment

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "export"))
import images  # noqa: E402

tf = pytest.importorskip("tensorflow")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.backend("tensorflow"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model in a .keras file, and three photographs."""
    folder = tmp_path_factory.mktemp("export")
    model = keras_vit.ViT(
        patch_size=4, hidden_size=32, num_layers=2, num_heads=2, mlp_dim=64,
        input_shape=(16, 16, 3), classes=4,
    )  # fmt: skip
    realistic.fill(model)
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    model.save(folder / "model.keras")
    for i in range(3):
        path = folder / f"{i}.jpg"
        path.write_bytes(images.encode(images.pixels(seed=i), "JPEG"))
    (folder / "labels.txt").write_text("one\ntwo\nthree\nfour\n")
    return folder


@pytest.fixture(scope="module")
def version(saved):
    """A SavedModel of the best model of a recorded run."""
    (saved / "run").mkdir()
    for name in ("best.keras", "last.keras"):
        shutil.copy(saved / "model.keras", saved / "run" / name)
    config = dict(config=dataclasses.asdict(experiment.Config()))
    (saved / "run" / "config.json").write_text(json.dumps(config))
    (saved / "run" / "metrics.csv").write_text(
        "step,val_accuracy,val_loss\n10,0.5,2.0\n20,0.75,1.5\n30,0.7,1.0\n"
    )
    path = saved / "numbers" / "3"
    names = f"--class_names={saved / 'labels.txt'}"
    best = saved / "run" / "best.keras"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert export(best, path, names, "--licence=MIT") == 0
    return path, out.getvalue()


def export(*words):
    return keras_vit_cli.main(["export", *map(str, words)])


def card_of(path):
    return json.loads((path / "assets.extra" / "model_card.json").read_text())


def test_a_version_has_all_serving_assets(saved, version):
    path, printed = version
    assert "saved_model.pb" in printed and "docker run" in printed
    assert "sigmoid" in printed  # by the model's loss
    for file in ("labels.txt", "model_card.json", "model_card.md"):
        assert (path / "assets.extra" / file).exists()
    assert (path.parent / "models.config").exists()
    card = card_of(path)
    assert card["licence"] == "MIT"
    assert card["class_names"] == ["one", "two", "three", "four"]
    assert card["metrics"] == dict(val_accuracy=0.75, val_loss=1.5, step=20)
    assert card["weights"] == "trained from scratch"
    assert card["dataset"] == "digits"
    last = export_command._of_the_run(str(saved / "run" / "last.keras"))
    assert last["metrics"] == dict(val_accuracy=0.7, val_loss=1.0, step=30)
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    image = (saved / "0.jpg").read_bytes()
    found = served(image_bytes=tf.constant([image]))
    assert found["classes"].shape == (1, 4)
    # Each class by itself: they do not sum to one.
    assert abs(float(tf.reduce_sum(found["scores"])) - 1) > 1e-2


def test_limits_of_requests_are_options(saved, tmp_path, monkeypatch):
    found = []

    def export_savedmodel(model, path, *, max_images, decoding_budget, **rest):
        found.append((max_images, decoding_budget))

    monkeypatch.setattr(keras_vit, "export_savedmodel", export_savedmodel)
    options = dict(max_images=7, decoding_budget=0.5)
    words = saved / "model.keras", tmp_path / "1"
    export(*words)
    export(*words, *(f"--{k}={v}" for k, v in options.items()))
    defaults = (serving_assets.BATCH_SIZES[-1], limits.DECODING_BUDGET)
    assert found == [defaults, (7, 0.5)]


@pytest.mark.parametrize(
    "precision", [pytest.param("bfloat16", marks=pytest.mark.thorough), "int8"]
)
@pytest.mark.usefixtures("plain_serving")
def test_other_precisions_are_smaller_and_report_their_errors(
    precision, saved, tmp_path, capsys
):
    pytest.importorskip("tensorflow_serving")
    photographs = [saved / f"{i}.jpg" for i in range(3)]
    path = tmp_path / precision / "1"
    slow = contextlib.nullcontext([])
    if precision == "int8":
        slow = pytest.warns(UserWarning, match="more than twice its time")
    with slow as warned:
        words = "--precision", precision, "--images", *photographs
        assert export(saved / "model.keras", path, *words) == 0
    slow = [w for w in warned if "its time" in str(w.message)]
    assert len(slow) == (precision == "int8")
    size = sum(f.stat().st_size for f in (path / "variables").iterdir())
    model = keras.models.load_model(saved / "model.keras")
    printed = capsys.readouterr().out
    assert f"{precision}: on 3 images" in printed
    card = card_of(path)
    assert card["precision"] == precision
    assert card["comparison"]["images"] == 3
    assert size < 0.75 * 4 * model.count_params()
    assert (path / "assets.extra" / "tf_serving_warmup_requests").exists()


def test_int8_of_a_file_is_compared_on_the_images(saved, tmp_path, capsys):
    pytest.importorskip("ai_edge_litert")
    words = "--precision", "int8", "--images", saved / "0.jpg"
    assert export(saved / "model.keras", tmp_path / "m.tflite", *words) == 0
    printed = capsys.readouterr().out
    assert "bytes, in int8" in printed
    assert "int8: on 1 image outputs differ by at most" in printed


def test_errors_are_sentences(saved, version, tmp_path, capsys):
    path, _ = version
    assert export(saved / "model.keras", path) == 2
    assert "Pass --overwrite" in capsys.readouterr().err
    assert export(tmp_path / "no.keras", tmp_path / "1") == 2
    (tmp_path / "no.keras").write_text("no archive")
    assert export(tmp_path / "no.keras", tmp_path / "1") == 2
    assert "must be a model that keras_vit can" in capsys.readouterr().err
    assert export(saved / "run", tmp_path / "1") == 2
    assert "run/best.keras'" in capsys.readouterr().err
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff")
    words = saved / "model.keras", tmp_path / "a" / "1", "--images", broken
    assert export(*words) == 2
    assert "broken.jpg" in capsys.readouterr().err
    words = saved / "model.keras", tmp_path / "a.onnx", "--images", broken
    assert export(*words) == 2
    assert "--images must be left out" in capsys.readouterr().err
    assert not (tmp_path / "a" / "1").exists()


def test_the_ending_of_a_file_chooses_its_format(saved, tmp_path, capsys):
    words = saved / "model.keras", tmp_path / "half.keras"
    assert export(*words, "--precision=float16") == 0
    assert "in float16" in capsys.readouterr().out
    model = keras.models.load_model(words[1])
    assert model.get_layer("embedding").kernel.dtype == "float16"
    assert export(*words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert export(*words, "--overwrite") == 0


@pytest.mark.parametrize("command", ["export", "convert"])
def test_a_file_that_is_not_written_leaves_the_one_before(
    command, saved, tmp_path, monkeypatch
):
    path = tmp_path / "model.keras"
    shutil.copy(saved / "model.keras", path)
    words = [command, str(path), str(path), "--overwrite"]
    words += ["--format", "keras_vit"] * (command == "convert")

    def full(self, path):
        pathlib.Path(path).write_bytes(b"PK")
        raise OSError("No space left on device")

    monkeypatch.setattr(keras.Model, "save", full)
    assert keras_vit_cli.main(words) == 2
    assert os.listdir(tmp_path) == ["model.keras"]
    assert path.read_bytes() == (saved / "model.keras").read_bytes()


@pytest.mark.parametrize(
    "option",
    ["--class_names=a.txt", "--top_k=2", "--max_images=7", "--licence=MIT"]
    + ["--activation=softmax"],
)
def test_a_file_takes_no_option_of_a_server(option, saved, tmp_path, capsys):
    path = tmp_path / "model.keras"
    assert export(saved / "model.keras", path, option) == 2
    assert option.partition("=")[0] in capsys.readouterr().err
    assert not path.exists()


def test_the_activation_of_a_loss_that_does_not_load_is_stated(
    saved, tmp_path, capsys
):
    model = keras.models.load_model(saved / "model.keras")

    def of_the_user(y_true, y_pred):
        return keras.ops.mean(y_pred)

    model.compile("sgd", of_the_user)
    model.save(tmp_path / "own.keras")
    path = tmp_path / "model.keras"
    assert export(tmp_path / "own.keras", path) == 2
    assert "--activation must be given" in capsys.readouterr().err
    assert export(tmp_path / "own.keras", path, "--activation=sigmoid") == 0
    loss = keras.models.load_model(path).loss
    assert isinstance(loss, keras.losses.BinaryCrossentropy)


def test_onnx(saved, tmp_path, capsys):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    assert export(saved / "model.keras", tmp_path / "model.onnx") == 0
    assert "neither JPEG" in capsys.readouterr().out
