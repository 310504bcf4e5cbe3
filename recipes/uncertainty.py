"""What accuracies of few seeds and few images can show."""

import numpy as np

GREY = "#9a9a9a"  # of what shows no difference


def standard_error(accuracies: list[float], num_images: int) -> float:
    """Return the standard error of a mean accuracy.

    It is that of drawing the evaluation images, and of several seeds also that
    of their differences. Two right and two wrong answers are added to those of
    the images, so that 100 % of a few images has an error too.

    Args:
        accuracies: The accuracy of each seed.
        num_images: Number of evaluation images, 0 if it is unknown.

    Returns:
        NaN of one seed with an unknown number of images.

    Reference:
        Agresti & Coull 1998, The American Statistician 52(2).
    """
    variance = 0.0 if num_images or len(accuracies) > 1 else np.nan
    if num_images:
        count = num_images + 4
        share = (float(np.mean(accuracies)) * num_images + 2) / count
        variance += share * (1 - share) / count
    if len(accuracies) > 1:
        variance += np.var(accuracies, ddof=1) / len(accuracies)
    return float(np.sqrt(variance))


def difference(
    one: tuple[float, float], other: tuple[float, float]
) -> tuple[float, float]:
    """Return one result less another, and twice its standard error."""
    return one[0] - other[0], 2 * float(np.hypot(one[1], other[1]))


def differ(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether results differ by more than twice the standard error.

    Args:
        one, other: Mean and standard error of each; of an unknown error
            nothing differs.
    """
    found, twice = difference(one, other)
    return abs(found) > twice


def describe(accuracies: list[list[float]], num_images: list[int]) -> str:
    """Return what a figure says of its intervals.

    Args:
        accuracies: Those of the seeds, of each result.
        num_images: The number of evaluation images of each; 0 is unknown.
    """
    images = sorted(set(num_images))
    seeds = sorted({len(each) for each in accuracies})
    if seeds[0] == 1 and not images[0]:
        return "one seed: no interval, and no difference is shown"
    text = _range(seeds, "seed")
    if images[0]:
        text += " and " + _range(images, "image")
    return f"95 % interval, of {text}"


def _range(numbers, noun):
    text = f"{numbers[-1]:,}"
    if len(numbers) > 1:
        text = f"{numbers[0]:,} to {text}"
    return f"{text} {noun}" + "s" * (numbers[-1] != 1)


def draw_segments(
    axes, x: list[float], results: list[tuple[float, float]], color: str
) -> None:
    """Draw a line, grey and dotted between points that do not differ."""
    for i in range(len(x) - 1):
        ends = results[i : i + 2]
        is_shown = differ(*ends)
        axes.plot(
            x[i : i + 2],
            [mean for mean, _ in ends],
            linestyle="-" if is_shown else ":",
            color=color if is_shown else GREY,
            linewidth=1.6,
            zorder=1.5,
        )
