"""Scores of classes of pixels and of depth, image by image."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from keras_vit._arguments import Count, Positive, checked


class ByExample:
    """What the examples of a data set contribute to a score.

    Each is kept under its own key, so that an example that several devices or
    the padding of a batch repeat counts once.
    """

    def __init__(self):
        self.examples: dict[Hashable, Any] = {}

    def merge(self, other: "ByExample") -> None:
        """Add the examples of another part of the same data set.

        Raises:
            ValueError: If they are of another score, or of other settings.
        """
        own, others = (
            {k: v for k, v in vars(x).items() if k != "examples"}
            for x in (self, other)
        )
        if type(other) is not type(self) or own != others:
            raise ValueError(
                f"`other` must be a {type(self).__name__} of {own}. Received: "
                f"a {type(other).__name__} of {others}"
            )
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

    @checked
    def __init__(self, num_classes: Count, ignored: int = 255):
        super().__init__()
        self.num_classes = num_classes
        self.ignored = ignored

    def update(self, key: Hashable, target, predicted) -> None:
        """Count an image: its key, and two maps of classes, `[H, W]`.

        Raises:
            ValueError: If the maps have different sizes, or are no integers.
        """
        target, predicted = same_size(target, predicted)
        if not {target.dtype.kind, predicted.dtype.kind} <= set("bui"):
            raise ValueError(
                "`target` and `predicted` must be maps of classes, integers. "
                f"Received: {target.dtype} and {predicted.dtype}"
            )
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

    @checked
    def __init__(self, relative: bool = False, max_depth: Positive = 80.0):
        super().__init__()
        self.relative = relative
        self.max_depth = max_depth

    def update(self, key: Hashable, target, predicted) -> None:
        """Count an image: its key, and two maps, `[H, W]`.

        Targets that are not finite or not above 0 are left out; an image
        without others is not counted. Predictions that are not finite make
        AbsRel so.

        Raises:
            ValueError: If the maps have different sizes.
        """
        target, predicted = same_size(target, predicted)
        with np.errstate(invalid="ignore"):
            valid = np.isfinite(target) & (target > 0)
        if not valid.any():
            return
        target = target[valid].astype("float64")
        predicted = predicted[valid].astype("float64")
        if self.relative and np.isfinite(predicted).all():
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


@checked
def predict_windows(
    predict: Callable,
    image,
    window: tuple[Count, Count],
    stride: tuple[Count, Count],
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
        ValueError: If the image is smaller than the window, the stride leaves
            gaps, or `predict` returns another shape.
    """
    image = np.asarray(image)
    if image.ndim != 3 or any(
        size < part or not 1 <= step <= part
        for size, part, step in zip(image.shape, window, stride, strict=False)
    ):
        raise ValueError(
            "`window` must be at most the image, [H, W, C], and `stride` from "
            f"1 to `window`. Received: window={window}, stride={stride} for an "
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
            found = np.asarray(predict(image[place][None]))
            if found.shape[:-1] != (1, *window):
                raise ValueError(
                    f"`predict` must return [1, {window[0]}, {window[1]}, K]. "
                    f"Received: shape {found.shape}"
                )
            found = found[0]
            if total is None:
                total = np.zeros((*image.shape[:2], found.shape[-1]))
            total[place] += found
            count[place] += 1
    return total / count


def same_size(target, predicted):
    """Return two maps as arrays; raise ValueError if their sizes differ."""
    target, predicted = np.asarray(target), np.asarray(predicted)
    if target.shape != predicted.shape:
        raise ValueError(
            "The prediction must have the size of the target. Received: "
            f"{predicted.shape} for {target.shape}"
        )
    return target, predicted
