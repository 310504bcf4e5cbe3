"""Compares models: parameters, multiply-accumulates, activations, accuracy.

    python -m tools.compare_models ViTB16 MixerB16 RaftMLPS
    python -m tools.compare_models --slides --format=markdown
    python -m tools.compare_models ViTS16 ASMLPT --batch_size=8 --figure=a.png
    python -m tools.compare_models --write

Without names it compares all models. Costs are counted in the models of this
package, for images of the size of which the authors published the accuracy on
ImageNet beside them. --batch_size measures images per second on this machine.
--slides prints the two tables of the slides on RaftMLP, with the published
sizes beside the counted ones. --figure draws accuracy against
multiply-accumulates, with a mark for each family. --write writes the table of
docs/families/index.md.
"""

import csv
import functools
import io
import pathlib
import re
import sys
import typing

from keras_vit_cli import command
from tools import markdown, model_tables, pictures

PAGE = model_tables.ROOT / "docs" / "families" / "index.md"
# Name, constructor here if any, and as published: millions of parameters,
# billions of FLOPs (multiply-accumulates), top-1 and top-5 in percent. Models
# of less than 50, and of 150 to 500, parameters times FLOPs, in 10^15.
SLIDES = {
    "low": (
        ("ResNet-18", None, 11.7, 1.8, 69.8, 89.1),
        ("MobileNetV3", None, 5.4, 0.2, 75.2, None),
        ("EfficientNet-B0", None, 5.3, 0.4, 77.1, None),
        ("CycleMLP-B1", "CycleMLPB1", 15.2, 2.1, 78.9, None),
        ("ConvMLP-S", "ConvMLPS", 9.0, 2.4, 76.8, None),
        ("ResMLP-S12", "ResMLPS12", 15.4, 3.0, 76.6, None),
        ("gMLP-Ti", "GMLPTi16", 6.0, 1.4, 72.3, None),
        ("RaftMLP-S", "RaftMLPS", 9.9, 2.1, 76.1, 93.0),
    ),
    "middle-high": (
        ("ResNet-152", None, 60.0, 11.0, 77.8, 93.8),
        ("EfficientNet-B5", None, 30.0, 9.9, 83.7, None),
        ("EfficientNetV2-S", None, 22.0, 8.8, 83.9, None),
        ("PVT-M", None, 44.2, 6.7, 81.2, None),
        ("Swin-S", None, 50.0, 8.7, 83.0, None),
        ("Nest-S", None, 38.0, 10.4, 83.3, None),
        ("S2-MLP-deep", "S2MLPDeep", 51.0, 9.7, 80.7, 95.4),
        ("CycleMLP-B3", "CycleMLPB3", 38.0, 6.9, 82.4, None),
        ("AS-MLP-S", "ASMLPS", 50.0, 8.5, 83.1, None),
        ("ConvMLP-L", "ConvMLPL", 42.7, 9.9, 80.2, None),
        ("Mixer-B/16", "MixerB16", 59.9, 12.6, 76.4, None),
        ("ResMLP-S24", "ResMLPS24", 30.0, 6.0, 79.4, None),
        ("RaftMLP-L", "RaftMLPL", 36.2, 6.5, 79.4, 94.3),
    ),
}


class Row(typing.NamedTuple):
    """A model, and what it costs for one example.

    `input` is pixels a side of its images, of videos also frames; `parameters`
    values of variables, `macs` multiply-accumulates of the forward pass,
    `activations` values that matrix products and convolutions write, `top1` the
    published accuracy in percent or "", `speed` measured images per second.
    """

    model: str
    family: str
    input: str
    parameters: int
    macs: int
    activations: int
    top1: str
    speed: float | None = None


@command.entry
def main(arguments: list[str]) -> int:
    """Print, draw or write the comparison."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("model", nargs="*")
    add("--slides", action="store_true")
    add("--format", default="text", choices=("text", "csv", "markdown"))
    add("--batch_size", type=command.natural, default=0)
    add("--figure", type=pathlib.Path)
    add("--write", action="store_true")
    flags = parser.parse_args(arguments)
    if flags.write:
        PAGE.write_text(update(PAGE.read_text()))
        return 0
    names = flags.model or _known()
    if flags.slides:
        names = [row[1] for row in sum(SLIDES.values(), ()) if row[1]]
    rows = [row_of(name) for name in names]
    if flags.batch_size:
        size = flags.batch_size
        rows = [row._replace(speed=speed(row.model, size)) for row in rows]
    if flags.slides:
        for title, table in SLIDES.items():
            if flags.format != "csv":
                print(f"Parameters x FLOPs: {title}\n")
            print(formatted(*slides(table, rows), flags.format), end="\n\n")
    else:
        print(formatted(*cells(rows), flags.format))
    if flags.figure:
        pictures.save(draw(rows), flags.figure)
    return 0


@functools.cache
def row_of(constructor: str) -> Row:
    """Return the costs of a model, counted without its weights."""
    if constructor not in _known():
        raise ValueError(
            f"MODEL must be one of {_known()}. Received: {constructor!r}"
        )
    import keras_vit

    cost = keras_vit.cost(model_tables.model_of(constructor))
    return Row(
        constructor,
        model_tables.family_of(constructor).name,
        model_tables.input_of(constructor),
        cost.parameters,
        cost.macs,
        cost.activations,
        model_tables.accuracy_of(constructor),
    )


def speed(constructor: str, batch_size: int, seconds: float = 2.0) -> float:
    """Return images (or videos) per second of a model at inference.

    Their size is that of the other columns.
    """
    import numpy as np

    import keras_vit
    from tools.benchmark import measure

    model = getattr(keras_vit, constructor)(
        input_shape=model_tables._shape(constructor)
    )
    images = np.zeros((batch_size, *model.input_shape[1:]), "uint8")
    model.predict_on_batch(images)  # compiles, as does the first below

    def batches():
        while True:
            yield model.predict_on_batch(images)

    rates = measure.rates(dict(model=batches), batch_size, seconds, 1)
    return rates["model"][0]


def cells(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header of a table and its lines."""
    header = ["model", "family", "input", "parameters (M)", "GMACs"]
    header += ["activations (M)", "top-1 (%)"]
    if any(row.speed for row in rows):
        header.append("images/s here")
    lines = []
    for row in rows:
        counted = row.parameters / 1e6, row.macs / 1e9, row.activations / 1e6
        line = [row.model, row.family, row.input]
        line += [f"{number:.2f}" for number in counted] + [row.top1]
        lines.append(line + ([f"{row.speed:.1f}"] if row.speed else []))
    return header, lines


def slides(table: tuple, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of one of the slides' tables."""
    names, lines = cells(rows)
    ours = {line[0]: line[3:6] + line[7:] for line in lines}
    header = ["model", "top-1 (%)", "top-5 (%)", "published parameters (M)"]
    header += ["published FLOPs (G)", *names[3:6], *names[7:]]
    text = []
    for name, constructor, parameters, flops, top1, top5 in table:
        published = [top1, "" if top5 is None else top5, parameters, flops]
        counted = ours.get(constructor, [""] * len(header[5:]))
        text.append([name, *map(str, published), *counted])
    return header, text


def formatted(header: list[str], lines: list[list[str]], style: str) -> str:
    """Return a table as text."""
    if style == "csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([header, *lines])
        return file.getvalue().rstrip("\n")
    if style == "markdown":
        return markdown.table(header, lines)
    columns = zip(header, *lines, strict=True)
    widths = [max(map(len, column)) for column in columns]
    text = []
    for first, *rest in [header, *lines]:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def update(text: str) -> str:
    """Return a page with its comparison of all models made anew."""
    header, lines = cells([row_of(name) for name in _known()])
    lines = [[f"`{name}`", *rest] for name, *rest in lines]
    table = formatted(header, lines, "markdown")
    return markdown.replace(text, "comparison", f"\n{table}\n")


def draw(rows: list[Row]):
    """Draw accuracy on ImageNet, where known, against multiply-accumulates."""
    figure, axes = pictures.axes_of(7.5, 5)
    families = {}
    for row in rows:
        if re.fullmatch(r"[\d.]+", row.top1):
            families.setdefault(row.family, []).append(row)
    marks = "osD^vP*X<>ph8dHd1234"
    for i, (family, members) in enumerate(families.items()):
        points = [(row.macs / 1e9, float(row.top1)) for row in members]
        axes.plot(
            *zip(*points, strict=True),
            marks[i % len(marks)],
            color=f"C{i % 10}",
            markersize=8,
            alpha=0.85,
            label=family,
        )
        for row, point in zip(members, points, strict=True):
            pictures.name(axes, row.model, point, fontsize=7)
    axes.set(xscale="log", xlabel="multiply-accumulates [G]")
    axes.set_ylabel("published top-1 on ImageNet [%]")
    pictures.plain(axes)
    axes.margins(x=0.15)
    axes.legend(frameon=False)
    return figure


def _known():
    return model_tables._constructors("all")


if __name__ == "__main__":
    sys.exit(main())
