"""Few-shot regression against scikit-learn's."""

import numpy as np
import pytest
from sklearn import linear_model

from keras_vit import evaluation

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize("l2", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("count", "width"), [(60, 8), (20, 50)])
def test_weights_are_those_of_ridge_regression(l2, count, width):
    rng = np.random.default_rng(0)
    features = rng.normal(3, 2, (count, width)).astype("float32")
    labels = rng.integers(0, 4, count)
    targets = 2 * np.eye(5)[labels] - 1  # nothing is of class 4
    ridge = linear_model.Ridge(alpha=l2).fit(
        features.astype("float64"), targets
    )
    solver = evaluation.LeastSquares(features, labels, 5)
    kernel, bias = solver.weights(l2)
    np.testing.assert_allclose(kernel, ridge.coef_.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(bias, ridge.intercept_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.zeros(3), np.zeros(3, int), "`features` must be finite"),
        (np.full((3, 2), np.nan), np.zeros(3, int), "`features` must be"),
        (np.zeros((3, 2)), np.zeros(2, int), "`labels` must hold one class"),
        (np.zeros((3, 2)), np.full(3, 2), "`labels` must hold one class"),
        (np.zeros((3, 2)), np.zeros(3), "`labels` must hold one class"),
    ],
)
def test_what_cannot_be_solved_is_refused(features, labels, message):
    with pytest.raises(ValueError, match=message):
        evaluation.LeastSquares(features, labels, 2)


def test_too_many_shots_and_no_penalty_are_refused():
    with pytest.raises(ValueError, match="at most 1, the examples of class 1"):
        evaluation.few_shot_subset([0, 0, 1], 2, seed=0)
    for labels in ([], np.eye(3, dtype=int)):
        with pytest.raises(ValueError, match="`labels` must hold a class"):
            evaluation.few_shot_subset(labels, 1, seed=0)
    solver = evaluation.LeastSquares(np.eye(3), np.arange(3), 3)
    with pytest.raises(ValueError, match="`l2` must be a positive"):
        solver.weights(0.0)
    for labels in (np.arange(3)[:, None], np.arange(2)):
        with pytest.raises(ValueError, match=r"`labels` must be .*, \[N, 3\]"):
            solver.accuracy(np.eye(3), labels, 1.0)
