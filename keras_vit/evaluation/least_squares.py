"""Few-shot classification by regularised least squares, in closed form."""

import numpy as np

from keras_vit._arguments import Count, Natural, Positive, checked


def examples(
    name: str,
    features: np.ndarray,
    labels: np.ndarray,
    width: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return representations `[N, D]` and classes `[N]` as arrays.

    Args:
        name: The arguments' name, for the message.
        features: Representations.
        labels: Classes.
        width: D; None is any.

    Raises:
        ValueError: If they are of another shape, or labels are no integers.
    """
    features, labels = np.asarray(features), np.asarray(labels)
    if (
        features.ndim != 2
        or not len(features)
        or features.shape[1] != (width or features.shape[1])
        or labels.shape != features.shape[:1]
        or labels.dtype.kind not in "ui"
    ):
        raise ValueError(
            f"`{name}` must be representations, [N, {width or 'D'}], and "
            "integers, [N], of at least one example. Received: shapes "
            f"{features.shape} and {labels.shape}, labels of {labels.dtype}"
        )
    return features, labels


class LeastSquares:
    """Ridge regression of features to targets in {-1, 1}^K.

        W = argmin |(X - mean(X)) W - (Y - mean(Y))|^2 + l2 |W|^2

    The targets Y, `[N, K]`, are never stored: the solution needs only sums over
    the examples of each class. The eigenvectors of X^T X are the same for every
    `l2`, so that trying many is cheap.

    Args:
        features: Representations of the labelled images, `[N, D]`.
        labels: Classes, counted from 0, `[N]`.
        num_classes: Number of classes K.

    Raises:
        ValueError: If features or labels have a wrong shape, type or value.

    Example:
        solver = LeastSquares(train_features, train_labels, num_classes=10)
        accuracy = solver.accuracy(test_features, test_labels, l2=1.0)

    Reference:
        Dosovitskiy et al. 2021, section 4.1 ("Metrics").
    """

    @checked
    def __init__(
        self, features: np.ndarray, labels: np.ndarray, num_classes: Count
    ):
        features = np.asarray(features)
        labels = np.asarray(labels)
        if features.ndim != 2 or not np.isfinite(features).all():
            raise ValueError(
                "`features` must be finite numbers of shape [N, D]. Received: "
                f"shape {features.shape}"
            )
        if (
            labels.shape != features.shape[:1]
            or not labels.size
            or labels.dtype.kind not in "ui"
            or labels.min() < 0
            or labels.max() >= num_classes
        ):
            raise ValueError(
                "`labels` must hold one class of 0 to "
                f"{num_classes - 1} for each of {len(features)} examples. "
                f"Received: shape {labels.shape}, {labels.dtype}"
            )
        self.num_classes = num_classes
        self._mean = features.mean(axis=0, dtype="float64")
        centred = features - self._mean  # float64: squares lose half the digits
        values, self._vectors = np.linalg.eigh(centred.T @ centred)
        self._values = np.maximum(values, 0)
        # X^T (Y - mean(Y)): columns of X sum to 0, so that the means cancel,
        # and so does the constant of Y = 2 onehot - 1; only sums over classes
        # remain.
        sums = np.zeros((num_classes, features.shape[1]))
        np.add.at(sums, labels, centred)
        self._projected = self._vectors.T @ (2 * sums.T)  # [D, K]
        counts = np.bincount(labels, minlength=num_classes)
        self._bias = 2 * counts / len(labels) - 1

    @checked
    def weights(self, l2: Positive) -> tuple[np.ndarray, np.ndarray]:
        """Return kernel `[D, K]` and bias `[K]`, float32.

        Args:
            l2: Weight of the penalty.

        Raises:
            ValueError: If `l2` is not positive.
        """
        scaled = self._projected / (self._values + l2)[:, np.newaxis]
        kernel = self._vectors @ scaled
        bias = self._bias - self._mean @ kernel
        return kernel.astype("float32"), bias.astype("float32")

    @checked
    def accuracy(
        self, features: np.ndarray, labels: np.ndarray, l2: Positive
    ) -> float:
        """Return the share of examples whose class has the highest score.

        It is NaN if a feature is.

        Those of a class without labelled images count as wrong: `few_shot` and
        `Probe` refuse them.

        Args:
            features: Representations, `[M, D]`.
            labels: Classes, `[M]`.
            l2: Weight of the penalty.

        Raises:
            ValueError: If an argument has a wrong shape, type or value.
        """
        kernel, bias = self.weights(l2)
        features, labels = examples(
            "features` and `labels", features, labels, len(kernel)
        )
        right = 0
        for start in range(0, len(features), 1024):
            part = slice(start, start + 1024)
            scores = np.asarray(features[part], "float32") @ kernel + bias
            if np.isnan(scores).any():
                return np.nan
            right += np.sum(scores.argmax(axis=-1) == labels[part])
        return float(right / len(features))


@checked
def few_shot_subset(
    labels: np.ndarray, shots: Count, seed: Natural
) -> np.ndarray:
    """Return the indices of `shots` examples of each class, ascending.

    Args:
        labels: Class of each example, `[N]`.
        shots: Examples of each class.
        seed: Seed of the choice.

    Raises:
        ValueError: If a class has fewer, or another argument is wrong.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(
            "`labels` must hold a class of at least one example, [N]. "
            f"Received: shape {labels.shape}"
        )
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) < shots:
            raise ValueError(
                f"`shots` must be at most {len(members)}, the examples of "
                f"class {label}. Received: shots={shots}"
            )
        chosen.append(rng.permutation(members)[:shots])
    return np.sort(np.concatenate(chosen))
