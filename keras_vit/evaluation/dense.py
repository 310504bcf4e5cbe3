"""Scores of detection, segmentation and depth, image by image."""

import contextlib
import io
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np


class ByExample:
    """What the examples of a data set contribute to a score.

    Each is kept under its own key, so that an example that several devices or
    the padding of a batch repeat counts once.
    """

    def __init__(self):
        self.examples: dict[Hashable, Any] = {}

    def merge(self, other: "ByExample") -> None:
        """Add the examples of another part of the same data set."""
        self.examples |= other.examples

    def _sum(self):
        if not self.examples:
            raise ValueError("There must be at least one example. Received: 0")
        return np.sum(list(self.examples.values()), axis=0)


class MeanIoU(ByExample):
    """Mean intersection over union of the classes of pixels.

    The pixels of all images are counted together, by class. Classes that
    neither the targets nor the predictions have are left out of the mean.

    Args:
        num_classes: K.
        ignored: Target of the pixels to leave out; so are those outside 0 to
            K - 1.

    Example:
        score = keras_vit.evaluation.MeanIoU(2)
        score.update("a", [[0, 1]], [[0, 0]])
        score.result()
    """

    def __init__(self, num_classes: int, ignored: int = 255):
        super().__init__()
        self.num_classes = num_classes
        self.ignored = ignored

    def update(self, key: Hashable, target, predicted) -> None:
        """Count an image: its key, and two maps of classes, `[H, W]`.

        Raises:
            ValueError: If the maps have different sizes.
        """
        target, predicted = _same_size(target, predicted)
        counted = (target >= 0) & (target < self.num_classes)
        counted &= target != self.ignored

        def count(classes):
            inside = (classes >= 0) & (classes < self.num_classes)
            return np.bincount(classes[inside], minlength=self.num_classes)

        target, predicted = target[counted], predicted[counted]
        both = count(target[target == predicted])
        self.examples[key] = [both, count(target) + count(predicted) - both]

    def result(self) -> dict:
        """Return "mIoU", and "IoU" by class, NaN of those left out.

        Raises:
            ValueError: If there is no example.
        """
        both, either = self._sum()
        found = np.full(self.num_classes, np.nan)
        np.divide(both, either, out=found, where=either > 0)
        present = found[either > 0]
        mean = float(present.mean()) if len(present) else float("nan")
        return {"mIoU": mean, "IoU": found}


class PanopticQuality(ByExample):
    """Panoptic quality: PQ = sum of IoU / (TP + FP / 2 + FN / 2) of a class.

    A predicted and a true segment of one class match if their IoU is above one
    half. Pixels of no true segment are left out, and so are predicted segments
    that are mostly there. The mean is over the classes with a segment.

    Args:
        num_classes: K.

    Reference:
        Kirillov et al. 2019 (1801.00868), section 4. Crowd regions are not
        treated apart: give them no segment.
    """

    def __init__(self, num_classes: int):
        super().__init__()
        self.num_classes = num_classes

    def update(
        self,
        key: Hashable,
        target,
        target_classes: dict[int, int],
        predicted,
        predicted_classes: dict[int, int],
    ) -> None:
        """Count an image.

        Args:
            key: Its key.
            target, predicted: Numbers of segments, `[H, W]`.
            target_classes, predicted_classes: Number of a segment -> class;
                other numbers are of no segment.

        Raises:
            ValueError: If the maps have different sizes.
        """
        target, predicted = _same_size(target, predicted)
        target = np.where(np.isin(target, list(target_classes)), target, -1)
        pairs, counts = np.unique(
            np.stack([target, predicted], -1).reshape(-1, 2),
            axis=0,
            return_counts=True,
        )
        common = {
            (int(t), int(p)): int(n)
            for (t, p), n in zip(pairs, counts, strict=True)
        }
        area = {s: int((predicted == s).sum()) for s in predicted_classes}
        true_area = {s: int((target == s).sum()) for s in target_classes}
        found = np.zeros((self.num_classes, 4))  # IoU, TP, FP, FN
        matched = set()
        for (t, p), both in common.items():
            if t not in target_classes or p not in predicted_classes:
                continue
            if target_classes[t] != predicted_classes[p]:
                continue
            outside = common.get((-1, p), 0)
            iou = both / (area[p] + true_area[t] - both - outside)
            if iou > 0.5:
                found[target_classes[t]] += (iou, 1, 0, 0)
                matched |= {("target", t), ("predicted", p)}
        for t, name in target_classes.items():
            if true_area[t] and ("target", t) not in matched:
                found[name, 3] += 1
        for p, name in predicted_classes.items():
            if not area[p] or ("predicted", p) in matched:
                continue
            if common.get((-1, p), 0) <= area[p] / 2:
                found[name, 2] += 1
        self.examples[key] = found

    def result(self) -> dict:
        """Return "PQ", its factors "SQ" and "RQ", and "PQ_by_class".

        Raises:
            ValueError: If there is no example.
        """
        iou, true, false, missed = self._sum().T
        counted = true + false + missed > 0
        divisor = np.where(counted, true + (false + missed) / 2, 1)
        quality, recognition = iou / divisor, true / divisor
        segmentation = iou / np.maximum(true, 1)

        def mean(values):
            return float(values[counted].mean()) if counted.any() else np.nan

        return {
            "PQ": mean(quality),
            "SQ": mean(segmentation),
            "RQ": mean(recognition),
            "PQ_by_class": np.where(counted, quality, np.nan),
        }


class DepthErrors(ByExample):
    """AbsRel and delta1 of depth, means over images of the means over pixels.

    AbsRel is |d - d*| / d*; delta1 the share of pixels with max(d / d*, d* / d)
    below 1.25.

    Args:
        relative: Whether predictions are inverse depth up to scale and shift,
            which are then fitted for each image by least squares.
        max_depth: The largest depth of a fitted prediction, in metres.

    Reference:
        Ranftl et al. 2020 (1907.01341), section 6.
    """

    def __init__(self, relative: bool = False, max_depth: float = 80.0):
        super().__init__()
        self.relative = relative
        self.max_depth = max_depth

    def update(self, key: Hashable, target, predicted) -> None:
        """Count an image: its key, and two maps, `[H, W]`.

        Targets that are not finite or not above 0 are left out; an image
        without others is not counted.

        Raises:
            ValueError: If the maps have different sizes.
        """
        target, predicted = _same_size(target, predicted)
        with np.errstate(invalid="ignore"):
            valid = np.isfinite(target) & (target > 0)
        if not valid.any():
            return
        target = target[valid].astype("float64")
        predicted = predicted[valid].astype("float64")
        if self.relative:
            columns = np.stack([predicted, np.ones_like(predicted)], 1)
            fit = np.linalg.lstsq(columns, 1 / target, rcond=None)[0]
            predicted = 1 / np.maximum(columns @ fit, 1 / self.max_depth)
        error = np.mean(np.abs(predicted - target) / target)
        ratio = np.maximum(
            predicted / target, target / np.maximum(predicted, 1e-9)
        )
        self.examples[key] = [error, np.mean(ratio < 1.25), 1.0]

    def result(self) -> dict:
        """Return "AbsRel" and "delta1".

        Raises:
            ValueError: If there is no example.
        """
        error, share, count = self._sum()
        return {"AbsRel": float(error / count), "delta1": float(share / count)}


class CocoAveragePrecision(ByExample):
    """COCO's average precision of boxes, computed by pycocotools.

    Example:
        score = keras_vit.evaluation.CocoAveragePrecision()
        box = [[10.0, 10.0, 50.0, 50.0]]
        score.update("a", box, [3], box, [3], [0.9])
    """

    def update(
        self,
        key: Hashable,
        target_boxes,
        target_labels,
        boxes,
        labels,
        scores,
        areas=None,
        crowd=None,
    ) -> None:
        """Count an image.

        Args:
            key: Its key.
            target_boxes, boxes: `[n, 4]`: left, top, right and bottom in
                pixels; true and found ones.
            target_labels, labels: `[n]`, their classes.
            scores: `[n]`, of the found ones.
            areas: `[n]`, in pixels, of the true objects, for AP by size; those
                of the boxes if None.
            crowd: `[n]`, whether a true box is of a crowd; none if None.
        """
        target_boxes = np.array(target_boxes, float).reshape(-1, 4)
        boxes = np.array(boxes, float).reshape(-1, 4)
        for own in (target_boxes, boxes):
            own[:, 2:] -= own[:, :2]
        if areas is None:
            areas = target_boxes[:, 2] * target_boxes[:, 3]
        if crowd is None:
            crowd = np.zeros(len(target_boxes), int)
        true = [
            dict(bbox=b.tolist(), category_id=int(c), area=float(a), iscrowd=k)
            for b, c, a, k in zip(
                target_boxes,
                target_labels,
                areas,
                map(int, crowd),
                strict=True,
            )
        ]
        found = [
            dict(bbox=b.tolist(), category_id=int(c), score=float(s))
            for b, c, s in zip(boxes, labels, scores, strict=True)
        ]
        self.examples[key] = true, found

    def result(self) -> dict:
        """Return "AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large".

        The score of what the data set does not have is -1, as COCO's is.

        Raises:
            ImportError: If pycocotools is not installed.
            ValueError: If there is no example.
        """
        try:
            from pycocotools.coco import COCO
            from pycocotools.cocoeval import COCOeval
        except ImportError as error:
            raise ImportError(
                "COCO's average precision needs pycocotools: "
                "pip install pycocotools"
            ) from error
        if not self.examples:
            raise ValueError("There must be at least one example. Received: 0")
        true, found = (
            [
                {**each, "image_id": i}
                for i, parts in enumerate(self.examples.values())
                for each in parts[kind]
            ]
            for kind in (0, 1)
        )
        names = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")
        if not true or not found:
            # pycocotools cannot read empty results.
            return dict.fromkeys(names, 0.0 if true else -1.0)
        for number, each in enumerate(true, start=1):
            each["id"] = number
        with contextlib.redirect_stdout(io.StringIO()):
            annotations = COCO()
            annotations.dataset = {
                "images": [{"id": i} for i in range(len(self.examples))],
                "annotations": true,
                "categories": [
                    {"id": i} for i in sorted({t["category_id"] for t in true})
                ],
                "info": {},
            }
            annotations.createIndex()
            scores = COCOeval(annotations, annotations.loadRes(found), "bbox")
            scores.evaluate()
            scores.accumulate()
            scores.summarize()
        return dict(zip(names, map(float, scores.stats), strict=False))


def predict_windows(
    predict: Callable, image, window: tuple[int, int], stride: tuple[int, int]
) -> np.ndarray:
    """Return the logits of a large image, means over overlapping windows.

    Args:
        predict: Function of images `[n, h, w, C]` that returns `[n, h, w, K]`.
        image: `[H, W, C]`, at least as large as the window.
        window: (h, w), in pixels.
        stride: Distance (rows, columns) of windows, at most their size. The
            last ones end at the border.

    Returns:
        `[H, W, K]`.

    Raises:
        ValueError: If the image is smaller than the window, or the stride
            leaves gaps.
    """
    image = np.asarray(image)
    if any(
        size < part or not 1 <= step <= part
        for size, part, step in zip(image.shape, window, stride, strict=False)
    ):
        raise ValueError(
            "`window` must be at most the image, and `stride` from 1 to "
            f"`window`. Received: window={window}, stride={stride} for an "
            f"image of shape {image.shape}"
        )
    tops, lefts = (
        sorted({*range(0, size - part, step), size - part})
        for size, part, step in zip(image.shape, window, stride, strict=False)
    )
    total, count = None, np.zeros((*image.shape[:2], 1))
    for top in tops:
        for left in lefts:
            place = np.s_[top : top + window[0], left : left + window[1]]
            found = np.asarray(predict(image[place][None]))[0]
            if total is None:
                total = np.zeros((*image.shape[:2], found.shape[-1]))
            total[place] += found
            count[place] += 1
    return total / count


def _same_size(target, predicted):
    target, predicted = np.asarray(target), np.asarray(predicted)
    if target.shape != predicted.shape:
        raise ValueError(
            "The prediction must have the size of the target. Received: "
            f"{predicted.shape} for {target.shape}"
        )
    return target, predicted
