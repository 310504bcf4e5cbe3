"""Points of the figure of inference speed: files, statements and drawing."""

import csv
import dataclasses
import math
import pathlib

# Constructor -> name in the figure, in the order of the legend.
MODELS = {
    "BiTR50x1": "R50x1",
    "BiTR50x2": "R50x2",
    "ViTB32": "ViT-B/32",
    "ViTL32": "ViT-L/32",
    "ViTB16": "ViT-B/16",
    "ViTL16": "ViT-L/16",
    "ViTH14": "ViT-H/14",
    "BiTR152x4": "R152x4",
}
IMAGE_SIZES = (224, 512, 64, 384, 128)
_GREYS = ("#b5b5b5", "#858585", "#404040")
_BLUES = ("#9ecae1", "#5ba3d0", "#3179b5", "#114d94", "#08244d")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A model at a size of images.

    Attributes:
        model: Its constructor.
        image_size: Pixels per side, as requested.
        largest: Largest batch that fits, a power of two; 0 if unknown.
        speed: Images per second and core.
        batch: Batch size of that speed.
        source: "compiler", "roofline" or "measured".
    """

    model: str
    image_size: int
    largest: int
    speed: float
    batch: int
    source: str


def read(path: pathlib.Path) -> list[Point]:
    """Returns the points of a file; none if there is no file.

    Args:
        path: A CSV file that `append` wrote.
    """
    if not path.is_file():
        return []
    kinds = {field.name: field.type for field in dataclasses.fields(Point)}
    with open(path, newline="") as file:
        return [
            Point(**{name: kinds[name](value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def append(path: pathlib.Path, point: Point) -> None:
    """Adds a point to a file.

    Args:
        path: A CSV file; it is created if it does not exist.
        point: The point.
    """
    row = dataclasses.asdict(point)
    is_new = not path.is_file()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if is_new:
            writer.writeheader()
        writer.writerow(row | dict(speed=f"{point.speed:.4g}"))


def statements(points: list[Point]) -> list[str]:
    """Returns the paper's two statements, with the values of the points.

    Args:
        points: The points of one device.
    """
    at = {(point.model, point.image_size): point for point in points}
    lines = []
    for name, low, high in (
        ("small", 64, 224),
        ("large", 384, 512),
    ):
        exponents = []
        for model, label in MODELS.items():
            pair = at.get((model, low)), at.get((model, high))
            if all(point and point.speed for point in pair):
                exponents.append(f"{label} {exponent(*pair):.1f}")
        if exponents:
            lines.append(
                f"time grows with the size of {name} images, {low} to {high} "
                f"pixels, by the power of {', '.join(exponents)} (2 is "
                "linear in the patches, 4 bi-quadratic)"
            )
    return lines + _memory_statements(at)


def exponent(low: Point, high: Point) -> float:
    """Returns the exponent of the image size in the time per image.

    Args:
        low: A model at one size.
        high: The same model at a larger size.
    """
    ratio = math.log(high.image_size / low.image_size)
    return math.log(low.speed / high.speed) / ratio


def _memory_statements(at):
    lines = []
    for vit, resnet in (("ViTL16", "BiTR50x2"), ("ViTH14", "BiTR152x4")):
        sizes = [
            size
            for size in sorted(IMAGE_SIZES)
            if all(
                (m, size) in at and at[m, size].largest for m in (vit, resnet)
            )
        ]
        if sizes:
            ratios = ", ".join(
                f"{at[vit, s].largest / at[resnet, s].largest:g} at {s}"
                for s in sizes
            )
            lines.append(
                f"largest batch of {MODELS[vit]} over that of "
                f"{MODELS[resnet]}: {ratios} pixels"
            )
    return lines


def draw(found: dict[str, list[Point]], out_path: pathlib.Path) -> None:
    """Draws speed and largest batch against the image size.

    Args:
        found: Name of a device -> its points; each device is a row of panels.
        out_path: The image file to write.
    """
    from matplotlib import figure as figures  # no display, no global state
    from matplotlib import ticker

    figure = figures.Figure(
        figsize=(9.5, 3.6 * len(found) + 0.4), dpi=120, layout="constrained"
    )
    shown = {}
    for row, (device, points) in enumerate(found.items()):
        panels = [("speed", "inference speed [img/s/core]")]
        if any(point.largest for point in points):
            panels.append(("largest", "largest batch per core"))
        for column, (value, title) in enumerate(panels):
            axes = figure.add_subplot(len(found), 2, 2 * row + column + 1)
            for model, label in MODELS.items():
                line = sorted(
                    (point.image_size, getattr(point, value))
                    for point in points
                    if point.model == model and getattr(point, value)
                )
                if line:
                    (shown[label],) = axes.plot(
                        *zip(*line, strict=True), **_style(model)
                    )
            axes.set_xscale("log")
            if value == "largest":
                axes.set_yscale("log", base=2)
            else:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
            axes.yaxis.set_minor_formatter(ticker.NullFormatter())
            ticks = sorted({point.image_size for point in points})
            axes.set_xticks(ticks, labels=list(map(str, ticks)))
            axes.xaxis.set_minor_locator(ticker.NullLocator())
            axes.set_xlabel("input size [px]")
            sources = sorted({point.source for point in points})
            axes.set_title(
                f"{title}, {device}"
                + (f" ({', '.join(sources)})" if value == "speed" else ""),
                loc="left",
                fontsize=10,
            )
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    order = [label for label in MODELS.values() if label in shown]
    figure.legend(
        [shown[label] for label in order],
        order,
        loc="outside right upper",
        frameon=False,
    )
    figure.savefig(out_path)


def _style(model):
    """Returns a colour by family, darker for larger models, and a marker."""
    is_resnet = model.startswith("BiT")
    family = [m for m in MODELS if m.startswith("BiT") == is_resnet]
    return dict(
        color=(_GREYS if is_resnet else _BLUES)[family.index(model)],
        marker="osD^v"[family.index(model)],
        linestyle="--" if is_resnet else "-",
        linewidth=1.4,
        markersize=5,
    )
