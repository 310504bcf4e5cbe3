"""Metrics of classifiers of images with several labels."""

from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

from keras_vit.evaluation.features import check_batch, joined


def scores_and_targets(
    model: keras.Model, batches: Iterable
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of a data set, and the targets.

    Args:
        model: A functional classifier, `[B, H, W, C]` to `[B, K]`.
        batches: Elements {"images", "labels", "weights"}, such as those of
            `keras_vit.data.eval_batches`: examples of weight 0 are padding
            and left out; "weights" may be absent.

    Returns:
        Float32 `[N, K]` and the labels, 0 or 1, uint8 `[N, K]`.

    Raises:
        ValueError: If labels are not 0 or 1 for each class, or a batch has
            another form.
    """
    scores, targets = [], []
    for batch in batches:
        check_batch(batch)
        found = np.asarray(model.predict_on_batch(np.asarray(batch["images"])))
        check_batch(batch, found.shape[-1])
        labels = np.asarray(batch["labels"])
        if not ((labels == 0) | (labels == 1)).all():
            raise ValueError(
                "`labels` of `batches` must be 0 or 1. Received: from "
                f"{labels.min()} to {labels.max()}"
            )
        is_example = np.asarray(batch.get("weights", np.ones(len(labels)))) > 0
        scores.append(found[: len(labels)][is_example].astype("float32"))
        targets.append(labels[is_example].astype("uint8"))
    return joined(scores), joined(targets)


def mean_average_precision(
    scores: np.ndarray, targets: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the mean over classes of the average precision.

        AP = sum_n (R_n - R_(n-1)) P_n

    over the distinct scores of a class in descending order, with precision P
    and recall R of the images that have at least that score, without
    interpolation, as in scikit-learn.

    Args:
        scores: `[N, K]`, higher where a label is likelier.
        targets: `[N, K]`, 0 or 1.

    Returns:
        The mean over the classes that at least one image has, and the average
        precision of each class, `[K]`, NaN for classes without images. All are
        NaN if a score is.

    Raises:
        ValueError: If the shapes differ, or no image has a label.
    """
    scores, targets = _checked(scores, targets)
    found = np.full(targets.shape[1], np.nan)
    if np.isnan(scores).any():
        return np.nan, found
    for k in np.flatnonzero(targets.any(axis=0)):
        order = np.argsort(-scores[:, k], kind="stable")
        score, right = scores[order, k], targets[order, k]
        # Images of equal score share a rank, that of the last one.
        last = np.flatnonzero(score[1:] != score[:-1])
        last = np.append(last, len(score) - 1)
        hits = np.cumsum(right)[last]
        precision = hits / (last + 1)
        recall = hits / hits[-1]
        found[k] = np.sum(np.diff(recall, prepend=0) * precision)
    return float(np.nanmean(found)), found


def precision_at_1(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return how often the class of the highest score is one of the labels.

    Args:
        scores: `[N, K]`; the result is NaN if one is.
        targets: `[N, K]`, 0 or 1.

    Raises:
        ValueError: If the shapes differ, or no image has a label.
    """
    scores, targets = _checked(scores, targets)
    if np.isnan(scores).any():
        return np.nan
    best = scores.argmax(axis=1)[:, None]
    return float(np.take_along_axis(targets, best, axis=1).mean())


@keras.saving.register_keras_serializable(package="keras_vit")
class PrecisionAt1(keras.metrics.MeanMetricWrapper):
    """Share of images whose highest score belongs to one of their labels.

    With one label per image it is the accuracy.

    Args:
        name: Name of the metric.
        dtype: Its dtype.

    Call arguments: labels, 0 or 1, and scores, `[B, K]`.

    Raises:
        ValueError: If their shapes differ.
    """

    def __init__(self, name: str = "precision_at_1", dtype=None):
        super().__init__(_is_right, name=name, dtype=dtype)

    def get_config(self):
        """Return the constructor's arguments."""
        return {"name": self.name, "dtype": self.dtype}


def _is_right(y_true, y_pred):
    y_true, y_pred = (
        ops.convert_to_tensor(y_true),
        ops.convert_to_tensor(y_pred),
    )
    shapes = tuple(y_true.shape), tuple(y_pred.shape)
    classes = {shape[-1] for shape in shapes} - {None}
    if [len(shape) for shape in shapes] != [2, 2] or len(classes) > 1:
        raise ValueError(
            "Labels and scores must both be [B, K]. Received: shapes "
            f"{shapes[0]} and {shapes[1]}; labels that are numbers of classes "
            "must be made one-hot"
        )
    best = ops.expand_dims(ops.argmax(y_pred, axis=-1), -1)
    label = ops.take_along_axis(ops.cast(y_true, "float32"), best, axis=-1)
    return ops.cast(label[:, 0] > 0, "float32")  # mixup gives fractions


def _checked(scores, targets):
    scores, targets = np.asarray(scores), np.asarray(targets) > 0
    if scores.dtype.kind != "f":  # the negative of unsigned ones is another
        scores = scores.astype("float64")
    if scores.ndim != 2 or scores.shape != targets.shape or not targets.any():
        raise ValueError(
            "`scores` and `targets` must be [N, K], with a label at least. "
            f"Received: {scores.shape} and {targets.shape}, with "
            f"{int(targets.sum())} labels"
        )
    return scores, targets
