"""Segments of images, of the classes and masks that queries predict.

Checked against EomtImageProcessor of transformers.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from keras_vit._arguments import Natural, checked
from keras_vit.data import pillow
from keras_vit.data.task_windows import image_windows
from keras_vit.heads import task_model
from keras_vit.heads.resizing import resized
from keras_vit.heads.task_model import TaskModel
from keras_vit.heads.yolos import softmax

Kind = Literal["semantic", "instance", "panoptic"]
View = Literal["stretched", "padded", "windows"]


class AnswerOptions(TypedDict, total=False):
    """What a model by queries answers, and of which view of an image.

    Attributes:
        kind: What `interpret` makes of the outputs: "panoptic", the default,
            "instance" or "semantic".
        view: How images of any size get the size of the model in `find_in`, and
            where it is served: "stretched", the default; "padded" with black
            below or at the right, their ratio kept; or cut into "windows"
            (semantic, a square model; SavedModels stretch). Released files have
            the last two.
    """

    kind: Kind
    view: View


class SegmentOptions(TypedDict, total=False):
    """What counts as a segment; the defaults are `DEFAULTS`.

    Attributes:
        threshold: The least score: the probability of the class, of instances
            times the mean probability of their pixels.
        mask_threshold: The least probability of a pixel; panoptic.
        overlap_threshold: The least share of a mask that other masks do not
            cover; panoptic.
        stuff_classes: Classes whose segments are one; panoptic.
    """

    threshold: float
    mask_threshold: float
    overlap_threshold: float
    stuff_classes: Sequence[int]


DEFAULTS: SegmentOptions = dict(
    threshold=0.8, mask_threshold=0.5, overlap_threshold=0.8, stuff_classes=()
)


@checked
def interpret(
    model: TaskModel,
    outputs: dict,
    image_size: tuple[int, int],
    kind: Kind | None = None,
    padded: bool = False,
    most: Natural = 0,
    class_scores: bool = False,
    **options: Unpack[SegmentOptions],
) -> dict:
    """Return the segments of one image; see `TaskModel`.

    Args:
        model: The model.
        outputs: Of the image: "class_queries_logits", `[Q, K + 1]`, and
            "masks_queries_logits", `[h, w, Q]`.
        image_size: (height, width) of the image, in pixels.
        kind: "semantic": the class of each pixel, "classes". "panoptic":
            segments that do not overlap. "instance": masks that may, the last
            one on top in "segments". None for that of the model.
        padded: Whether the image was not stretched to the input of the model,
            but resized to fit into it, and padded below or at the right.
        most: This number of instances, each a query with one of its classes,
            the most probable of all pairs, as the authors evaluate; 0 for the
            best class of each query.
        class_scores: Whether to return "class_scores" too, `[H, W, K]`;
            semantic.
        **options: See `SegmentOptions`.
    """
    limits = DEFAULTS | options
    scores = softmax(np.asarray(outputs["class_queries_logits"], "float32"))
    masks = outputs["masks_queries_logits"]

    def to_input(masks):
        return resized(masks, model.image_shape[:2])

    def to_image(maps):
        if padded:
            height, width = _unpadded(image_size, model.image_shape[:2])
            maps = maps[:height, :width]
        return resized(maps, image_size)

    kind = kind or model.options["kind"]
    if kind == "semantic":
        each = _sigmoid(to_input(masks)) @ scores[:, :-1]  # [H, W, K]
        each = to_image(each)
        found = dict(classes=each.argmax(axis=-1).astype("int32"))
        return found | (dict(class_scores=each) if class_scores else {})
    threshold = limits["threshold"]
    if kind == "panoptic":
        labels, scores = scores.argmax(axis=1), scores.max(axis=1)
        kept = (labels < model.options["classes"]) & (scores > threshold)
        masks = _sigmoid(to_image(to_input(masks[..., kept])))
        segments, found = _panoptic(masks, scores[kept], labels[kept], limits)
        return dict(segments=segments, segments_info=_named(model, found))
    queries, labels = _best_pairs(scores[:, :-1], most)
    scores = scores[queries, labels]
    kept = scores >= threshold  # that of the pixels can only lower it
    masks = to_image(to_input(masks[..., queries[kept]]))
    return _instances(model, masks, scores[kept], labels[kept], threshold)


def prepare(model: TaskModel, image: np.ndarray) -> np.ndarray:
    """Return an image of the model's size, padded with 0, if it is padded."""
    if model.options.get("view") != "padded":
        return image
    size = _unpadded(image.shape[:2], model.image_shape[:2])
    missing = [n - m for n, m in zip(model.image_shape, size, strict=False)]
    padding = [(0, n) for n in (*missing, 0)]
    return np.pad(pillow.resize(image, size), padding)


def find_in(
    model: TaskModel,
    image: np.ndarray,
    image_size: tuple[int, int],
    **options: Any,
) -> dict:
    """Return what the model finds in an image; see `TaskModel.find_in`."""
    view = model.options.get("view")
    if view == "padded":
        options = dict(padded=True) | options
    if view != "windows" or options.get("kind", "semantic") != "semantic":
        return task_model.find_in(model, image, image_size, **options)
    windows = image_windows(image, model.image_shape[0])
    outputs = model.predict_on_batch(windows["images"])
    interpret = functools.partial(model.interpret, **options)
    return joined(windows | dict(sizes=image_size), outputs, interpret)


def joined(windows: dict, outputs: dict, interpret: Callable) -> dict:
    """Return "classes", `[H, W]`, of the windows of one image.

    Scores of classes are averaged where windows overlap.

    Args:
        windows: An element of `keras_vit.data.task_windows`.
        outputs: Of the model, on these windows.
        interpret: That of the model.
    """
    found = interpret(outputs, None, kind="semantic", class_scores=True)
    side, _, classes = found[0]["class_scores"].shape
    total = np.zeros((*np.asarray(windows["scaled"]), classes), "float32")
    count = np.zeros((*total.shape[:2], 1), "float32")
    starts = np.asarray(windows["starts"])
    for (top, left), own in zip(starts, found, strict=True):
        place = np.s_[top : top + side, left : left + side]
        total[place] += own["class_scores"]
        count[place] += 1
    size = map(int, np.asarray(windows["sizes"]))
    total = resized(total / count, tuple(size))  # type: ignore[arg-type]
    return dict(classes=total.argmax(axis=-1).astype("int32"))


def _best_pairs(scores, most):
    """Return queries, and a class of each."""
    if not most:
        return np.arange(len(scores)), scores.argmax(axis=1)
    pairs = np.argsort(-scores, axis=None, kind="stable")[:most]
    return np.divmod(pairs, scores.shape[1])


def _unpadded(image_size, input_size):
    """Return the (height, width) of an image within the model's input."""
    scale = min(
        whole / n for whole, n in zip(input_size, image_size, strict=True)
    )
    height, width = (max(1, round(n * scale)) for n in image_size)
    return height, width


def _panoptic(masks, scores, labels, limits):
    """Return the segment of each pixel, -1 without, and their (label, score).

    Each pixel belongs to the mask of the highest score times probability.
    """
    segments = np.full(masks.shape[:2], -1, "int32")
    found: list[tuple[int, float]] = []
    of_stuff: dict[int, int] = {}
    if not len(scores):
        return segments, found
    owner = (masks * scores).argmax(axis=-1)
    for k, label in enumerate(labels.tolist()):
        owned, mask = owner == k, masks[..., k] >= limits["mask_threshold"]
        both = owned & mask
        if not both.any():
            continue
        if owned.sum() / mask.sum() <= limits["overlap_threshold"]:
            continue
        if label in of_stuff:
            segments[both] = of_stuff[label]
            continue
        if label in limits["stuff_classes"]:
            of_stuff[label] = len(found)
        segments[both] = len(found)
        found.append((label, scores[k]))
    return segments, found


def _instances(model, masks, scores, labels, threshold):
    """Return the masks with a score of at least the threshold."""
    inside = masks > 0
    sums = (_sigmoid(masks) * inside).sum(axis=(0, 1))
    areas = inside.sum(axis=(0, 1))
    scores = scores * sums / (areas + 1e-6)
    kept = (areas > 0) & (scores >= threshold)
    masks, scores, labels = inside[..., kept], scores[kept], labels[kept]
    segments = np.full(masks.shape[:2], -1, "int32")
    for i in range(len(scores)):
        segments[masks[..., i]] = i
    info = _named(model, zip(labels.tolist(), scores, strict=True))
    return dict(
        segments=segments,
        segments_info=info,
        masks=np.moveaxis(masks, -1, 0),
        scores=scores,
        labels=labels,
        names=model.names_of(labels),
    )


def _named(model, found):
    """Return the information on each segment, given its label and score."""
    return [
        dict(
            id=i,
            label_id=label,
            name=model.names_of([label])[0],
            score=float(score),
        )
        for i, (label, score) in enumerate(found)
    ]


def _sigmoid(x):
    # Of large negative numbers the exponential would overflow.
    return 0.5 * (1 + np.tanh(0.5 * x))
