"""Scores of two towers on pairs against direct counts."""

import types

import numpy as np
import pytest

from keras_vit import evaluation

pytestmark = pytest.mark.backend_independent


def scored(images, ids, texts, **source):
    """Scores embeddings; texts are encoded by their first id."""

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    model = types.SimpleNamespace(
        image_tower=types.SimpleNamespace(predict_on_batch=np.asarray),
        encode_texts=lambda ids: unit(texts)[ids[:, 0]],
    )
    rows = np.arange(len(images) + 1) % len(images)  # the last is padding
    batch = {
        "images": {"images": images[rows], "ids": ids[rows]},
        "labels": {"valid": np.array([1] * len(images) + [0])},
    }
    source = types.SimpleNamespace(**dict(class_texts=()) | source)
    class_ids = np.arange(len(texts)).reshape(3, -1, 1)
    return evaluation.pair_scores(model, source, [batch], class_ids)


def test_classes_are_found_by_one_sentence_and_by_all():
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(40, 4)), rng.normal(size=(6, 4))
    labels = rng.integers(0, 3, 40)
    found = scored(images, labels[:, None], texts, class_texts=3, labels=labels)
    texts /= np.linalg.norm(texts, axis=-1, keepdims=True)
    texts = texts.reshape(3, 2, 4)
    means = texts.mean(1) / np.linalg.norm(texts.mean(1), axis=-1)[:, None]
    right = [
        (images @ some.T).argmax(1) == labels
        for some in (texts[:, 0], texts[:, 1], means)
    ]
    assert found["accuracy"] == pytest.approx(np.mean(right[:2]))
    assert found["ensemble_accuracy"] == right[2].mean()


def test_an_image_of_the_same_caption_is_right():
    images = np.array([[3.0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0.9, 0]])
    ids = np.array([[0, 7], [1, 7], [1, 8], [1, 7]])
    found = scored(images, ids, np.eye(3))
    # The third is nearest to the first caption, of which it is nearest too.
    assert found == dict(text_recall=0.75, image_recall=0.5, recall=0.625)
