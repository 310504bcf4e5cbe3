"""Scores of VTAB-1k."""

import statistics

from keras_vit._arguments import checked
from keras_vit.data import vtab


@checked
def vtab_scores(accuracies: dict[str, float]) -> dict[str, float]:
    """Average the accuracies of the 19 tasks.

    Args:
        accuracies: Test accuracy of each task of `keras_vit.data.vtab.TASKS`,
            in any unit; some may be missing.

    Returns:
        The mean accuracy of each of the groups "natural", "specialized" and
        "structured" whose tasks are complete, and with all 19 tasks also their
        "mean". Every task has the same weight, so this is not the mean of the
        groups.

    Raises:
        ValueError: If a name is no task, or an accuracy is not finite.

    Reference:
        Table 9 and Figure 2 of Dosovitskiy et al. 2021 (arXiv 2010.11929).
    """
    for name in accuracies:
        vtab.task_of(name)
    members = {
        group: [
            name for name, task in vtab.TASKS.items() if task.group == group
        ]
        for group in vtab.GROUPS
    }
    members["mean"] = list(vtab.TASKS)
    return {
        name: statistics.fmean(accuracies[task] for task in tasks)
        for name, tasks in members.items()
        if all(task in accuracies for task in tasks)
    }
