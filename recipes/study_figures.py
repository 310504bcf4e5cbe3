"""The figures of studies."""

import math
import os

import numpy as np

from keras_vit.inspection import figures
from recipes import uncertainty

KINDS = ("points", "curves", "positions")
MARKERS = "osD^vPX*"
_ONE_SEED = {"accuracies": [0.0]}  # each seed has a curve


def draw_points(
    rows: list[dict],
    title: str,
    x_label: str,
    y_label: str,
    out_path: str | os.PathLike,
) -> None:
    """Draw a line for each "line" of the rows, a point for each row.

    Bars are intervals of 95 %. What does not differ is grey: a point from the
    first line's at the same x, or else from the first row, and the two ends of
    a segment.

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
    results = [_result(row) for row in rows]
    for i, line in enumerate(lines or [""]):
        shift = i - (len(lines) - 1) / 2
        x = {
            k: _place(
                row["x"] if is_number else places.index(row["x"]),
                shift * bool(row["line"]),
                is_number,
            )
            for k, row in enumerate(rows)
            if row["line"] in ("", line)
        }
        points = sorted(x, key=x.__getitem__)
        if is_number:
            ends = [results[k] for k in points]
            uncertainty.draw_segments(
                axes, [x[k] for k in points], ends, f"C{i}"
            )
        style = dict(color=f"C{i}", marker=MARKERS[i % len(MARKERS)])
        for k in points:
            if rows[k]["line"]:
                _draw_point(axes, x[k], rows, k, style)
            elif i == 0:  # a point of every line
                _draw_point(axes, x[k], rows, k, dict(color="k", marker="o"))
        if line:
            axes.plot([], [], linestyle="none", label=line, **style)
    axes.plot([], [], "o:", color=uncertainty.GREY, label=_no_difference(rows))
    if is_number:
        axes.set_xscale("log")
        axes.set_xticks(_ticks(places))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(_short))
        axes.minorticks_off()
    else:
        labels = [place.replace("_", "\n") for place in places]
        axes.set_xticks(range(len(places)), labels=labels)
        axes.margins(x=0.1)
    title += f"\nbars: {_interval(rows)}"
    _finish(figure, axes, title, x_label, y_label, out_path)


def _place(x, shift, is_number):
    """Return where a point is drawn: those of one x are side by side."""
    return x * 1.02**shift if is_number else x + 0.12 * shift


def _draw_point(axes, x, rows, k, style):
    """Draw a row's result; in grey if it is no other than its reference's."""
    result, reference = _result(rows[k]), _reference(rows, k)
    if reference != k and not uncertainty.differ(
        result, _result(rows[reference])
    ):
        style = style | {"color": uncertainty.GREY}
    axes.errorbar(
        x, result[0], yerr=2 * result[1], capsize=3, markersize=6, **style
    )


def draw_curves(
    rows: list[dict],
    title: str,
    x_label: str,
    y_label: str,
    out_path: str | os.PathLike,
) -> None:
    """Draw the accuracy of each row against epochs.

    Bands are intervals of 95 %. A curve is grey that does not differ from the
    first at its end.

    Args:
        title, x_label, y_label: Title of the figure and labels of its axes.
        out_path: The image to write; its suffix selects the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = figures.new_figure(7.6, 4)
    axes = figure.add_subplot()
    for i, row in enumerate(rows):
        is_grey = i > 0 and not uncertainty.differ(
            _result(row), _result(rows[0])
        )
        color = uncertainty.GREY if is_grey else f"C{i}"
        for j, curve in enumerate(row["curves"]):
            x, y = map(np.array, zip(*curve, strict=True))
            label = (row["line"] or row["name"]) if j == 0 else None
            if label and is_grey:
                label += "\n(no difference at the end)"
            axes.plot(
                x,
                y,
                color=color,
                label=label,
                linewidth=1.6,
                marker=MARKERS[i % len(MARKERS)],
                markersize=4,
            )
            error = [
                2 * uncertainty.standard_error([share], row["eval_images"])
                for share in y
            ]
            axes.fill_between(
                x, y - error, y + error, color=color, alpha=0.15, linewidth=0
            )
    title += f"\nbands: {_interval([row | _ONE_SEED for row in rows])}"
    _finish(figure, axes, title, x_label, y_label, out_path)


def _result(row):
    """Return mean and standard error."""
    error = uncertainty.standard_error(row["accuracies"], row["eval_images"])
    return row["accuracy"], error


def _reference(rows, k):
    """Return the index of the row that a row is compared with.

    It is the first line's at the same x, or else the first row.
    """
    return next(
        (
            i
            for i, row in enumerate(rows)
            if row["line"] in ("", rows[0]["line"]) and row["x"] == rows[k]["x"]
        ),
        0,
    )


def _no_difference(rows):
    return f"no difference from\n{rows[0]['line'] or rows[0]['name']}"


def _interval(rows):
    return uncertainty.describe(
        [row["accuracies"] for row in rows],
        [row["eval_images"] for row in rows],
    )


def _ticks(places):
    """Return the places if they are few, or else powers of two in between."""
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
