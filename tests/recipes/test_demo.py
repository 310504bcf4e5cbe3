"""The web page without a browser: what it answers, and what it refuses."""

import json
import os
import pathlib
import signal
import sys
import time
import types

import numpy as np
import pytest

import keras_vit
import keras_vit_cli
from keras_vit_cli import savedmodel_client
from recipes import demo, demo_drawing, demo_models, demo_tasks
from tests import tf_serving
from tests.text import test_two_towers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "export"))
import images  # noqa: E402

pytestmark = pytest.mark.backend("tensorflow")


@pytest.fixture(scope="module")
def folder(page_models):
    return page_models


@pytest.fixture(scope="module")
def models(folder):
    names = ("vit.keras", "vit/1", "mixer.keras")
    return {name: demo_models.load(str(folder / name)) for name in names}


@pytest.mark.thorough()
def test_the_page_and_predict_judge_every_file_alike(
    folder, models, tmp_path, capsys
):
    files = images.valid() | images.broken(20)
    for name, content in files.items():
        (tmp_path / f"{name}.png").write_bytes(content)
    model = str(folder / "vit.keras")
    keras_vit_cli.main(["predict", model, str(tmp_path), "--format=jsonl"])
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    judged = {line["image"]: line for line in lines}
    assert len(judged) == len(files)
    answered = 0
    for path, line in judged.items():
        expected = line.get("predictions")
        try:
            demo.read_shown(path)
            answers = [models[n].ask(path) for n in ("vit.keras", "vit/1")]
        except ValueError as error:
            # Only the page refuses what would cost too much to decode.
            assert expected is None or "pixels" in path, path
            assert str(error).startswith(repr(path))
            continue
        answered += 1
        for answer in answers:
            assert [x for x, _ in answer.classes] == [
                x["class"] for x in expected
            ]
            np.testing.assert_allclose(
                [score for _, score in answer.classes],
                [x["score"] for x in expected],
                rtol=1e-3,
                atol=1e-5,
            )
    assert answered == len(images.valid())


def test_a_savedmodel_predicts_as_the_model(
    folder, models, tmp_path, monkeypatch, capsys
):
    # As it is loaded for the page.
    loaded = models["vit/1"]._classifier
    monkeypatch.setattr(savedmodel_client, "load", lambda path: loaded)
    png = images.valid()["png"]
    # Whole from the outside: only the decoder finds it, and fails its batch.
    inside = bytearray(png)
    inside[png.index(b"IDAT") + 8] ^= 0xFF
    contents = dict(a=png, broken=png[:20], inside=inside, b=png)
    for name, content in contents.items():
        (tmp_path / f"{name}.png").write_bytes(content)
    files = [str(tmp_path / f"{name}.png") for name in (*contents, "absent")]
    printed = []
    for name in ("vit.keras", "vit/1"):
        words = ["predict", str(folder / name), *files]
        assert keras_vit_cli.main(words) == 1
        printed.append(capsys.readouterr())
    expected, found = printed
    assert found.out.split("\n")[0] == expected.out.split("\n")[0]
    pairs = zip(found.out.split(), expected.out.split(), strict=True)
    for a, b in pairs:
        if a.endswith("%"):
            assert float(a[:-1]) == pytest.approx(float(b[:-1]), abs=0.02)
        else:
            assert a == b
    for name in ("broken.png", "inside.png", "absent.png"):
        assert name in found.err and name in expected.err
    words = ["predict", str(folder / "vit/1"), files[0], "--attention=a.png"]
    assert keras_vit_cli.main(words) == 2
    assert "--attention needs" in capsys.readouterr().err


def test_the_nearest_image_of_a_folder_is_itself(models, tmp_path):
    for i in range(4):
        content = images.encode(images.pixels(seed=i), "PNG")
        path = tmp_path / ("left" if i < 3 else "right") / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "left" / "broken.png").write_bytes(b"no image")
    paths = sorted(map(str, tmp_path.glob("*/*.png")))
    for model in models.values():
        done = []
        index = demo_models.Neighbours(model, paths, done.append)
        found, vote = index.nearest(paths[2], 3)
        assert vote == "left"  # of three to one
        assert done == [5] and len(found) == 3 and len(index.paths) == 4
        assert found[0] == (paths[2], pytest.approx(1, abs=1e-4))
        similarities = [similarity for _, similarity in found]
        assert similarities == sorted(similarities, reverse=True)
    with pytest.raises(ValueError, match="--images must be a folder"):
        demo_models.Neighbours(
            model, [p for p in paths if "broken" in p], print
        )


def test_sliders_draw_the_layer_and_the_head_they_name():
    heads = (np.eye(4).reshape(2, 2, 4) + 0.1, np.ones((1, 2, 4)))
    state = demo_drawing.Maps(np.zeros((8, 16, 3), "uint8"), heads[0][0], heads)
    drawn = {
        (layer, head): demo_drawing.maps(state, layer, head)
        for layer, head in ((1, 1), (1, 2), (2, 1), (2, 2))
    }
    assert "Layer 1 of 2, head 2 of 2" in drawn[1, 2]
    assert drawn[1, 1] != drawn[1, 2] != drawn[2, 1]
    assert drawn[2, 2] == drawn[2, 1]  # this layer has one head
    assert demo_drawing.maps(None, 1, 1) == ""


def test_a_model_with_a_head_shows_what_scores_enough(tmp_path):
    pytest.importorskip("gradio")
    backbone = keras_vit.ViT(
        patch_size=8, hidden_size=8, num_layers=1, num_heads=1, mlp_dim=8,
        input_shape=(16, 16, 1), include_top=False,
    )  # fmt: skip
    names = ("ant", "<b>bee</b>")
    head = keras_vit.heads.yolos(
        backbone, class_names=names, num_detection_tokens=3
    )
    head.save(tmp_path / "detector.keras")
    content = images.encode(images.pixels(900, 600), "JPEG")
    (tmp_path / "photo").write_bytes(content)
    path = str(tmp_path / "photo")
    model = demo_models.load(str(tmp_path / "detector.keras"))
    _, found, picture, *_, score, nearest = demo._contents(
        path, demo.read_shown(path), model, None, None
    )
    assert found.pixels.shape == (384, 256, 3) and score.visible
    assert found.found["boxes"].shape == (3, 4) and nearest == ""
    assert picture == demo._drawn(found, 1, 1, demo.FIRST_SCORE)
    scores = np.array([0.9, 0.3])
    boxes = dict(boxes=np.ones((2, 4)), labels=np.arange(2), names=list(names))
    info = [
        dict(id=i, label_id=i, name=name, score=score)
        for i, (name, score) in enumerate(zip(names, scores, strict=True))
    ]
    segments = np.array([[-1, 0], [1, 1]])
    for content, what in (
        (boxes | dict(scores=scores), "boxes"),
        (dict(segments=segments, segments_info=info), "segments"),
    ):
        state = demo_tasks.Found(np.zeros((2, 2, 3), "uint8"), content, names)
        all_of_them = demo_tasks.draw(state, 0.3)
        assert f"2 {what}" in all_of_them
        assert "&lt;b&gt;bee" in all_of_them and "<b>bee" not in all_of_them
        best = demo_tasks.draw(state, 0.5)
        assert f"1 {what}" in best and "bee" not in best and "90.00%" in best
    depth = dict(depth=np.array([[1.0, 2.0]]))
    state = demo_tasks.Found(np.zeros((1, 2, 3), "uint8"), depth, None)
    assert "Depth from 1 to 2" in demo_tasks.draw(state, 0.5)
    assert not state.has_scores


@pytest.mark.filterwarnings("ignore:.*have the same tokens")
def test_a_visitor_names_the_classes(tmp_path, capsys, models):
    pytest.importorskip("gradio")
    towers = test_two_towers.make("siglip", logit_bias=-3.0)
    towers.save(tmp_path / "towers.keras")
    owl = keras_vit.from_pretrained(test_two_towers.GOLDENS / "owlv2")
    owl.tokenizer = keras_vit.text.word_tokenizer(["red", "car"], 12)
    owl.save(tmp_path / "owl.keras")
    words = {
        name: demo_models.load(str(tmp_path / name))
        for name in ("towers.keras", "owl.keras")
    }
    path = str(tmp_path / "photo.jpg")
    content = images.encode(images.pixels(60, 40), "JPEG")
    pathlib.Path(path).write_bytes(content)
    file = path, "photo.jpg"
    judged = demo._judge(file, " red car,car", words, {}, None)
    found, drawn = judged[1], judged[8:11]
    model = str(tmp_path / "towers.keras")
    options = ["--classes", "red car,car", "--format=jsonl"]
    keras_vit_cli.main(["predict", model, path, *options])
    expected = json.loads(capsys.readouterr().out)["predictions"]
    rows = tuple((x["class"], x["score"]) for x in expected)
    assert found == demo_drawing.classes(rows)
    assert drawn[0] == "" and set(drawn[1].found["names"]) <= {"red car", "car"}
    again = demo._judge(file, "red,car", words, {}, None)
    assert again[1] != found
    message, *rest = demo._judge(file, " , ", words, {}, None)
    assert "Name the classes" in message and rest[0] == ""
    assert demo._words_component(words).visible
    assert not demo._words_component(models).visible
    index = demo_models.Neighbours(words["towers.keras"].named("a"), [path], id)
    assert index.nearest(path)[0] == [(path, pytest.approx(1, abs=1e-4))]


def scanned(number):
    """A JPEG that repeats its last scan."""
    grey = np.zeros((64, 64, 3), "uint8")
    jpeg = images.encode(grey, "JPEG", progressive=True)
    return jpeg[:-2] + jpeg[jpeg.rindex(b"\xff\xda") : -2] * number + jpeg[-2:]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (
            images.encode(np.zeros((8000, 8000), bool), "PNG"),
            "more than 50 mil",
        ),
        (images.valid()["png"][:20], "is damaged: its size cannot be read"),
        (images.encode(np.zeros((900, 900, 3), "uint8"), "JPEG")[:700], "cut"),
        (scanned(101), "would take too long"),
    ],
)
def test_a_refusal_names_one_cause(content, cause, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=cause) as error:
        demo.read_shown(str(path))
    assert ", or" not in str(error.value)


def test_a_signal_ends_the_page_and_then_removes_the_uploads(monkeypatch):
    events, at_exit = [], []

    def block_thread():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    page = types.SimpleNamespace(
        block_thread=block_thread, close=lambda: events.append("closed")
    )
    monkeypatch.setattr(demo, "build", lambda *arguments: page)
    monkeypatch.setattr(demo, "launch", lambda *arguments: (0, "address", 0))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        demo.main(["model"])
    assert ended.value.code == 128 + signal.SIGTERM
    assert events == ["closed"]
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.setattr(
        demo.atexit, "register", lambda f, *a, **k: at_exit.append((f, a, k))
    )
    folder = pathlib.Path(demo._folder_of_uploads.__wrapped__())
    monkeypatch.setenv("GRADIO_TEMP_DIR", "")
    monkeypatch.setattr(demo, "optional", lambda *names: None)
    monkeypatch.setattr(demo, "_folder_of_uploads", lambda: str(folder))
    demo._gradio.__wrapped__()
    assert os.environ["GRADIO_TEMP_DIR"] == str(folder)
    (folder / "upload").mkdir()
    ((function, arguments, keywords),) = at_exit
    function(*arguments, **keywords)
    assert not folder.exists()


def test_names_are_text_and_no_markup(folder):
    assert "folder" not in demo_drawing.heading("/home/folder/a/x.keras")
    rows = (("<script>", 0.5), ("&", 0.25))
    assert "&lt;script&gt;" in demo_drawing.classes(rows)
    for text in (
        demo_drawing.heading("<b>/x.keras"),
        demo_drawing.note(1, 2, "<b>.gif"),
        demo_drawing.problem("<b>"),
    ):
        assert "<b>" not in text and "&lt;b&gt;" in text


def test_a_served_model_answers_as_the_savedmodel(
    models, tmp_path, monkeypatch
):
    monkeypatch.setenv("no_proxy", "*")
    loaded = models["vit/1"]._classifier._loaded
    detector = dict.fromkeys(("outputs", "pixels", "serving_default"))
    served = tf_serving.Models({"vit": loaded.signatures, "yolos": detector})
    path = str(tmp_path / "image.png")
    pathlib.Path(path).write_bytes(images.valid()["png"])
    expected = models["vit/1"].ask(path)
    with tf_serving.rest(served) as address:
        model = demo_models.load(f"http://{address}/v1/models/vit/versions/7")
        found = model.ask(path)
        (features,) = model.features([path])
        broken = str(tmp_path / "broken.png")
        pathlib.Path(broken).write_bytes(b"no image")
        with pytest.raises(ValueError, match="is not valid: undecodable"):
            model.ask(broken)
        assert model.features([broken]) == [None]
        with pytest.raises(ValueError, match="No model 'other'"):
            demo_models.load(f"http://{address}/v1/models/other")
        with pytest.raises(ValueError, match="must be a classifier"):
            demo_models.load(f"http://{address}/v1/models/yolos")
    assert [name for name, _ in found.classes] == [
        name for name, _ in expected.classes
    ]
    for a, b in zip(found.classes, expected.classes, strict=True):
        assert a[1] == pytest.approx(b[1], abs=1e-5)
    np.testing.assert_allclose(found.rollout, expected.rollout, atol=1e-6)
    for a, b in zip(found.heads, expected.heads, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(
        features, models["vit/1"].features([path])[0], atol=1e-5
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("http://localhost/vit", "http://HOST:PORT/v1/models/NAME"),
        ("ftp://localhost:8501/v1/models/vit", "http://HOST:PORT"),
        ("http://127.0.0.1:1/v1/models/vit", "MODEL must be served"),
        ("nowhere.keras", "does not load"),
    ],
)
def test_what_is_no_model_is_refused(model, words, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(ValueError, match=words):
        demo_models.load(model)
