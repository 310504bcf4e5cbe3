"""SavedModels of models with heads answer as `TaskModel.interpret`."""

import json
import os
import sys

import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit import data
from keras_vit.export import (
    description,
    limits,
    task_maps,
    task_signatures,
)
from tests import with_keras

sys.path.insert(0, os.path.dirname(__file__))
import images  # noqa: E402

tf = pytest.importorskip("tensorflow")
from keras_vit_cli import main, savedmodel_client  # noqa: E402

pytestmark = [
    # What is made of outputs is TensorFlow's whatever the backend.
    pytest.mark.backend("torch"),
    # jax2tf, through which Keras exports from JAX, is called deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
NAMES = ("ant", "bee", "cat")
SIZES = [(41, 11), (20, 30)]


def make(head, num_layers=1, size=(16, 24), **options):
    backbone = keras_vit.ViT(
        patch_size=4, hidden_size=16, num_layers=num_layers, num_heads=2,
        mlp_dim=16, input_shape=(*size, 3), include_top=False,
    )  # fmt: skip
    return realistic.fill(getattr(keras_vit.heads, head)(backbone, **options))


@pytest.mark.backend("tensorflow", "jax")
@pytest.mark.thorough("jax")
def test_boxes_are_those_of_the_model_in_pixels_of_the_file(tmp_path, capsys):
    with_keras.needs_export()
    model = make("yolos", class_names=NAMES, num_detection_tokens=6)
    path = tmp_path / "model" / "1"
    keras_vit.export_savedmodel(model, path, top_k=4)
    card = (path / "assets.extra" / "model_card.md").read_text()
    assert "A model for detection for TensorFlow Serving" in card
    served = tf.saved_model.load(str(path)).signatures
    valid = images.valid()
    files = [valid["jpeg of another size"], b"", valid["png"]]
    found = served["serving_default"](image_bytes=tf.constant(files))
    found = {name: value.numpy() for name, value in found.items()}
    assert found["reason"].tolist() == [b"", b"undecodable", b""]
    np.testing.assert_array_equal(
        found["image_size"], [SIZES[0], (0, 0), SIZES[1]]
    )
    batch = []
    for i in (0, 2):
        (tmp_path / f"{i}").write_bytes(files[i])
        batch.append(data.read_image(tmp_path / f"{i}", model.image_shape[:2]))
    outputs = model.predict(np.stack(batch), verbose=0)
    raw = served["outputs"](images=tf.constant(np.stack(batch)))
    for name, value in outputs.items():
        np.testing.assert_allclose(raw[name], value, rtol=1e-3, atol=1e-4)
    for at, expected in zip(
        (0, 2), model.interpret(outputs, SIZES, threshold=0), strict=True
    ):
        for name in ("boxes", "scores"):
            np.testing.assert_allclose(
                found[name][at], expected[name][:4], rtol=1e-3, atol=1e-3
            )
        labels = expected["labels"][:4]
        np.testing.assert_array_equal(found["indices"][at], labels)
        names = [x.decode() for x in found["classes"][at]]
        assert names == expected["names"][:4]
    model.save(tmp_path / "model.keras")
    lines = []
    for source in (path, tmp_path / "model.keras"):
        command = ["predict", str(source), str(tmp_path / "0"), "--score=0.4"]
        assert not main([*command, f"--drawing={tmp_path / 'drawn.png'}"])
        lines.append(json.loads(capsys.readouterr().out))
    served_line, line = lines
    assert served_line["names"] == line["names"][:4] != []
    for name in ("boxes", "scores"):
        np.testing.assert_allclose(
            served_line[name], line[name][:4], rtol=1e-3, atol=1e-2
        )
    assert not found["boxes"][1].any() and not found["scores"][1].any()
    assert found["indices"][1].tolist() == [-1] * 4
    assert found["classes"][1].tolist() == [b""] * 4
    pixels = np.stack([images.pixels(20, 30)] * 2).astype("float32")
    pixels[0, 3, 4] = np.nan
    answer = served["pixels_float"](pixels=tf.constant(pixels))
    assert answer["valid"].numpy().tolist() == [False, True]
    np.testing.assert_allclose(
        answer["boxes"][1], found["boxes"][2], rtol=1e-3, atol=1e-2
    )


@pytest.mark.backend("tensorflow")
def test_images_are_padded_where_the_models_are(tmp_path):
    options = dict(num_queries=12, num_blocks=1, view="padded")
    model = make("eomt", class_names=NAMES, **options)
    limits = dict(threshold=0.1, overlap_threshold=0.0)
    path = tmp_path / "model" / "1"
    keras_vit.export_savedmodel(model, path, interpret=limits)
    served = tf.saved_model.load(str(path)).signatures
    valid = images.valid()
    files = [valid["jpeg of another size"], valid["png"]]
    answers = [
        served["serving_default"](image_bytes=tf.constant(files)),
        served["serving_default"](image_bytes=tf.constant(files[:1])),
        served["pixels"](pixels=tf.constant(images.pixels(20, 30)[None])),
    ]
    for i, answer in zip(((0, 1), (0,), (1,)), answers, strict=True):
        for at, png in zip(i, answer["mask_bytes"].numpy(), strict=True):
            (tmp_path / "file").write_bytes(files[at])
            pixels = data.decode.read_pixels(tmp_path / "file", 3)
            found = model.find_in(pixels, **limits)["segments"]
            segments = tf.io.decode_png(png).numpy()[..., 0].astype(int) - 1
            assert len(np.unique(found)) > 1
            assert np.mean(segments == found) > 0.99
    resize = description.describe(model)["input"]["resize"]
    assert resize.startswith("bilinear to fit into this size")


def answered(model, **options):
    """What is answered of random outputs, and what `interpret` returns."""
    rng = np.random.default_rng(0)
    outputs = {
        name: rng.normal(0, 3, (3, *x.shape[1:])).astype("float32")
        for name, x in model.output.items()
    }
    answers = task_signatures.TaskAnswers(
        model, None, model.class_names or (), None, 8, options
    )
    tensors = [
        *(tf.constant(outputs[name]) for name in answers.names),
        tf.constant([SIZES[0], (0, 0), SIZES[1]]),
        tf.constant([limits.VALID, limits.UNDECODABLE, limits.VALID]),
    ]
    found = tf.function(
        answers.answer,
        input_signature=[
            tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in tensors
        ],
    )(*tensors)
    found = {name: value.numpy() for name, value in found.items()}
    assert found["valid"].tolist() == [True, False, True]
    assert found["reason"][1] == b"undecodable"
    for name, value in found.items():
        if name != "reason":
            assert set(np.ravel(value[1]).tolist()) <= {0, -1, b""}, name
    if model.task == "pose":
        options["threshold"] = None
    if model.options.get("view") == "padded":
        options["padded"] = True
    kept = {name: x[::2] for name, x in outputs.items()}
    rows = [{name: x[i] for name, x in found.items()} for i in (0, 2)]
    return zip(rows, model.interpret(kept, SIZES, **options), strict=True)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("linear", {}),
        ("eomt", dict(num_queries=5, num_blocks=1, kind="semantic")),
        ("eomt", dict(num_blocks=1, kind="semantic", view="padded")),
    ],
)
def test_classes_of_pixels_are_a_png(head, options):
    for found, expected in answered(make(head, class_names=NAMES, **options)):
        classes = tf.io.decode_png(found["mask_bytes"]).numpy()[..., 0]
        assert np.mean(classes == expected["classes"]) > 0.99
        again = savedmodel_client.interpret(found, classes.shape)
        np.testing.assert_array_equal(again["classes"], classes)
        shares = np.bincount(classes.ravel(), minlength=3) / classes.size
        order = found["indices"]
        present = int((shares > 0).sum())
        assert (order[:present] >= 0).all() and (order[present:] == -1).all()
        np.testing.assert_allclose(
            found["shares"][:present], shares[order[:present]], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("panoptic", dict(stuff_classes=(0, 1), overlap_threshold=0.1)),
        ("instance", {}),
    ],
)
def test_segments_are_a_png_of_numbers(kind, options):
    model = make("eomt", class_names=NAMES, num_queries=12, num_blocks=1)
    options = dict(kind=kind, threshold=0.5) | options
    for found, expected in answered(model, **options):
        segments = tf.io.decode_png(found["mask_bytes"]).numpy()[..., 0]
        assert np.mean(segments.astype(int) - 1 == expected["segments"]) > 0.99
        info = expected["segments_info"]
        assert 2 < len(info) < 12
        labels = [x["label_id"] for x in info] + [-1] * (12 - len(info))
        assert found["indices"].tolist() == labels
        again = savedmodel_client.interpret(found, segments.shape)
        ids = [x["label_id"] for x in again["segments_info"]]
        assert ids == [x["label_id"] for x in info]
        np.testing.assert_array_equal(again["segments"] + 1, segments)
        scores = [x["score"] for x in info]
        np.testing.assert_allclose(
            found["scores"][: len(info)], scores, rtol=1e-3
        )


@pytest.mark.parametrize("kind", ["panoptic", "instance"])
def test_an_image_without_segments_is_answered(kind):
    model = make("eomt", class_names=NAMES, num_queries=4, num_blocks=1)
    for found, expected in answered(model, kind=kind, threshold=1.0):
        assert not expected["segments_info"]
        assert not tf.io.decode_png(found["mask_bytes"]).numpy().any()
        assert found["indices"].tolist() == [-1] * 4
        assert not found["scores"].any()


def test_depth_is_a_png_of_16_bits_between_two_numbers():
    sizes = dict(fusion_size=8, neck_sizes=(8,) * 4, head_size=8)
    model = make("depth_anything", num_layers=4, **sizes)
    for found, expected in answered(model):
        depth = tf.io.decode_png(found["depth_bytes"], dtype=tf.uint16)
        spread = found["largest"] - found["least"]
        depth = savedmodel_client.interpret(found, depth.shape[:2])["depth"]
        np.testing.assert_allclose(depth, expected["depth"], atol=1e-4 * spread)


def test_keypoints_are_those_of_the_model():
    for found, expected in answered(make("vitpose", class_names=NAMES)):
        np.testing.assert_allclose(
            found["keypoints"], expected["keypoints"], atol=1e-2
        )
        np.testing.assert_allclose(found["scores"], expected["scores"])
        size = 2 * found["image_size"]  # as a page shows it
        again = savedmodel_client.interpret(found, size)
        np.testing.assert_allclose(again["keypoints"], 2 * found["keypoints"])
        assert found["classes"].tolist() == [b"ant", b"bee", b"cat"]


def test_a_map_has_a_bounded_size():
    for size in ((1080, 1920), (4000, 3000), (1, 10**7), (7, 1)):
        height, width = task_maps.size_of(tf.constant(size)).numpy()
        assert height * width <= task_maps.MAX_PIXELS and min(height, width) > 0
    assert task_maps.size_of(tf.constant((1080, 1920))).numpy()[1] == 1920


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, None, {}), "`top_k` is of classifiers and of detectors"),
        ((None, "softmax", {}), "`activation` must be None for a model"),
        ((None, None, dict(padded=True)), r"Received: \['padded'\]"),
        ((None, None, dict(kind="all")), "`kind` must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    model = make("eomt", class_names=NAMES, num_queries=3, num_blocks=1)
    with pytest.raises(ValueError, match=words):
        task_signatures.plan(model, *arguments)


def test_options_that_an_answer_cannot_have_are_refused():
    model = make("eomt", classes=3, num_queries=4, num_blocks=1)
    plan = task_signatures.plan(model, None, None, dict(kind="panoptic"))
    assert plan["interpret"] == dict(kind="panoptic")
    own = dict(size=(16, 16), kind="semantic", view="windows")
    model = make("eomt", classes=3, num_queries=4, num_blocks=1, **own)
    with pytest.warns(UserWarning, match="stretches images"):
        task_signatures.plan(model, None, None, {})
    for options in (dict(most=5), dict(class_scores=True), dict(padded=True)):
        with pytest.raises(ValueError, match="`interpret` must have options"):
            task_signatures.plan(model, None, None, options)


def test_detectors_of_words_are_refused_and_described():
    model = make("owl", embedding_size=8)
    detector = keras_vit.heads.with_queries(model, np.ones((2, 8)), ["a", "b"])
    with pytest.raises(ValueError, match="none of OWL-ViT or OWLv2"):
        task_signatures.plan(detector, None, None, {})
    resize = description.describe(detector)["input"]["resize"]
    assert resize.startswith("padded with 0 below or on the right to a square")
