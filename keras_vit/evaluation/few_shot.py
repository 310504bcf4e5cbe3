"""Few-shot accuracy: a few labels of each class, regression, many draws."""

import dataclasses
from typing import Annotated

import numpy as np

from keras_vit._arguments import Count, Natural, Positive, checked
from keras_vit.evaluation.least_squares import (
    LeastSquares,
    examples,
    few_shot_subset,
)

Shots = Annotated[tuple[Count, ...], "one or more positive integers", len]
Penalties = Annotated[tuple[Positive, ...], "one or more positive numbers", len]
SHOTS = (1, 5, 10, 25)
# Weights of the penalty to choose from, for features of any scale.
L2 = tuple(4.0**n for n in range(-5, 11))
# More training images than these would not improve the choice of `l2`.
MAX_DEV = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FewShotResult:
    """Accuracies with a number of labels, one for each draw.

    Attributes:
        shots: Labelled images of each class.
        l2: The chosen weight of the penalty.
        accuracies: Share of test images that are classified correctly, for each
            draw.
    """

    shots: int
    l2: float
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean accuracy of the draws."""
        return float(np.mean(self.accuracies))

    @property
    def deviation(self) -> float:
        """Standard deviation of the draws (N - 1); NaN for a single draw."""
        if len(self.accuracies) < 2:
            return float("nan")
        return float(np.std(self.accuracies, ddof=1))


@checked
def few_shot(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    num_classes: Count,
    shots: Shots = SHOTS,
    l2: Penalties = L2,
    num_draws: Count = 5,
    seed: Natural = 0,
) -> list[FewShotResult]:
    """Return the accuracy of least squares on a few labels of each class.

    For each number of shots, images are drawn from the training part
    `num_draws` times. Of several `l2` the best on average over the draws is
    chosen on training images that were not drawn; the test part is evaluated
    with that one only.

    Args:
        train: Representations `[N, D]` and classes `[N]` to draw from.
        test: Representations and classes to measure on.
        num_classes: Number of classes K.
        shots: Numbers of labelled images of each class.
        l2: Weights of the penalty to choose from; a single one needs no further
            training images.
        num_draws: Number of draws.
        seed: Seed of the draws.

    Returns:
        A result for each of `shots`, in their order.

    Raises:
        ValueError: If an argument is out of range, a class has too few
            images, or none of those to measure, or none is left to choose
            `l2` on.

    Reference:
        Dosovitskiy et al. 2021, section 4.1 ("Metrics").
    """
    train = examples("train", *train)
    test = examples("test", *test, width=train[0].shape[1])
    check_classes(train[1], test[1])
    results = []
    for count in shots:
        solvers, accuracies = [], np.zeros(len(l2))
        for draw in range(num_draws):
            drawn, dev = _draw(
                train[1], count, seed + draw, needs_dev=len(l2) > 1
            )
            solver = LeastSquares(train[0][drawn], train[1][drawn], num_classes)
            solvers.append(solver)
            if len(l2) > 1:
                dev = train[0][dev], train[1][dev]
                accuracies += [solver.accuracy(*dev, value) for value in l2]
        best = l2[int(np.argmax(accuracies))]
        results.append(
            FewShotResult(
                shots=count,
                l2=best,
                accuracies=tuple(s.accuracy(*test, best) for s in solvers),
            )
        )
    return results


def check_classes(train: np.ndarray, test: np.ndarray) -> None:
    """Refuse labels of which some are only measured."""
    absent = np.setdiff1d(test, train)
    if len(absent):
        raise ValueError(
            "`train` must have examples of every class of `test`. Received: "
            f"none of the classes {absent[:5].tolist()}"
        )


def _draw(labels, shots, seed, needs_dev):
    """Return indices of the drawn images, and of some of the others."""
    drawn = few_shot_subset(labels, shots, seed)
    others = np.setdiff1d(np.arange(len(labels)), drawn)
    if needs_dev and not len(others):
        raise ValueError(
            "Selecting `l2` needs held-out training images, but "
            f"shots={shots} uses all {len(labels)}. Lower `shots` or pass a "
            "single `l2`."
        )
    return drawn, np.random.default_rng(seed).permutation(others)[:MAX_DEV]
