"""The export command, from a saved model to what a server reads."""

import contextlib
import inspect
import json
import os
import sys

import keras
import pytest
import realistic

import keras_vit
from tools import export_savedmodel as tool

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


def run(saved, path, *arguments):
    return tool.main([str(saved / "model.keras"), str(path), *arguments])


def card_of(path):
    return json.loads((path / "assets.extra" / "model_card.json").read_text())


def test_a_version_with_all_its_furniture(saved, tmp_path, capsys):
    path = tmp_path / "numbers" / "3"
    labels = str(saved / "labels.txt")
    assert run(saved, path, "--class_names", labels, "--licence", "MIT") == 0
    printed = capsys.readouterr().out
    assert "saved_model.pb" in printed and "docker run" in printed
    assert "sigmoid" in printed  # by the model's loss
    for file in ("labels.txt", "model_card.json", "model_card.md"):
        assert (path / "assets.extra" / file).exists()
    assert (path.parent / "models.config").exists()
    card = card_of(path)
    assert card["licence"] == "MIT"
    assert card["class_names"] == ["one", "two", "three", "four"]
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    image = (saved / "0.jpg").read_bytes()
    found = served(image_bytes=tf.constant([image]))
    assert found["classes"].shape == (1, 4)
    # Each class by itself: they do not sum to one.
    assert abs(float(tf.reduce_sum(found["scores"])) - 1) > 1e-2


def test_limits_of_requests_are_options(saved, tmp_path, monkeypatch):
    found = []

    def export(model, path, *, max_images, decoding_budget, **others):
        found.append((max_images, decoding_budget))

    defaults = inspect.signature(keras_vit.export_savedmodel).parameters
    monkeypatch.setattr(keras_vit, "export_savedmodel", export)
    options = dict(max_images=7, decoding_budget=0.5)
    run(saved, tmp_path / "1")
    run(saved, tmp_path / "1", *(f"--{k}={v}" for k, v in options.items()))
    assert found == [tuple(defaults[k].default for k in options), (7, 0.5)]


@pytest.mark.parametrize(
    "precision",
    [
        "bfloat16",
        pytest.param("float16", marks=pytest.mark.backend("tensorflow")),
        "int8",
    ],
)
def test_other_precisions_are_smaller_and_report_their_errors(
    precision, saved, tmp_path, capsys
):
    pytest.importorskip("tensorflow_serving")
    photographs = [str(saved / f"{i}.jpg") for i in range(3)]
    path = tmp_path / precision / "1"
    arguments = ["--precision", precision, "--images", *photographs]
    slow = contextlib.nullcontext()
    if precision == "int8":
        slow = pytest.warns(UserWarning, match="more than twice its time")
    with slow as warned:
        assert run(saved, path, *arguments) == 0
    if precision == "int8":
        slow = [w for w in warned if "its time" in str(w.message)]
        assert len(slow) == 1
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
    path, image = tmp_path / "model.tflite", str(saved / "0.jpg")
    assert run(saved, path, "--precision", "int8", "--images", image) == 0
    printed = capsys.readouterr().out
    assert "bytes, in int8" in printed
    assert "int8: on 1 image outputs differ by at most" in printed


def test_errors_are_sentences(saved, tmp_path, capsys):
    path = tmp_path / "numbers" / "1"
    assert run(saved, path) == 0
    assert run(saved, path) == 2
    assert "Pass --overwrite" in capsys.readouterr().err
    assert run(saved, path, "--overwrite") == 0
    assert tool.main([str(tmp_path / "no.keras"), str(path)]) == 2
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff")
    assert run(saved, tmp_path / "a" / "1", "--images", str(broken)) == 2
    assert "broken.jpg" in capsys.readouterr().err
    assert not (tmp_path / "a" / "1").exists()


def test_the_ending_of_a_file_chooses_its_format(saved, tmp_path, capsys):
    path = tmp_path / "half.keras"
    assert run(saved, path, "--precision", "float16") == 0
    assert "in float16" in capsys.readouterr().out
    model = keras.models.load_model(path)
    assert model.get_layer("embedding").kernel.dtype == "float16"
    assert run(saved, path) == 2
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.backend("tensorflow")
def test_onnx(saved, tmp_path, capsys):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    assert run(saved, tmp_path / "model.onnx") == 0
    assert "neither JPEG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("best.keras", dict(val_accuracy=0.75, val_loss=1.5, step=20)),
        ("last.keras", dict(val_accuracy=0.7, val_loss=1.0, step=30)),
    ],
)
def test_the_card_describes_the_recorded_run(saved, tmp_path, name, metrics):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).write_bytes((saved / "model.keras").read_bytes())
    config = dict(config=dict(weights="", dataset="digits"))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.csv").write_text(
        "step,val_accuracy,val_loss\n10,0.5,2.0\n20,0.75,1.5\n30,0.7,1.0\n"
    )
    path = tmp_path / "digits" / "1"
    assert tool.main([str(folder / name), str(path)]) == 0
    card = card_of(path)
    assert card["metrics"] == metrics
    assert card["weights"] == "trained from scratch"
    assert card["dataset"] == "digits"
