"""Draws the table of speed in docs/benchmarks.md as docs/images/benchmark.png.

python -m tools.benchmark.picture

`python -m tools.benchmark --write`, which measures, draws it too.
"""

import itertools
import pathlib
import re
import sys

from keras_vit_cli import command
from tools import markdown, pictures

DOCS = pathlib.Path(__file__).parents[2] / "docs"
# Where the ratios of all rounds lie -> colour. The first is between the others.
COLORS = {
    "no difference: on both sides of 1": "#9a9a9a",
    "slower in every round": "#c2563c",
    "faster in every round": "#2a6fa8",
}
NONE, SLOWER, FASTER = COLORS
_RATIO = re.compile(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)")


@command.entry
def main(arguments: list[str]) -> int:
    """Draw the picture; return 0."""
    command.Parser(description=__doc__).parse_args(arguments)
    path = DOCS / "images" / "benchmark.png"
    page = (DOCS / "benchmarks.md").read_text()
    pictures.save(draw(markdown.between(page, "speed")), path)
    return 0


def groups(table: str) -> dict[tuple[str, str], dict[str, list[tuple]]]:
    """Return (backend, peer) -> task and precision -> ratios of the cases.

    A ratio is (median, lowest, highest).
    """
    found: dict = {}
    for row in markdown.rows(table):
        kind = f"{row['task']}\n{row['precision']}"
        for name, cell in row.items():
            if match := _RATIO.fullmatch(cell):
                group = row["backend"], name.removeprefix("/ ")
                ratio = tuple(map(float, match.groups()))
                found.setdefault(group, {}).setdefault(kind, []).append(ratio)
    order = itertools.product(
        *(dict.fromkeys(group[i] for group in found) for i in (0, 1))
    )
    return {group: found[group] for group in order if group in found}


def verdict(ratio: tuple[float, float, float]) -> str:
    """Return a key of `COLORS`."""
    _, low, high = ratio
    return FASTER if low > 1 else SLOWER if high < 1 else NONE


def draw(table: str):
    """Draw a panel for each backend and peer, to be read on a phone."""
    from keras_vit.inspection import figures

    found = groups(table)
    heights = [len(kinds) for kinds in found.values()]
    height = 0.42 * sum(heights) + 0.55 * len(heights) + 1.7
    figure = figures.new_figure(4, height)
    figure.set_dpi(130)
    figure.suptitle(
        "How many times as fast is keras_vit?\n"
        "A dot is one model, size and batch: the\n"
        "median, and a line from lowest to highest.",
        fontsize=10,
    )
    panels = figure.subplots(
        len(found), 1, sharex=True, squeeze=False, height_ratios=heights
    )[:, 0]
    for axes, (group, kinds) in zip(panels, found.items(), strict=True):
        _draw_group(axes, group, kinds)
    ticks = [0.7, 1, 1.5, 2, 3, 5]
    panels[-1].set_xscale("log")
    panels[-1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[-1].minorticks_off()
    handles = [
        panels[-1].plot([], [], "o-", color=color, label=name)[0]
        for name, color in COLORS.items()
    ]
    place = dict(loc="outside lower center", frameon=False, fontsize=10)
    figure.legend(handles=handles[::-1], **place)
    return figure


def _draw_group(axes, group, kinds):
    backend, peer = group
    axes.set_title(f"{backend}, against {peer}", fontsize=11, weight="bold")
    axes.axvline(1, color="black", linewidth=0.8)
    for row, ratios in enumerate(kinds.values()):
        for i, ratio in enumerate(ratios):
            y = row + 0.7 * ((i + 0.5) / len(ratios) - 0.5)
            median, *spread = ratio
            color = COLORS[verdict(ratio)]
            axes.plot(spread, (y, y), color=color, linewidth=1.2)
            axes.plot(median, y, "o", color=color, markersize=3.5)
    axes.set_yticks(range(len(kinds)), list(kinds), fontsize=9)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=9, labelbottom=True)
    axes.tick_params(axis="y", length=0)
    pictures.plain(axes, axis="x")


if __name__ == "__main__":
    sys.exit(main())
