"""Classification by the nearest labelled images."""

import numpy as np

from keras_vit._arguments import Count, Positive, checked
from keras_vit.data.optional_imports import optional
from keras_vit.evaluation.least_squares import examples

# Images classified at a time, and the most bytes of their similarities.
_BLOCK = 1024
_MEGABYTES = 64


@checked
def nearest_neighbours(
    train: tuple[np.ndarray, np.ndarray],
    features: np.ndarray,
    *,
    k: Count = 20,
    temperature: Positive | None = 0.07,
) -> np.ndarray:
    """Return the classes that the nearest training images vote for.

    Nearest means the highest cosine similarity s. The images to classify are
    processed in blocks, so that the similarities of all pairs are never in
    memory at once.

    Args:
        train: Representations `[N, D]` and classes `[N]`.
        features: Representations to classify, `[M, D]`.
        k: Number of neighbours that vote.
        temperature: Votes have the weight exp(s / temperature), with None equal
            weights. A tie goes to the lowest class.

    Returns:
        Classes, `[M]`.

    Raises:
        ValueError: If `k` or `temperature` is out of range, or an array has a
            wrong shape or values.
        ImportError: If scikit-learn is not installed.

    Reference:
        Wu et al. 2018 (1805.01978), section 3.4, for the weights.
    """
    train = examples("train", *train)
    features = np.asarray(features)
    shape = (len(features), train[0].shape[1])
    if features.shape != shape or not np.isfinite(features).all():
        raise ValueError(
            f"`features` must be finite numbers, [M, {shape[1]}], as those of "
            f"`train`. Received: shape {features.shape}"
        )
    if not len(features):
        return train[1][:0]
    if k > len(train[1]):
        raise ValueError(
            f"`k` must be at most {len(train[1])}, the number of training "
            f"images. Received: k={k}"
        )

    def weights(distances):
        # A distance is 1 - s. All weights of a vote are scaled by the same
        # factor, so that the nearest has 1 and none overflows.
        nearest = distances.min(axis=1, keepdims=True)
        return np.exp((nearest - distances) / temperature)

    classifier = (
        optional("sklearn.neighbors")
        .KNeighborsClassifier(
            k,
            metric="cosine",
            algorithm="brute",
            weights="uniform" if temperature is None else weights,
        )
        .fit(*train)
    )
    with optional("sklearn").config_context(working_memory=_MEGABYTES):
        return np.concatenate(
            [
                classifier.predict(features[i : i + _BLOCK])
                for i in range(0, len(features), _BLOCK)
            ]
        )
