"""Boxes for words: the library's numbers, and detectors of fixed queries."""

import contextlib

import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.heads.owl import BoxesAtPatches
from keras_vit.text import word_detector
from keras_vit_cli import index, opening
from tests.text.test_two_towers import GOLDENS, golden, near, numpy


@pytest.fixture(scope="module")
def opened():
    return keras_vit.from_pretrained(GOLDENS / "owlv2")


def test_the_golden_has_the_librarys_numbers(opened):
    data, images, ids = golden("owlv2")
    ids = ids.reshape(2, 3, 12).astype("int32")
    found = realistic.run(opened, dict(images=images, ids=ids))
    for name, key in (
        *(("logits",) * 2, ("pred_boxes",) * 2, ("objectness_logits",) * 2),
        *(("text_embeddings", "text_embeds"),),
        *(("class_embeddings", "class_embeds"),),
    ):
        near(found[name], data[f"out/{key}"])


@pytest.mark.backend("torch")
def test_boxes_at_the_border_are_placed_in_float32():
    """As the library does: 1 - 1 + 1e-4 is not 1e-4, but 1.00017e-4."""
    layer = BoxesAtPatches((2, 2))
    logits = np.full((1, 4, 4), -9.2, "float32")
    (box,) = numpy(layer(logits))[:, -1]
    near(box[:2], 1 / (1 + np.exp(-0.010274)), 1e-6)


@pytest.mark.backend("torch")
def test_queries_of_words_and_examples(opened, tmp_path):
    data, images, _ = golden("owlv2")
    names = ["red car", "bike"]
    opened.tokenizer = keras_vit.text.word_tokenizer(["red", "car"], 12)
    detector = opened.for_words(names, "name")
    detector.save(tmp_path / "model.keras")
    detector = keras.models.load_model(tmp_path / "model.keras")
    found = detector.predict(images, verbose=0)
    ids = np.stack([opened.tokenizer(names)] * 2)
    expected = numpy(opened(dict(images=images, ids=ids))["logits"])
    near(found["logits"], expected)
    (boxes, _) = detector.interpret(found, [(20, 40)] * 2, threshold=0.0)
    assert sorted(set(boxes["names"])) <= sorted(names)
    assert len(boxes["scores"]) == 9 and boxes["boxes"].max() > 20
    # Sigmoids of 0.18 and 0.05, of which the first is returned.
    logits = np.array([[[-1.5, -9.0], [-3.0, -9.0]]])
    few = dict(logits=logits, pred_boxes=np.full((1, 2, 4), 0.5))
    (few,) = detector.interpret(few, [(20, 40)])
    np.testing.assert_allclose(few["scores"], [0.18243], rtol=1e-4)
    assert detector.prepare(np.ones((20, 40, 3))).shape == (40, 40, 3)
    of_batches = options_of_batches(detector, images)
    (stretched, _) = detector.interpret(found, [(20, 40)] * 2, **of_batches)
    np.testing.assert_array_equal(
        stretched["boxes"] * [1, 2, 1, 2], boxes["boxes"]
    )
    example = opened.for_examples(images)
    queries = numpy(example.get_layer("queries").queries)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    best = data["out/objectness_logits"].argmax(axis=1)
    near(queries, data["out/class_embeds"][np.arange(2), best])
    # Objectness learns from features that it does not change.
    outputs = opened.image_tower(keras.ops.convert_to_tensor(images))
    outputs["objectness_logits"].sum().backward()
    weights = opened.image_tower.trainable_weights
    learn = {w.path for w in weights if w.value.grad is not None}
    assert learn == {w.path for w in weights if "objectness" in w.path}


@pytest.mark.backend("torch")
def test_an_example_of_owlvit_is_a_box_around_nearly_all():
    """As `embed_image_query` of transformers chooses it, without objectness."""
    half, edge = [0.5, 0.5], [0.0, 0.5]
    boxes = [[*half, 1, 1], [*half, 0.9, 1], [*half, 0.7, 1], [*edge, 2, 1]]
    boxes += [[*half, 1.2, 1]]
    embeddings = np.array([[4, 0], [2, 0], [-3, 0], [-3, 1], [1, 2]], float)
    found = word_detector._of_whole_image(embeddings, np.array(boxes))
    # Their IoU with the image is 1, 0.9, 0.7, 0.5 and 0.83.
    assert found.tolist() == [2, 0]


def options_of_batches(detector, images):
    """The options with which `task_scores` interprets stretched images."""
    given = []

    def interpret(outputs, sizes, **options):
        given.append(options)
        return [{}, {}]

    source = keras_vit.data.TaskSource(
        name="", task="detection", class_names=(), num_examples=1, load=dict
    )
    batch = dict(images=images, index=[-1, -1], sizes=[(20, 40)] * 2)
    with contextlib.suppress(ValueError):  # no objects
        keras_vit.evaluation.task_scores(detector, source, [batch], interpret)
    return given[0]


@pytest.mark.backend("torch")
def test_what_a_detector_cannot_do_is_refused(opened, monkeypatch):
    _, images, _ = golden("owlv2")
    for name in ("owlv2", "siglip2"):
        with pytest.raises(ValueError, match="entire images of one shape"):
            index.two_towers(str(GOLDENS / name))
    monkeypatch.setattr(opening, "load", lambda name: opened.image_tower)
    with pytest.raises(ValueError, match="an image tower and a text tower"):
        index.two_towers("x")
    with pytest.raises(ValueError, match="`for_words`"):
        keras_vit.zero_shot(opened, ["a"])
    with pytest.raises(ValueError, match=r"\[Q, 32\]"):
        keras_vit.heads.with_queries(opened.image_tower, np.ones((2, 3)))
    bare = opened.image_tower
    with pytest.raises(ValueError, match="must have queries"):
        bare.interpret(bare.predict(images, verbose=0))
    with pytest.raises(ValueError, match="class token"):
        backbone = keras_vit.SigLIP(
            patch_size=8,
            hidden_size=8,
            num_layers=1,
            num_heads=2,
            mlp_dim=8,
            input_shape=(16, 16, 3),
        )
        keras_vit.heads.owl(backbone, embedding_size=4)
