"""Scores of a model of two towers: classes by sentences, and retrieval."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_vit.data import PairSource
from keras_vit.evaluation.callback import copy_of, updated

# Rows of a matrix of similarities that are in memory at once.
_ROWS = 1024


def pair_scores(
    model: keras.Model,
    source: PairSource,
    batches: Iterable,
    class_ids: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the scores of a model of two towers on pairs.

    Args:
        model: A `keras_vit.text.TwoTowers`.
        source: The evaluation part of `keras_vit.data.load_pairs`.
        batches: Those of `keras_vit.data.pair_eval_batches` of the source.
        class_ids: Token ids of the sentences of `source.class_texts`, `[K, S,
            L]`; by default those of the model's tokenizer.

    Returns:
        With classes "accuracy", the mean over the S sentences, each of which
        describes every class, of the share of images that are most similar to
        the sentence of their class; and "ensemble_accuracy", by the mean
        embedding of a class's sentences. Without classes "text_recall", the
        share of images whose most similar caption is their own,
        "image_recall", that of captions whose image is their own, and "recall",
        the mean of both.
    """
    images, ids = [], []
    for batch in batches:
        kept = np.asarray(batch["labels"]["valid"]) > 0
        pixels = np.asarray(batch["images"]["images"])
        found = model.image_tower.predict_on_batch(pixels)
        images.append(np.asarray(found)[kept])
        ids.append(np.asarray(batch["images"]["ids"])[kept])
    x = _unit(np.concatenate(images))
    if source.class_texts:
        if class_ids is None:
            class_ids = ids_of_classes(model, source)
        texts = model.encode_texts(class_ids.reshape(-1, class_ids.shape[-1]))
        texts = texts.reshape(*class_ids.shape[:2], -1)  # [K, S, E]
        similar = np.einsum("ne,kse->nks", x, texts)
        is_right = similar.argmax(1) == source.labels[:, None]  # type: ignore
        of_class = x @ _unit(texts.mean(1)).T
        together = of_class.argmax(1) == source.labels
        return dict(
            accuracy=float(is_right.mean()),
            ensemble_accuracy=float(together.mean()),
        )
    captions = np.concatenate(ids)
    y = model.encode_texts(captions)
    text_recall = _recall(x, y, captions)
    image_recall = _recall(y, x, captions)
    return dict(
        text_recall=text_recall,
        image_recall=image_recall,
        recall=(text_recall + image_recall) / 2,
    )


def ids_of_classes(model, source: PairSource) -> np.ndarray:
    """Return the token ids of the sentences of classes, `[K, S, L]`.

    Args:
        model: A model with a tokenizer.
        source: Pairs with `class_texts`, as many for each class.
    """
    flat = [text for texts in source.class_texts for text in texts]
    ids = np.asarray(model.ids_of(flat))
    return ids.reshape(len(source.class_texts), -1, ids.shape[-1])


def _recall(queries, found, captions):
    """Return how often the most similar is the own, or has its caption."""
    nearest = np.concatenate(
        [
            (queries[i : i + _ROWS] @ found.T).argmax(1)
            for i in range(0, len(queries), _ROWS)
        ]
    )
    return float((captions[nearest] == captions).all(axis=1).mean())


def _unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


class PairScores(keras.callbacks.Callback):
    """Adds the scores of pairs to the logs of evaluations.

    The logs receive "val_accuracy" and so on, see `pair_scores`. Put it where
    `FewShot` says; as there a copy of the model is measured on one device of
    each process.

    Args:
        source: The evaluation part.
        batches: Its batches.
        measured: The model of two towers, of variables that are trained.
    """

    def __init__(
        self, source: PairSource, batches: Iterable, measured: keras.Model
    ):
        super().__init__()
        self.source = source
        self.batches = batches
        self.measured = measured
        self._copy: Any = None
        self._ids: Any = None

    def on_train_begin(self, logs=None):
        self._copy = copy_of(self.measured)
        if self.source.class_texts:
            self._ids = ids_of_classes(self.measured, self.source)

    def on_epoch_end(self, epoch, logs=None):
        with updated(self._copy, self.measured):
            found = pair_scores(
                self._copy, self.source, self.batches, self._ids
            )
        logs.update({f"val_{name}": value for name, value in found.items()})
