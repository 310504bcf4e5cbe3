"""What the paper claims, judged by the runs of recipes.miniature."""

import numpy as np
from scipy import stats

from recipes import paper_tables, uncertainty

YES, PARTLY, NO = "reproduced", "reproduced in part", "not reproduced"


def claims(results: dict) -> list[tuple[str, str, str, str]]:
    """Return (what is claimed, where in the paper, result, verdict).

    A difference counts if it is more than twice its standard error, which is
    that of two independent draws of the evaluation images.
    """
    return [
        _overtaking(results),
        _hybrid(results),
        _positions(results),
        _distances(results),
        _no_positions(results),
        _average(results),
    ]


def _overtaking(results):
    first, *_, last = _differences(results, "ViT", "ResNet")
    verdict = NO
    if first[1] < -first[2] and last[1] > last[2]:
        verdict = YES
    elif last[1] - first[1] > np.hypot(first[2], last[2]):
        verdict = PARTLY
    return (
        "With few training images the ResNet is better than the ViT; with "
        "many the ViT overtakes it.",
        "Figures 3 and 4",
        "ViT less ResNet: " + _listed(results, "ViT", "ResNet"),
        verdict,
    )


def _hybrid(results):
    *_, last = _differences(results, "Hybrid", "ViT")
    return (
        "At a small cost the hybrid is better than the ViT.",
        "Figure 5",
        "Hybrid less ViT: " + _listed(results, "Hybrid", "ViT"),
        YES if last[1] > last[2] else NO,
    )


def _positions(results):
    found = results["positions"]
    near, chance = (
        found["nearest_adjacent"],
        found["nearest_adjacent_by_chance"],
    )
    verdict = YES if near > 0.5 and found["correlation"] < -0.5 else PARTLY
    if near <= chance or found["correlation"] >= 0:
        verdict = NO
    return (
        "1-D position embeddings learn the grid: the closer two patches, the "
        "more similar; rows and columns show.",
        "Figure 7, centre",
        f"The most similar patch is adjacent for {near:.0%} of the patches "
        f"(by chance {chance:.0%}); similarity and distance correlate by "
        f"{found['correlation']:.2f} (ranks). Mean similarity in one row or "
        f"column {found['same_line']:.2f}, elsewhere "
        f"{found['elsewhere']:.2f}.",
        verdict,
    )


def _distances(results):
    means = [float(np.mean(heads)) for heads in results["distances"]]
    grows = stats.spearmanr(means, range(len(means))).statistic
    listed = ", ".join(f"{mean:.1f}" for mean in means)
    lowest = " and ".join(f"{head:.1f}" for head in results["distances"][0])
    uniform = results["uniform_distance"]
    verdict = NO
    if grows > 0.5 and means[-1] > means[0]:
        is_local = min(results["distances"][0]) < uniform / 2
        verdict = YES if is_local else PARTLY
    return (
        "Attended distance grows with depth: in the first layers some heads "
        "attend close by, in the last ones none.",
        "Figure 7, right",
        f"Mean of the heads by layer: {listed} pixels (rank correlation with "
        f"depth {grows:.2f}); the heads of the first: {lowest}. All patches "
        f"alike would be {uniform:.1f}.",
        verdict,
    )


def _no_positions(results):
    without, error = _choice_difference(results, "no_positions")
    none, learned = (paper_tables.TABLE_8[key] for key in ("none", "1-D"))
    return (
        "Without position embeddings the ViT is worse.",
        "Table 8",
        f"{without:+.1%} +- {error / 2:.1%} (in the paper "
        f"{none - learned:+.1%} of few-shot accuracy).",
        YES if without < -error else NO,
    )


def _average(results):
    same, error = _choice_difference(results, "average")
    low, _ = _choice_difference(results, "average_low_rate")
    worse_at_same, as_good_at_low = same < -error, low >= -error
    verdict = YES if worse_at_same and as_good_at_low else NO
    if verdict is NO and as_good_at_low:
        verdict = PARTLY
    return (
        "The average of the tokens does as well as the class token, but with "
        "a lower learning rate.",
        "Figure 9",
        f"Average less class token: {same:+.1%} with the same rate, "
        f"{low:+.1%} with 3/8 of it, +- {error / 2:.1%}.",
        verdict,
    )


def _differences(results, one, other):
    """Return (size, difference, twice its standard error) for each size."""
    return [
        (size, *_difference(results, (one, choice), (other, choice)))
        for size, choice in zip(
            results["sizes"], choices_of_sizes(results), strict=True
        )
    ]


def choices_of_sizes(results: dict) -> list[str]:
    """Return the names of the runs of each of `sizes`."""
    return [*map(str, results["sizes"][:-1]), "all"]


def _choice_difference(results, choice):
    return _difference(results, ("ViT", choice), ("ViT", "all"))


def _difference(results, one, other):
    """Return the difference of the means, and twice its standard error."""
    samples = [results["accuracies"][model][c] for model, c in (one, other)]
    return uncertainty.difference(*(result_of(results, s) for s in samples))


def result_of(results: dict, sample: list[float]) -> tuple[float, float]:
    """Return the mean accuracy and its standard error."""
    error = uncertainty.standard_error(sample, results["eval_images"])
    return float(np.mean(sample)), error


def _listed(results, one, other):
    return "; ".join(
        f"{difference:+.1%} +- {twice / 2:.1%} with {size:,} images"
        for size, difference, twice in _differences(results, one, other)
    )
