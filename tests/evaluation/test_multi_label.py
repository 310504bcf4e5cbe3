"""Mean average precision and precision at 1."""

import keras
import numpy as np
import pytest

from keras_vit import evaluation


@pytest.mark.backend("torch")
def test_average_precision_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (40, 5)) / 5  # with ties
    targets = rng.integers(0, 2, (40, 5))
    targets[:, 2] = 0  # no image has it
    mean, found = evaluation.mean_average_precision(scores, targets)
    assert np.isnan(found[2])
    for k in (0, 1, 3, 4):
        expected = metrics.average_precision_score(targets[:, k], scores[:, k])
        assert found[k] == pytest.approx(expected)
    assert mean == pytest.approx(np.nanmean(found))
    # Scores that are infinite are equal; those of other types as in float.
    for changed, same in (
        (np.where(scores > 0.5, scores, -np.inf), np.maximum(scores, 0.4)),
        ((scores * 5).astype("uint8"), scores),
        (scores > 0.5, (scores > 0.5).astype("float32")),
    ):
        one, other = (
            evaluation.mean_average_precision(x, targets)[0]
            for x in (changed, same)
        )
        assert one == pytest.approx(other)


@pytest.mark.backend("torch")
def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"must be \[N, K\].*\(2, 3\)"):
        evaluation.precision_at_1(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="with 0 labels"):
        evaluation.mean_average_precision(np.ones((2, 3)), np.zeros((2, 3)))
    for labels in (np.array([0, 1]), np.array([[0], [1]])):
        with pytest.raises(ValueError, match="must be made one-hot"):
            evaluation.PrecisionAt1().update_state(labels, np.ones((2, 3)))


def test_precision_at_1_needs_any_of_the_labels():
    scores = np.array([[0.1, 0.9, 0.0], [0.5, 0.2, 0.1], [0.0, 0.1, 0.3]])
    targets = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
    assert evaluation.precision_at_1(scores, targets) == pytest.approx(1 / 3)
    metric = evaluation.PrecisionAt1()
    metric.update_state(targets * 0.4, scores)  # as MixUp has them
    assert float(metric.result()) == pytest.approx(1 / 3)
    metric.reset_state()
    metric.update_state(targets, scores, sample_weight=np.array([2, 2, 0]))
    assert float(metric.result()) == pytest.approx(1 / 2)
    copy = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert copy.name == "precision_at_1"


@pytest.mark.backend("torch")
def test_padding_is_left_out_of_scores():
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Flatten()(inputs))
    batches = [
        dict(images=np.eye(2), labels=np.ones((2, 2)), weights=np.ones(2)),
        dict(
            images=np.full((2, 2), 3.0),
            labels=np.array([[1, 0], [0, 0]]),
            weights=np.array([1, 0]),
        ),
    ]
    scores, targets = evaluation.scores_and_targets(model, batches)
    np.testing.assert_array_equal(scores, [[1, 0], [0, 1], [3, 3]])
    np.testing.assert_array_equal(targets, [[1, 1], [1, 1], [1, 0]])
    with pytest.raises(ValueError, match="`labels` must be one for each"):
        evaluation.features(model, batches)
    for labels, message in (
        (np.eye(2) * 0.9, "must be 0 or 1"),
        (np.array([0, 1]), r"must be \[B, 2\]"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.scores_and_targets(
                model, [dict(images=np.eye(2), labels=labels)]
            )


@pytest.mark.backend("torch")
def test_scores_that_are_no_numbers_have_no_precision():
    scores, targets = np.full((4, 2), np.nan), np.array([[1, 0], [0, 1]] * 2)
    assert np.isnan(evaluation.mean_average_precision(scores, targets)[0])
    assert np.isnan(evaluation.precision_at_1(scores, targets))
