"""Scores of objects and segments: average precision, and panoptic quality."""

import contextlib
import io
from collections.abc import Collection, Hashable

import numpy as np

from keras_vit._arguments import Count, checked
from keras_vit.evaluation.dense import ByExample, same_size


class PanopticQuality(ByExample):
    """Panoptic quality: PQ = sum of IoU / (TP + FP / 2 + FN / 2) of a class.

    A predicted and a true segment of one class match if their IoU is above one
    half. Pixels of no true segment are left out, and so are predicted segments
    that are mostly there. The mean is over the classes with a segment.

    Args:
        num_classes: K.

    Reference:
        Kirillov et al. 2019 (1801.00868), section 4; crowds as in panopticapi.
    """

    @checked
    def __init__(self, num_classes: Count):
        super().__init__()
        self.num_classes = num_classes

    @checked
    def update(
        self,
        key: Hashable,
        target,
        target_classes: dict[int, int],
        predicted,
        predicted_classes: dict[int, int],
        crowd: Collection[int] = (),
    ) -> None:
        """Count an image.

        Args:
            key: Its key.
            target, predicted: Numbers of segments, `[H, W]`.
            target_classes, predicted_classes: Number of a segment -> class;
                other numbers are of no segment.
            crowd: Numbers of true segments of many objects. They are neither
                matched nor missed, and what lies in one of its class counts as
                if it lay in no segment.

        Raises:
            ValueError: If the maps have different sizes, or another argument
                is out of range.
        """
        target, predicted = same_size(target, predicted)
        if not set(crowd) <= set(target_classes):
            raise ValueError(
                "`crowd` must be numbers of `target_classes`. Received: "
                f"crowd={crowd} for {sorted(target_classes)}"
            )
        void = min([0, *target_classes]) - 1
        target = np.where(np.isin(target, list(target_classes)), target, void)
        pairs, counts = np.unique(
            np.stack([target, predicted], -1).reshape(-1, 2),
            axis=0,
            return_counts=True,
        )
        common = {
            (int(t), int(p)): int(n)
            for (t, p), n in zip(pairs, counts, strict=True)
        }
        for name in (*target_classes.values(), *predicted_classes.values()):
            if not 0 <= name < self.num_classes:
                raise ValueError(
                    f"Classes must be 0 to {self.num_classes - 1}. Received: "
                    f"{name}"
                )
        area = {s: int((predicted == s).sum()) for s in predicted_classes}
        true_area = {s: int((target == s).sum()) for s in target_classes}
        found = np.zeros((self.num_classes, 4))  # IoU, TP, FP, FN
        matched = {("target", t) for t in crowd}
        for (t, p), both in common.items():
            if t not in target_classes or p not in predicted_classes:
                continue
            if t in crowd or target_classes[t] != predicted_classes[p]:
                continue
            outside = common.get((void, p), 0)
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
            free = (void, *(t for t in crowd if target_classes[t] == name))
            if sum(common.get((t, p), 0) for t in free) <= area[p] / 2:
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


class CocoAveragePrecision(ByExample):
    """COCO's average precision of boxes or masks, computed by pycocotools.

    Args:
        masks: Whether `update` is given masks, bool or 0 and 1, `[n, H, W]`,
            instead of boxes.

    Example:
        score = keras_vit.evaluation.CocoAveragePrecision()
        box = [[10.0, 10.0, 50.0, 50.0]]
        score.update("a", box, [3], box, [3], [0.9])
    """

    @checked
    def __init__(self, masks: bool = False):
        super().__init__()
        self.masks = masks

    def update(
        self,
        key: Hashable,
        targets,
        target_labels,
        found,
        labels,
        scores,
        areas=None,
        crowd=None,
    ) -> None:
        """Count an image.

        Args:
            key: Its key.
            targets, found: True and found boxes, `[n, 4]`: left, top, right and
                bottom in pixels; or masks.
            target_labels, labels: `[n]`, their classes.
            scores: `[n]`, of the found ones.
            areas: `[n]`, in pixels, of the true objects, for AP by size; those
                of the boxes or masks if None.
            crowd: `[n]`, whether a true object is a crowd; none if None.

        Raises:
            ImportError: If there are masks, and pycocotools is not installed.
            ValueError: If an argument has another shape, or labels are no
                integers.
        """
        form = _run_lengths if self.masks else _corner_and_size
        true, own_areas, size = form("targets", targets)
        found, _, found_size = form("found", found)
        if len(true) and len(found) and size != found_size:
            raise ValueError(
                "`targets` and `found` must be masks of one size. Received: "
                f"{size} and {found_size}"
            )
        areas = own_areas if areas is None else column("areas", areas, true)
        crowd = np.zeros(len(true)) if crowd is None else crowd
        crowd = column("crowd", crowd, true)
        target_labels = integers("target_labels", target_labels, true)
        labels = integers("labels", labels, found)
        scores = column("scores", scores, found)
        annotations = [
            each | dict(category_id=int(c), area=float(a), iscrowd=int(k))
            for each, c, a, k in zip(
                true, target_labels, areas, crowd, strict=True
            )
        ]
        results = [
            each | dict(category_id=int(c), score=float(s))
            for each, c, s in zip(found, labels, scores, strict=True)
        ]
        self.examples[key] = annotations, results

    def result(self) -> dict:
        """Return "AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large".

        The score of what the data set does not have is -1, as COCO's is. All
        are NaN if a score or a found box is.

        Raises:
            ImportError: If pycocotools is not installed.
            ValueError: If there is no example.
        """
        _mask_functions()  # names what is missing
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

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
        values = [(each["score"], each.get("bbox", 0.0)) for each in found]
        if not all(np.isfinite(np.hstack(each)).all() for each in values):
            return dict.fromkeys(names, float("nan"))
        if not true:
            return dict.fromkeys(names, -1.0)
        for number, each in enumerate(true, start=1):
            each["id"] = number
        kind = "segm" if self.masks else "bbox"
        with contextlib.redirect_stdout(io.StringIO()):
            annotations = COCO()
            annotations.dataset = {
                # The sizes are those of the run lengths.
                "images": [
                    {"id": i, "height": 0, "width": 0}
                    for i in range(len(self.examples))
                ],
                "annotations": true,
                "categories": [
                    {"id": i} for i in sorted({t["category_id"] for t in true})
                ],
                "info": {},
            }
            annotations.createIndex()
            results = COCO()  # which cannot read an empty list
            if found:
                results = annotations.loadRes(found)
            scores = COCOeval(annotations, results, kind)
            scores.evaluate()
            scores.accumulate()
            scores.summarize()
        return dict(zip(names, map(float, scores.stats), strict=False))


def corners(name: str, values) -> np.ndarray:
    """Return boxes, `[n, 4]`; raise ValueError if they are none."""
    found = np.array(values, "float64")
    if found.size and (found.ndim != 2 or found.shape[1] != 4):
        raise ValueError(
            f"`{name}` must be boxes, [n, 4]. Received: shape {found.shape}"
        )
    return found.reshape(-1, 4)


def column(name: str, values, of) -> np.ndarray:
    """Return values, `[n]`; raise ValueError unless there is one for each."""
    found = np.asarray(values)
    if found.shape != (len(of),):
        raise ValueError(
            f"`{name}` must have one value for each of {len(of)}. Received: "
            f"shape {found.shape}"
        )
    return found


def integers(name: str, values, of) -> np.ndarray:
    """Do what `column` does, and raise ValueError unless they are integers."""
    found = column(name, values, of)
    if len(found) and found.dtype.kind not in "ui":
        raise ValueError(f"`{name}` must be integers. Received: {found.dtype}")
    return found.astype("int64")


def _corner_and_size(name, boxes):
    """Return boxes in COCO's form, their areas, and the size of masks."""
    boxes = corners(name, boxes)
    boxes[:, 2:] -= boxes[:, :2]
    areas = boxes[:, 2] * boxes[:, 3]
    return [dict(bbox=b) for b in boxes.tolist()], areas, None


def _run_lengths(name, masks):
    """Return masks in COCO's form, their areas, and their size."""
    masks = np.asarray(masks)
    if not len(masks):
        return [], np.zeros(0), None
    if masks.ndim != 3 or masks.dtype.kind not in "bui":
        raise ValueError(
            f"`{name}` must be masks, bool [n, H, W]. Received: shape "
            f"{masks.shape} of {masks.dtype}"
        )
    masks = (masks != 0).astype("uint8")
    columns = np.asfortranarray(np.moveaxis(masks, 0, -1))
    coded = [dict(segmentation=x) for x in _mask_functions().encode(columns)]
    return coded, masks.sum(axis=(1, 2)), masks.shape[1:]


def _mask_functions():
    try:
        from pycocotools import mask
    except ImportError as error:
        raise ImportError(
            "COCO's average precision needs pycocotools: "
            "pip install pycocotools"
        ) from error
    return mask
