"""Scores of a model with a head on every example of a data set."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_vit.data import TaskSource
from keras_vit.evaluation.callback import copy_of, updated
from keras_vit.evaluation.dense import (
    CocoAveragePrecision,
    DepthErrors,
    MeanIoU,
)

# Detections of an image that are counted, as COCO does.
MAX_DETECTIONS = 100
# The score by which the best evaluation is chosen.
BEST_BY = dict(detection="AP50", segmentation="mIoU", depth="delta1")


def task_scores(
    model: keras.Model,
    source: TaskSource,
    batches: Iterable,
    interpret: Callable | None = None,
) -> dict[str, float]:
    """Return the scores of a model on a data set, every example once.

    Args:
        model: A model with a head, from images to a dictionary of outputs.
        source: The evaluation part of `keras_vit.data.load_task`.
        batches: Those of `keras_vit.data.task_eval_batches` of the source.
        interpret: As `TaskModel.interpret`; that of the model.

    Returns:
        Of boxes "AP", "AP50", "AP75" and AP by size; of classes of pixels
        "mIoU"; of depth "AbsRel" and "delta1".

    Raises:
        ValueError: If a target has another size than its image, or the task
            is "instances".
    """
    interpret = interpret or model.interpret
    score: Any
    options: dict[str, Any] = {}
    if source.task == "detection":
        score, options = CocoAveragePrecision(), dict(threshold=0.0)
    elif source.task == "segmentation":
        score = MeanIoU(len(source.class_names))
    elif source.task == "depth":
        score = DepthErrors()
    else:
        raise ValueError(
            f"`source` must be of a task of {tuple(BEST_BY)}. Received: task="
            f"{source.task!r}; `PanopticQuality` and others of this package "
            "score segments one image at a time"
        )
    for batch in batches:
        numbers = np.asarray(batch["index"])
        outputs = model.predict_on_batch(np.asarray(batch["images"]))
        sizes = [tuple(map(int, size)) for size in np.asarray(batch["sizes"])]
        found = interpret(outputs, sizes, **options)
        for number, size, own in zip(numbers, sizes, found, strict=True):
            if number >= 0:
                _count(score, source, int(number), size, own)
    result = score.result()
    return {k: v for k, v in result.items() if np.ndim(v) == 0}


def _count(score, source, number, size, found):
    target = source.load(number)
    if source.task == "segmentation":
        score.update(number, target["classes"], found["classes"])
    elif source.task == "depth":
        score.update(number, target["depth"], found["depth"])
    else:
        height, width = size
        centre, extent = np.split(target["boxes"], 2, axis=1)
        corners = np.concatenate([centre - extent / 2, centre + extent / 2], 1)
        score.update(
            number,
            corners * (width, height, width, height),
            target["labels"],
            *(
                found[key][:MAX_DETECTIONS]
                for key in ("boxes", "labels", "scores")
            ),
            areas=target.get("areas"),
            crowd=target.get("crowd"),
        )


class TaskScores(keras.callbacks.Callback):
    """Adds the scores of a task to the logs of evaluations.

    The logs receive "val_AP50" and so on, see `task_scores`. Put it where
    `FewShot` says; as there a copy of the model is measured on one device of
    each process.

    Args:
        source: The evaluation part.
        batches: Its batches.
        measured: The model with a head, of variables that are trained.
    """

    def __init__(
        self, source: TaskSource, batches: Iterable, measured: keras.Model
    ):
        super().__init__()
        self.source = source
        self.batches = batches
        self.measured = measured
        self._copy: Any = None

    def on_train_begin(self, logs=None):
        self._copy = copy_of(self.measured)

    def on_epoch_end(self, epoch, logs=None):
        with updated(self._copy, self.measured):
            found = task_scores(
                self._copy, self.source, self.batches, self.measured.interpret
            )
        logs.update({f"val_{name}": value for name, value in found.items()})
