"""The figures of studies."""

import math
import os

from keras_vit.inspection import figures

KINDS = ("points", "curves", "positions")
MARKERS = "osD^vPX*"


def draw_points(
    rows: list[dict],
    title: str,
    x_label: str,
    y_label: str,
    out_path: str | os.PathLike,
) -> None:
    """Draws a line for each "line" of the rows, a point for each row.

    Args:
        rows: As `recipes.study` returns them. Numbers in "x" are drawn on a
            logarithmic axis, names side by side without lines.
        title, x_label, y_label: Title of the figure and labels of its axes.
        out_path: The image to write; its suffix selects the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    from matplotlib import ticker

    figure = figures.new_figure(7.6, 4)
    axes = figure.add_subplot()
    is_number = not any(isinstance(row["x"], str) for row in rows)
    lines = list(dict.fromkeys(row["line"] for row in rows if row["line"]))
    # Names have the order of the rows, regardless of their line.
    places = list(dict.fromkeys(row["x"] for row in rows))
    for i, line in enumerate(lines or [""]):
        points = [row for row in rows if row["line"] in ("", line)]
        if is_number:
            points.sort(key=lambda row: row["x"])
        # The points of several lines at one name are drawn side by side.
        shift = 0 if is_number else 0.12 * (i - (len(lines) - 1) / 2)
        low, high = (
            [abs(edge(row["accuracies"]) - row["accuracy"]) for row in points]
            for edge in (min, max)
        )
        axes.errorbar(
            [
                row["x"] if is_number else places.index(row["x"]) + shift
                for row in points
            ],
            [row["accuracy"] for row in points],
            yerr=[low, high] if any(low + high) else None,
            marker=MARKERS[i % len(MARKERS)],
            linestyle="-" if is_number else "none",
            color=f"C{i}",
            label=line or None,
            capsize=3,
            markersize=6,
            linewidth=1.6,
        )
    if is_number:
        axes.set_xscale("log")
        axes.set_xticks(_ticks(places))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(_short))
        axes.minorticks_off()
    else:
        labels = [place.replace("_", "\n") for place in places]
        axes.set_xticks(range(len(places)), labels=labels)
        axes.margins(x=0.1)
    _finish(figure, axes, title, x_label, y_label, out_path)


def draw_curves(
    rows: list[dict],
    title: str,
    x_label: str,
    y_label: str,
    out_path: str | os.PathLike,
) -> None:
    """Draws the accuracy of each row against epochs.

    Args:
        rows: As `recipes.study` returns them.
        title, x_label, y_label: Title of the figure and labels of its axes.
        out_path: The image to write; its suffix selects the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = figures.new_figure(7.6, 4)
    axes = figure.add_subplot()
    for i, row in enumerate(rows):
        for j, curve in enumerate(row["curves"]):
            x, y = zip(*curve, strict=True)
            label = (row["line"] or row["name"]) if j == 0 else None
            axes.plot(
                x, y, color=f"C{i}", label=label, linewidth=1.6, marker="."
            )
    _finish(figure, axes, title, x_label, y_label, out_path)


def _ticks(places):
    """Returns the places if they are few, or else powers of two in between."""
    if len(places) <= 6:
        return sorted(places)
    low, high = math.log2(min(places)), math.log2(max(places))
    return [2.0**n for n in range(math.ceil(low), math.floor(high) + 1)]


def _short(value, _):
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            size = min(size, 1e3) if unit == "k" else size
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _finish(figure, axes, title, x_label, y_label, out_path):
    from matplotlib import ticker

    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        figure.legend(frameon=False, fontsize=9, loc="outside right center")
    figure.savefig(out_path)
