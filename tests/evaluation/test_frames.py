"""The average precision of boxes in frames."""

import numpy as np
import pytest

from keras_vit import evaluation

pytestmark = pytest.mark.backend_independent

LEFT, RIGHT = [0.0, 0.0, 0.4, 1.0], [0.5, 0.0, 1.0, 1.0]


def test_the_area_lies_under_the_highest_precision_of_each_recall():
    score = evaluation.FrameAveragePrecision(3, unscored=(2,))
    # Of class 0: right, wrong (there is one already), right, and one is missed.
    nearly = [0.0, 0.0, 0.4, 0.6]
    score.update(
        "a",
        [LEFT, RIGHT, RIGHT],
        [0, 0, 2],
        [nearly, LEFT, LEFT],
        [0, 0, 1],
        [0.8, 0.9, 0.5],
    )
    score.update("b", [LEFT], [0], [LEFT, RIGHT], [0, 0], [0.7, 0.1])
    found = score.result()
    # Right, wrong, right, wrong, of 3: recall 1/3 at precision 1, 2/3 at 2/3.
    assert found["AP_by_class"][0] == pytest.approx((1 + 2 / 3) / 3)
    assert np.isnan(found["AP_by_class"][1:]).all()
    assert found["mAP"] == pytest.approx(5 / 9)
    score.update("c", [LEFT], [1], np.zeros((0, 4)), [], [])
    found = score.result()
    assert found["AP_by_class"][1] == 0
    assert found["mAP"] == pytest.approx(5 / 18)


def test_a_higher_precision_later_counts_for_a_lower_recall():
    score = evaluation.FrameAveragePrecision(1)
    found = [[2.0, 2.0, 3.0, 3.0], LEFT, RIGHT]  # the first apart from all
    score.update("a", [LEFT, RIGHT], [0, 0], found, [0] * 3, [0.9, 0.8, 0.7])
    assert score.result()["mAP"] == pytest.approx(2 / 3)


def test_half_the_area_in_common_is_enough():
    for width, is_right in ((0.5, True), (0.49, False)):
        score = evaluation.FrameAveragePrecision(1)
        box = [0.0, 0.0, width, 1.0]
        score.update("a", [[0.0, 0.0, 1.0, 1.0]], [0], [box], [0], [0.3])
        assert score.result()["mAP"] == is_right


def test_a_label_of_no_class_is_refused():
    score = evaluation.FrameAveragePrecision(2)
    with pytest.raises(ValueError, match="from 0 to 1. Received: 0 to 2"):
        score.update("a", [LEFT], [2], [LEFT], [0], [0.3])
    with pytest.raises(ValueError, match="`scores` must have one value"):
        score.update("a", [LEFT], [1], [LEFT], [0], [0.3, 0.2])
    with pytest.raises(ValueError, match="`unscored` must be classes, 0 to 1"):
        evaluation.FrameAveragePrecision(2, unscored={2})


def test_no_example_is_refused():
    with pytest.raises(ValueError, match="at least one example"):
        evaluation.FrameAveragePrecision(1).result()


def test_scores_that_are_no_numbers_have_no_precision():
    score = evaluation.FrameAveragePrecision(1)
    score.update(0, [LEFT], [0], [LEFT], [0], [np.nan])
    assert np.isnan(score.result()["mAP"])
