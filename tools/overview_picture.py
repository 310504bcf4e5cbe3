"""Draws the picture of the README: an image as patches, and the speed.

    python -m tools.overview_picture

The photograph is flower.jpg of scikit-learn, cut into the patches of ViT-B/16.
The ratios of speed are those of docs/benchmarks.md, which tools.benchmark
measures.
"""

import pathlib
import re
import sys

import numpy as np

from keras_vit_cli import command
from tools import markdown, pictures

DOCS = pathlib.Path(__file__).parents[1] / "docs"
CASE = "ViTB16, 224 px, batch 8"
PATCH, COUNT = 16, 14
COLOURS = {"float32": "#d84315", "bfloat16": "#ffab91"}


@command.entry
def main(arguments: list[str]) -> int:
    """Draw the picture."""
    parser = command.Parser(description=__doc__)
    picture = DOCS / "images/overview.jpg"
    parser.add_argument("--output", default=picture, type=pathlib.Path)
    flags = parser.parse_args(arguments)

    from sklearn import datasets

    photograph = datasets.load_sample_image("flower.jpg")
    page = (DOCS / "benchmarks.md").read_text()
    pictures.save(draw(photograph, ratios(page)), flags.output)
    return 0


def ratios(page: str) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the ratios of speed on docs/benchmarks.md.

    They are (backend, task, other library) -> precision -> ratio.
    """
    found: dict = {}
    for row in markdown.rows(markdown.between(page, "speed")):
        for other in ("keras-hub", "timm"):
            ratio = re.match(r"[\d.]+(?= \()", row[f"/ {other}"])
            if ratio and row["case"] == CASE:
                key = (row["backend"], row["task"], other)
                found.setdefault(key, {})[row["precision"]] = float(ratio[0])
    return found


def draw(photograph: np.ndarray, ratios: dict):
    """Draw the photograph, its patches and the ratios side by side."""
    from matplotlib import figure as figures  # no display, no global state

    figure = figures.Figure(figsize=(12, 3.8), dpi=100)
    # (left, bottom, width, height) as shares of the figure.
    left = figure.add_axes((0.005, 0.04, 0.27, 0.84))
    middle = figure.add_axes((0.28, 0.04, 0.28, 0.84))
    right = figure.add_axes((0.75, 0.13, 0.24, 0.75))
    image = square(photograph)
    left.imshow(image)
    left.set_title("an image, 224 x 224 pixels")
    middle.imshow(apart(image))
    middle.set_title(f"{COUNT * COUNT} patches, the words of a ViT")
    for axes in (left, middle):
        axes.set_axis_off()
    _draw_ratios(right, ratios)
    return figure


def square(photograph: np.ndarray) -> np.ndarray:
    """Return the middle of a photograph at the size of the patches."""
    from PIL import Image

    height, width, _ = photograph.shape
    side = min(height, width)
    top, start = (height - side) // 2, (width - side) // 2
    middle = photograph[top : top + side, start : start + side]
    size = (PATCH * COUNT, PATCH * COUNT)
    return np.asarray(Image.fromarray(middle).resize(size))


def apart(image: np.ndarray, gap: int = 4) -> np.ndarray:
    """Return the patches of an image with white gaps between them."""
    patches = image.reshape(COUNT, PATCH, COUNT, PATCH, 3)
    around = ((0, 0), (0, gap), (0, 0), (0, gap), (0, 0))
    spread = np.pad(patches, around, constant_values=255)
    return spread.reshape(COUNT * (PATCH + gap), -1, 3)[:-gap, :-gap]


def _draw_ratios(axes, ratios):
    rows = list(ratios.items())[::-1]
    offsets = zip((0.2, -0.2), COLOURS.items(), strict=True)
    for offset, (precision, colour) in offsets:
        values = {
            i + offset: found[precision]
            for i, (_, found) in enumerate(rows)
            if precision in found
        }
        style = dict(color=colour, label=precision)
        bars = axes.barh(list(values), list(values.values()), 0.38, **style)
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    names = ["{}, {} / {}".format(*key) for key, _ in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=9)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xlim=(0, 2.5), title="ViT-B/16 on two CPU cores")
    axes.set_xlabel("speed of keras_vit / that of the other library")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", fontsize=9)


if __name__ == "__main__":
    sys.exit(main())
