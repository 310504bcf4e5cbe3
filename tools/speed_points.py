"""Points of the figure of inference speed: files, statements and drawing."""

import csv
import itertools
import math
import pathlib
import typing

from tools import pictures
from tools.plan_tpu import slices

# Constructor -> name in the figure, colour and marker, in the order of the
# legend: ResNets brown, patches of 32 green, smaller ones blue.
STYLES = {
    "BiTR50x1": ("R50x1", "#e0a050", "o"),
    "BiTR50x2": ("R50x2", "#c0651a", "s"),
    "ViTB32": ("ViT-B/32", "#6cc070", "^"),
    "ViTL32": ("ViT-L/32", "#1a7030", "v"),
    "ViTB16": ("ViT-B/16", "#66aadd", "P"),
    "ViTL16": ("ViT-L/16", "#2060b0", "X"),
    "ViTH14": ("ViT-H/14", "#502080", "*"),
    "BiTR152x4": ("R152x4", "#703800", "D"),
}
MODELS = {constructor: name for constructor, (name, *_) in STYLES.items()}
IMAGE_SIZES = (224, 512, 64, 384, 128)
MOST = 16_384  # images in the first batch of the search for the largest
# Where a speed is from -> what the figure says, whether markers are filled,
# and the style of lines.
SOURCES = {
    "compiler": ("estimate of the TPU compiler", True, "-"),
    "roofline": ("roofline: a bound that no program reaches", False, ":"),
    "measured": ("measured", True, "-"),
}


class Point(typing.NamedTuple):
    """A model, by its constructor, at a size of images, as requested.

    `largest` is the largest batch that fits, a power of two, 0 if unknown;
    `speed` images per second and core with `batch`, of a key of `SOURCES`.
    """

    model: str
    image_size: int
    largest: int
    speed: float
    batch: int
    source: str


def read(path: pathlib.Path) -> list[Point]:
    """Return the points of a file; none if there is no file."""
    if not path.is_file():
        return []
    kinds = Point.__annotations__
    with open(path, newline="") as file:
        return [
            Point(**{name: kinds[name](value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def append(path: pathlib.Path, point: Point) -> None:
    """Add a point to a file."""
    is_new = not path.is_file()
    with open(path, "a", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(Point._fields)
        row = point._asdict() | dict(speed=f"{point.speed:.4g}")
        writer.writerow(row.values())


def statements(points: list[Point]) -> list[str]:
    """Return the paper's two statements, with the values of the points."""
    at = {(point.model, point.image_size): point for point in points}
    lines = []
    for name, low, high in (("small", 64, 224), ("large", 384, 512)):
        exponents = []
        for model, label in MODELS.items():
            first, last = at.get((model, low)), at.get((model, high))
            if first and last and first.speed and last.speed:
                power = math.log(first.speed / last.speed, high / low)
                exponents.append(f"{label} {power:.1f}")
        if exponents:
            lines.append(
                f"time grows with the size of {name} images, {low} to {high} "
                f"pixels, by the power of {', '.join(exponents)} (2 is "
                "linear in the patches, 4 bi-quadratic)"
            )
    largest = {key: point.largest for key, point in at.items()}
    for vit, resnet in (("ViTL16", "BiTR50x2"), ("ViTH14", "BiTR152x4")):
        sizes = [
            size
            for size in sorted(IMAGE_SIZES)
            if largest.get((vit, size)) and largest.get((resnet, size))
        ]
        if sizes:
            ratios = ", ".join(
                f"{largest[vit, s] / largest[resnet, s]:g} at {s}"
                for s in sizes
            )
            lines.append(
                f"largest batch of {MODELS[vit]} over that of "
                f"{MODELS[resnet]}: {ratios} pixels"
            )
    return lines


def most(device: str) -> float:
    """Return the largest batch per core that the search tries."""
    tpu = slices.all_slices().get(device)
    return MOST * tpu.num_devices / tpu.num_cores if tpu else MOST


def draw(found: dict[str, list[Point]]):
    """Draw speed and largest batch against the image size, by device.

    The points of one size stand side by side, so that none hides another.
    """
    from keras_vit.inspection import figures

    panels = []
    for device, points in found.items():
        panels.append((_draw_speed, device, points))
        if any(point.largest for point in points):
            panels.append((_draw_largest, device, points))
    figure = figures.new_figure(7, 3.4 * len(panels) + 0.6)
    rows = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (draw_panel, device, points) in zip(rows, panels, strict=True):
        draw_panel(axes, device, points)
        _decorate(axes, sorted({point.image_size for point in points}))
    used = {point.model for points in found.values() for point in points}
    handles = []
    for model, label in MODELS.items():
        if model in used:
            style = dict(label=label, linestyle="none") | _marker(model)
            handles += rows[0].plot([], [], **style)
    place = dict(loc="outside upper center", ncols=4, frameon=False)
    figure.legend(handles=handles, **place)
    return figure


def _plot(axes, points, value, styles):
    """Draw a line for each model, whose style is the next one of `styles`."""
    for model, style in zip(MODELS, styles, strict=False):
        line = [
            (_beside(model, point.image_size), getattr(point, value))
            for point in points
            if point.model == model and getattr(point, value)
        ]
        if line:
            style = dict(linewidth=1.2) | _marker(model) | style
            axes.plot(*zip(*sorted(line), strict=True), **style)


def _draw_speed(axes, device, points):
    """Draw a line for each model and source of its speeds."""
    for source, (text, filled, linestyle) in SOURCES.items():
        found = [point for point in points if point.source == source]
        if not found:
            continue
        style: dict = dict(linestyle=linestyle)
        if not filled:
            style["markerfacecolor"] = "white"
        _plot(axes, found, "speed", itertools.repeat(style))
        style |= dict(color="black", marker="o", markersize=5, linewidth=1.2)
        axes.plot([], [], label=text, **style)
    axes.set_yscale("log")
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    axes.set_title(f"inference speed [img/s/core], {device}", loc="left")


def _draw_largest(axes, device, points):
    """Draw a line for each model, and where the search begins."""
    axes.set_yscale("log", base=2)
    styles = dict(linestyle="-"), dict(linestyle="--")  # both show where equal
    _plot(axes, points, "largest", itertools.cycle(styles))
    limit = most(device)
    axes.axhline(limit, color="#b22222", linewidth=1, linestyle=":", zorder=0)
    text = f"{limit:,g}: no larger batch was tried"
    style = dict(ha="right", color="#b22222", fontsize=9)
    place: dict = dict(xycoords=("axes fraction", "data"), xytext=(0, 3))
    place |= dict(textcoords="offset points")
    axes.annotate(text, (1, limit), **place, **style)
    axes.set_title(f"largest batch per core, {device}", loc="left")


def _decorate(axes, sizes):
    from matplotlib import ticker

    if axes.get_yscale() == "log" and axes.yaxis.get_transform().base == 10:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xscale("log")
    axes.set_xticks(sizes, labels=list(map(str, sizes)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("input size [px]")
    pictures.plain(axes)


def _beside(model, image_size):
    """Return the place of a model's point among those of an image size."""
    names = list(MODELS)
    return image_size * 1.03 ** (names.index(model) - (len(names) - 1) / 2)


def _marker(model):
    """Return a colour, by family and patch size, and a marker."""
    _, color, marker = STYLES[model]
    return dict(color=color, marker=marker, markersize=6)
