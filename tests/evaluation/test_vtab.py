"""Means over the tasks of VTAB."""

import pytest

from keras_vit.data import vtab
from keras_vit.evaluation import vtab_scores
from recipes import paper_tables

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("model", "mean"),
    [
        ("ViT-H/14 (JFT)", 77.6),
        ("ViT-L/16 (JFT)", 76.3),
        ("ViT-L/16 (I21k)", 72.7),
    ],
)
def test_the_mean_is_that_of_table_9(model, mean):
    accuracies = dict(zip(vtab.TASKS, paper_tables.TABLE_9[model], strict=True))
    assert round(vtab_scores(accuracies)["mean"], 1) == mean


def test_every_task_counts_once_in_its_group():
    accuracies = dict.fromkeys(vtab.TASKS, 0.0)
    accuracies |= {"dtd": 0.7, "eurosat": 0.8, "dmlab": 0.4, "clevr_count": 0.4}
    assert vtab_scores(accuracies) == pytest.approx(
        {
            "natural": 0.7 / 7,
            "specialized": 0.8 / 4,
            "structured": 0.8 / 8,
            "mean": 2.3 / 19,
        }
    )


def test_groups_that_lack_a_task_have_no_score():
    accuracies = dict.fromkeys(vtab.TASKS, 0.5)
    del accuracies["kitti_distance"]
    assert vtab_scores(accuracies) == {"natural": 0.5, "specialized": 0.5}
    assert vtab_scores({}) == {}


@pytest.mark.parametrize(
    ("accuracies", "message"),
    [
        ({"imagenet": 0.5}, "one of the 19. Received: 'imagenet'"),
        ({"dtd": float("nan")}, "`accuracies` must be .* finite number"),
    ],
)
def test_what_is_no_result_is_refused(accuracies, message):
    with pytest.raises(ValueError, match=message):
        vtab_scores(accuracies)
