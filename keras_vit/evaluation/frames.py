"""Average precision of boxes in frames of videos, as AVA counts it."""

from collections.abc import Collection, Hashable

import numpy as np

from keras_vit._arguments import Count, checked
from keras_vit.evaluation.dense import ByExample
from keras_vit.evaluation.objects import column, corners, integers

LEAST_IOU = 0.5


class FrameAveragePrecision(ByExample):
    """PASCAL's average precision of boxes, the mean over the classes.

    A found box is right if, among the true ones of its class in its frame, that
    with which its IoU is highest reaches 0.5, and no found box of a higher
    score is right there. The area lies under the precision that a recall of at
    least each value has, and not at 101 values of recall, as COCO's.

    Args:
        num_classes: K.
        unscored: Classes to leave out.

    Example:
        score = keras_vit.evaluation.FrameAveragePrecision(4)
        box = [[10.0, 10.0, 50.0, 50.0]]
        score.update("a", box, [3], box, [3], [0.9])

    Reference:
        Everingham et al. 2010, as in the evaluation of AVA v2.2 (frame mAP).
    """

    @checked
    def __init__(self, num_classes: Count, unscored: Collection[int] = ()):
        super().__init__()
        self.num_classes = num_classes
        if not set(unscored) <= set(range(num_classes)):
            raise ValueError(
                f"`unscored` must be classes, 0 to {num_classes - 1}. "
                f"Received: unscored={unscored}"
            )
        self.unscored = tuple(unscored)

    def update(
        self, key: Hashable, targets, target_labels, found, labels, scores
    ) -> None:
        """Count a frame.

        Args:
            key: Its key.
            targets, found: True and found boxes, `[n, 4]`: left, top, right and
                bottom. A box of several classes is in several rows.
            target_labels, labels: `[n]`, their classes.
            scores: `[n]`, of the found ones.

        Raises:
            ValueError: If a label is not one of the K classes, or an argument
                has another shape.
        """
        targets, found = corners("targets", targets), corners("found", found)
        target_labels = integers("target_labels", target_labels, targets)
        labels = integers("labels", labels, found)
        scores = column("scores", scores, found).astype("float64")
        both = np.concatenate([target_labels, labels])
        if ((both < 0) | (both >= self.num_classes)).any():
            raise ValueError(
                f"Labels must be from 0 to {self.num_classes - 1}. Received: "
                f"{both.min()} to {both.max()} in {key!r}"
            )
        right = np.zeros(len(found), bool)
        for label in np.unique(labels):
            own = np.flatnonzero(labels == label)
            true = targets[target_labels == label]
            own = own[np.argsort(-scores[own], kind="stable")]
            right[own] = _right(found[own], true)
        counts = np.bincount(target_labels, minlength=self.num_classes)
        self.examples[key] = labels, scores, right, counts

    def result(self) -> dict:
        """Return "mAP", and "AP_by_class", NaN where no box is true.

        All are NaN if a score is.

        Raises:
            ValueError: If there is no example.
        """
        if not self.examples:
            raise ValueError("There must be at least one example. Received: 0")
        *columns, counts = zip(*self.examples.values(), strict=True)
        labels, scores, right = (np.concatenate(x) for x in columns)
        counts = np.sum(counts, axis=0)
        precision = np.full(self.num_classes, np.nan)
        if np.isnan(scores).any():
            return {"mAP": np.nan, "AP_by_class": precision}
        for label in np.flatnonzero(counts):
            if label in self.unscored:
                continue
            own = labels == label
            order = np.argsort(-scores[own], kind="stable")
            precision[label] = _area(right[own][order], counts[label])
        known = precision[~np.isnan(precision)]
        mean = float(known.mean()) if len(known) else np.nan
        return {"mAP": mean, "AP_by_class": precision}


def _right(found, true):
    """Return which boxes, the most likely first, are right."""
    right = np.zeros(len(found), bool)
    if not len(true):
        return right
    begin = np.maximum(found[:, None, :2], true[:, :2])
    end = np.minimum(found[:, None, 2:], true[:, 2:])
    both = np.maximum(end - begin, 0).prod(-1)
    areas = [(x[:, 2:] - x[:, :2]).prod(-1) for x in (found, true)]
    overlap = both / np.maximum(areas[0][:, None] + areas[1] - both, 1e-12)
    taken = set()
    for i, best in enumerate(overlap.argmax(1)):
        if overlap[i, best] >= LEAST_IOU and best not in taken:
            right[i] = True
            taken.add(best)
    return right


def _area(right, count):
    """Return the area under the highest precision from each recall on."""
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(right) + 1)
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    return float(highest[right].sum() / count)
