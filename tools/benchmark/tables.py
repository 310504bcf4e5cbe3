"""Summarises the files of the backends as Markdown and as a picture."""

import pathlib
import statistics
import typing

from tools import markdown, pictures
from tools.benchmark import cases, measure, picture, run

_OURS = ("keras_vit", "keras_vit_compiled")
_TITLES = dict(tensorflow="TensorFlow", jax="JAX", torch="PyTorch")


class Result(typing.NamedTuple):
    """What was found out about one implementation of a case.

    `speed` is images (or clips) per second, the median of the rounds; `ratio`
    what `measure.ratio` returns, None for keras_vit itself; `utilization`
    multiply-accumulates per second, as part of those of the fastest product of
    matrices of that precision; `first_seconds` the time to make the model and
    its first result.
    """

    backend: str
    case: cases.Case
    implementation: str
    speed: float
    ratio: tuple[float, float, float] | None
    utilization: float
    first_seconds: float

    def __str__(self) -> str:  # noqa: D105
        text = "{:.2f} ({:.2f} to {:.2f})"
        return text.format(*self.ratio) if self.ratio else ""


def results(files: dict[str, dict]) -> list[Result]:
    """Return the results of all backends."""
    rates: dict[str, float] = {}
    for contents in files.values():
        for precision, rate in contents["product_rates"].items():
            rates[precision] = max(rate, rates.get(precision, 0))
    found = []
    for backend, contents in files.items():
        rows = {
            (cases.of_row(row), row["implementation"]): row
            for row in sorted(contents["rows"], key=_order)
        }
        for (case, name), row in rows.items():
            is_compiled = name != cases.library(name)
            ours = rows.get((case, _OURS[is_compiled]))
            ours = ours or rows.get((case, _OURS[0]))
            ratio = None
            if ours and name not in _OURS:
                ratio = measure.ratio(ours["seconds"], row["seconds"])
            speed = case.batch_size / statistics.median(row["seconds"])
            use = speed * row["macs"] / rates[case.precision]
            about = _TITLES[backend], case, name, speed, ratio, use
            found.append(Result(*about, row["first_seconds"]))
    return found


def write(folder: pathlib.Path) -> None:
    """Write benchmark.md and benchmark.png from BACKEND.json."""
    files = _read(folder)
    found = results(files)
    text = [summary(found), memory(files), batches(files)]
    text += [details(found), environments(files)]
    (folder / "benchmark.md").write_text("\n\n".join(filter(None, text)) + "\n")
    if picture.groups(text[0]):
        pictures.save(picture.draw(text[0]), folder / "benchmark.png")


def write_docs(folder: pathlib.Path, docs: pathlib.Path) -> None:
    """Update the tables of benchmarks.md, and images/benchmark.png."""
    files = _read(folder)
    speed = summary(results(files))
    made = dict(speed=speed, memory=memory(files))
    made["environments"] = environments(files)
    text = (docs / "benchmarks.md").read_text()
    for name, part in made.items():
        text = markdown.replace(text, name, part)
    (docs / "benchmarks.md").write_text(text)
    pictures.save(picture.draw(speed), docs / "images" / "benchmark.png")


def summary(found: list[Result]) -> str:
    """Return our speed, and its ratio to that of the others, by case."""
    cells: dict = {}
    for result in found:
        name, text = _name(result.implementation), str(result)
        row = cells.setdefault((result.case, result.backend), {})
        row[f"/ {name}" if text else name] = (
            text or f"{result.speed:.3g} images/s"
        )
    return _by_case(cells)


def memory(files: dict[str, dict]) -> str:
    """Return the peaks of memory by case, "" if none were measured."""

    def size(row):
        known = row["bytes"] is not None
        return f"{row['bytes'] / 2**30:.2f} GiB" if known else ""

    return _of_part(files, "memory", size)


def batches(files: dict[str, dict]) -> str:
    """Return the largest batches by case, "" if none were looked for."""

    def images(row):
        end = "" if row["images"] < row["most"] else " or more"
        return f"{row['images']} images{end}"

    return _of_part(files, "batches", images)


def _of_part(files, part, text_of):
    """Return the table of a part of the files, "" if it is empty."""
    cells: dict = {}
    for backend, contents in files.items():
        for row in sorted(contents[part], key=_order):
            key = cases.of_row(row), _TITLES[backend]
            name = _name(row["implementation"])
            cells.setdefault(key, {})[name] = text_of(row)
    return _by_case(cells) if cells else ""


def details(found: list[Result]) -> str:
    """Return the table of all numbers."""
    header = ["case, backend", "implementation", "images/s"]
    header += ["ratio (lowest to highest)", "MFU", "first result"]
    rows = [
        [
            f"{result.case}, {result.backend}",
            _name(result.implementation),
            f"{result.speed:.3g}",
            str(result),
            f"{result.utilization:.2f}",
            f"{result.first_seconds:.1f} s",
        ]
        for result in found
    ]
    return markdown.table(header, rows)


def environments(files: dict[str, dict]) -> str:
    """Return a line about the machine and the versions of each backend."""
    lines = []
    for backend, contents in files.items():
        about = contents["environment"]
        rates = ", ".join(
            f"{precision} {rate / 1e9:.0f}"
            for precision, rate in contents["product_rates"].items()
        )
        versions = ", ".join(map(" ".join, about["versions"].items()))
        lines.append(
            f"{_TITLES[backend]}: {about['device']}, {about['processors']} "
            f"processors ({about['machine']}); products of matrices: {rates} "
            f"billion multiply-accumulates per second; {versions}."
        )
    return "\n\n".join(lines)


def _read(folder):
    """Return backend -> contents of its file; ValueError without results."""
    files = {
        name: run.read(folder / f"{name}.json")
        for name in _TITLES
        if (folder / f"{name}.json").is_file()
    }
    if not any(contents["rows"] for contents in files.values()):
        raise ValueError(
            "--output must be a directory with results of the benchmark. "
            f"Received: {folder}"
        )
    return files


def _order(row):
    case = cases.of_row(row)
    return (
        *(case.model, case.image_size, case.batch_size),
        cases.TASKS.index(case.task),
        cases.PRECISIONS.index(case.precision),
        cases.IMPLEMENTATIONS.index(row["implementation"]),
    )


def _by_case(cells):
    """Return a table of (case, backend) -> column -> text."""
    known = [_name(name) for name in cases.IMPLEMENTATIONS]
    used = {name for row in cells.values() for name in row}
    columns = sorted(used, key=lambda name: known.index(name.lstrip("/ ")))
    rows = [
        [case.sizes, case.task, case.precision, backend]
        + [row.get(name, "") for name in columns]
        for (case, backend), row in cells.items()
    ]
    header = ["case", "task", "precision", "backend", *columns]
    return markdown.table(header, rows)


def _name(implementation):
    library = cases.library(implementation)
    title = library.replace("keras_hub", "keras-hub")
    return title + (", compiled" if implementation != library else "")
