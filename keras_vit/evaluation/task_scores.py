"""Scores of a model with a head on every example of a data set."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_vit._arguments import checked
from keras_vit.data import TaskSource, decode
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.task_pipelines import pixels_of
from keras_vit.evaluation.callback import copy_of, updated
from keras_vit.evaluation.dense import DepthErrors, MeanIoU
from keras_vit.evaluation.frames import FrameAveragePrecision
from keras_vit.evaluation.objects import CocoAveragePrecision, PanopticQuality
from keras_vit.heads import segments

# Detections of an image that are counted, as COCO does.
MAX_DETECTIONS = 100
# The score by which the best evaluation is chosen.
BEST_BY = dict(
    detection="AP50",
    instances="AP50",
    panoptic="PQ",
    segmentation="mIoU",
    depth="delta1",
    actions="mAP",
)


@checked
def task_scores(
    model: keras.Model,
    source: TaskSource,
    batches: Iterable | None = None,
    interpret: Callable | None = None,
    padded: bool = False,
) -> dict[str, float]:
    """Return the scores of a model on a data set, every example once.

    Args:
        model: A model with a head, from images to a dictionary of outputs.
        source: The evaluation part of `keras_vit.data.load_task`.
        batches: Those of `keras_vit.data.task_eval_batches` of the source, or
            for "segmentation" by EoMT those of `task_windows`, whose scores are
            averaged where they overlap. None prepares each image, of no
            video, as `TaskModel.find_in` and `keras-vit predict` do.
        interpret: As `TaskModel.interpret`; that of the model.
        padded: Whether the batches are padded (EoMT, OWLv2).

    Returns:
        Of boxes, or of masks for "instances", "AP", "AP50", "AP75" and AP by
        size; "PQ", "SQ" and "RQ" for "panoptic"; of classes of pixels "mIoU";
        of depth "AbsRel" and "delta1"; "mAP" of "actions".

    Raises:
        ValueError: If a target has another size than its image, `batches` is
            missing for what needs them, or the model has not the classes of the
            source in its order. Of objects it may have them in another order,
            and others too, such as the "N/A" of COCO's numbers, which are left
            out.
    """
    numbers = _numbers(getattr(model, "class_names", None) or (), source)
    score = _score_of(source, getattr(model, "options", {}))
    options = _options_of(source)
    pads = getattr(model, "options", {}).get("pads")  # images that it prepares
    if batches is None and (interpret or padded or source.num_frames):
        raise ValueError(
            "`batches` must be given for videos, and with `interpret` or "
            f"`padded`. Received: batches=None for {source.name!r}"
        )
    if batches is not None and (padded or pads):
        options |= dict(padded=padded)
    for number, size, found in _each(
        model, source, batches, interpret, options
    ):
        if numbers is not None:
            found = _renumbered(found, numbers)
        _count(score, source, number, size, found)
    result = score.result()
    return {k: v for k, v in result.items() if np.ndim(v) == 0}


def _each(model, source, batches, interpret, options):
    """Yield (number, size, what the model finds) of every example."""
    if batches is None:
        channels = model.image_shape[2]
        for number in range(source.num_examples):
            example = source.load(number)
            image = pixels_of(source, number, example, channels)
            image = decode.recolour(
                tensorflow().convert_to_tensor(image), channels
            )
            found = model.find_in(image.numpy(), **options)
            yield number, tuple(image.shape[:2]), found
        return
    interpret = interpret or model.interpret
    for batch in batches:
        images = keras.tree.map_structure(np.asarray, batch["images"])
        outputs = model.predict_on_batch(images)
        if "starts" in batch:
            found = segments.joined(batch, outputs, interpret)
            yield int(batch["index"]), found["classes"].shape, found
            continue
        numbers = np.asarray(batch["index"])
        sizes = [tuple(map(int, size)) for size in np.asarray(batch["sizes"])]
        found = interpret(outputs, sizes, **options)
        for number, size, own in zip(numbers, sizes, found, strict=True):
            if number >= 0:
                yield int(number), size, own


def _numbers(names, source):
    """Return the source's number of each class of a model, -1 of others.

    None where they are the same.
    """
    own = source.class_names
    # Of names that are numbers in one of them (TFDS) the count is compared; in
    # both, as of digits, they are names.
    are_numbers = [all(str(n).isdigit() for n in x) for x in (names, own)]
    same = len(names) == len(own) and sum(are_numbers) == 1
    if not (names and own) or tuple(names) == own or same:
        return None
    once = [names.count(name) == 1 for name in own]
    if source.task in ("detection", "instances") and all(once):
        return np.array([own.index(x) if x in own else -1 for x in names])
    raise ValueError(
        "`model` must have the classes of the source in its order, since "
        f"labels are numbers. Received: {len(names)} classes, first "
        f"{list(names[:3])}, for {len(own)}, first {list(own[:3])}, of "
        f"{source.name!r}"
    )


def _renumbered(found, numbers):
    """Return what is of the source's classes, with their numbers."""
    labels = numbers[found["labels"]]
    kept = {
        key: found[key][labels >= 0]
        for key in ("boxes", "masks", "scores")
        if key in found
    }
    return kept | dict(labels=labels[labels >= 0])


def _score_of(source, options) -> Any:
    if source.task == "segmentation":
        return MeanIoU(len(source.class_names))
    if source.task == "depth":
        return DepthErrors(relative=options.get("kind") == "relative")
    if source.task == "panoptic":
        return PanopticQuality(len(source.class_names))
    if source.task == "actions":
        return FrameAveragePrecision(
            len(source.class_names), source.unscored_classes
        )
    return CocoAveragePrecision(masks=source.task == "instances")


def _options_of(source) -> dict[str, Any]:
    """Return what `interpret` is asked for."""
    if source.task == "panoptic":
        return dict(kind="panoptic", stuff_classes=source.stuff_classes)
    if source.task == "instances":
        return dict(kind="instance", threshold=0.0, most=MAX_DETECTIONS)
    if source.task in ("detection", "actions"):
        return dict(threshold=0.0)
    return {}


def _count(score, source, number, size, found):
    target = (source.targets or source.load)(number)
    if source.task == "segmentation":
        score.update(number, target["classes"], found["classes"])
    elif source.task == "depth":
        score.update(number, target["depth"], found["depth"])
    elif source.task == "panoptic":
        score.update(number, **_segments(target, found))
    elif source.task == "actions":
        rows, labels = np.nonzero(target["actions"])
        boxes = _corners(target, size)[rows]
        own = (found[name] for name in ("boxes", "labels", "scores"))
        score.update(number, boxes, labels, *own)
    else:
        key = "masks" if source.task == "instances" else "boxes"
        objects = target["masks"] if key == "masks" else _corners(target, size)
        order = np.argsort(-found["scores"], kind="stable")[:MAX_DETECTIONS]
        score.update(
            number,
            objects,
            target["labels"],
            *(found[name][order] for name in (key, "labels", "scores")),
            areas=target.get("areas"),
            crowd=target.get("crowd"),
        )


def _corners(target, size):
    """Return left, top, right and bottom in pixels."""
    height, width = size
    centre, extent = np.split(target["boxes"], 2, axis=1)
    corners = np.concatenate([centre - extent / 2, centre + extent / 2], 1)
    return corners * (width, height, width, height)


def _segments(target, found):
    """Return the arguments of `PanopticQuality.update`."""
    numbers = np.full(target["masks"].shape[1:], -1)
    for i, mask in enumerate(target["masks"]):
        numbers[mask] = i
    return dict(
        target=numbers,
        target_classes=dict(enumerate(map(int, target["labels"]))),
        predicted=found["segments"],
        predicted_classes={
            each["id"]: each["label_id"] for each in found["segments_info"]
        },
        crowd=np.flatnonzero(target.get("crowd", ())).tolist(),
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
        padded: Whether the batches are padded.
    """

    @checked
    def __init__(
        self,
        source: TaskSource,
        batches: Iterable,
        measured: keras.Model,
        padded: bool = False,
    ):
        super().__init__()
        self.source = source
        self.batches = batches
        self.measured = measured
        self.padded = padded
        self._copy: Any = None

    def on_train_begin(self, logs=None):
        self._copy = copy_of(self.measured)

    def on_epoch_end(self, epoch, logs=None):
        with updated(self._copy, self.measured):
            found = task_scores(
                self._copy,
                self.source,
                self.batches,
                self.measured.interpret,
                self.padded,
            )
        logs.update({f"val_{name}": value for name, value in found.items()})
