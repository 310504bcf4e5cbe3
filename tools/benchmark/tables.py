"""Summarises the files of the backends as Markdown and as a picture."""

import dataclasses
import pathlib
import re
import statistics

from tools.benchmark import cases, picture, run

_OURS = ("keras_vit", "keras_vit_compiled")
_TITLES = dict(tensorflow="TensorFlow", jax="JAX", torch="PyTorch")
_SIZES = ("model", "image_size", "batch_size")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What was found out about one implementation of a case.

    Attributes:
        backend: The backend of keras_vit.
        implementation: One of `cases.IMPLEMENTATIONS`.
        sizes: Model, image size and batch size.
        task: "inference" or "training".
        precision: "float32" or "bfloat16".
        speed: Images (or clips) per second, the median of the rounds.
        ratio: Speed of keras_vit divided by this one, the median; None for
            keras_vit itself.
        spread: The lowest and the highest ratio of a round.
        utilization: Multiply-accumulates per second, as part of those of the
            fastest product of matrices of that precision.
        first_seconds: Time to make the model and its first result.
    """

    backend: str
    implementation: str
    sizes: tuple
    task: str
    precision: str
    speed: float
    ratio: float | None
    spread: tuple[float, float] | None
    utilization: float
    first_seconds: float


def results(files: dict[str, dict]) -> list[Result]:
    """Returns the results of all backends.

    Args:
        files: Backend -> contents of its file.
    """
    rates = {}
    for contents in files.values():
        for precision, rate in contents["product_rates"].items():
            rates[precision] = max(rate, rates.get(precision, 0))
    found = []
    for backend, contents in files.items():
        rows = contents["rows"]
        times = {
            (_key(row), row["implementation"]): row["seconds"] for row in rows
        }
        for row in sorted(rows, key=_order):
            name, seconds = row["implementation"], row["seconds"]
            speed = row["batch_size"] / statistics.median(seconds)
            is_compiled = name != cases.library(name)
            ours = times.get((_key(row), _OURS[is_compiled])) or times.get(
                (_key(row), _OURS[0])
            )
            ratios = None
            if ours and name not in _OURS:
                ratios = [b / a for a, b in zip(ours, seconds, strict=True)]
            found.append(
                Result(
                    backend=backend,
                    implementation=name,
                    sizes=_sizes(row),
                    task=row["task"],
                    precision=row["precision"],
                    speed=speed,
                    ratio=ratios and statistics.median(ratios),
                    spread=ratios and (min(ratios), max(ratios)),
                    utilization=speed * row["macs"] / rates[row["precision"]],
                    first_seconds=row["first_seconds"],
                )
            )
    return found


def write(folder: pathlib.Path) -> None:
    """Writes benchmark.md and benchmark.png from BACKEND.json.

    Args:
        folder: The directory of all of them.

    Raises:
        ValueError: If it has no results.
    """
    files = _read(folder)
    found = results(files)
    text = [summary(found), memory(files), details(found), environments(files)]
    (folder / "benchmark.md").write_text("\n\n".join(filter(None, text)) + "\n")
    picture.draw(text[0], folder / "benchmark.png")


def write_docs(folder: pathlib.Path, docs: pathlib.Path) -> None:
    """Updates the tables of benchmarks.md, and images/benchmark.png.

    Args:
        folder: The directory of BACKEND.json.
        docs: The directory of the documentation.

    Raises:
        ValueError: If the folder has no results.
    """
    files = _read(folder)
    found = results(files)
    page = docs / "benchmarks.md"
    text = page.read_text()
    for name, table in (
        ("speed", summary(found)),
        ("memory", memory(files)),
        ("environments", environments(files)),
    ):
        block = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        text = re.sub(
            block, lambda m, t=table: m[1] + t + "\n" + m[2], text, flags=re.S
        )
    page.write_text(text)
    picture.draw(summary(found), docs / "images" / "benchmark.png")


def summary(found: list[Result]) -> str:
    """Returns our speed, and its ratio to that of the others, by case.

    Args:
        found: The results.
    """
    cells = {}
    for result in found:
        cell = f"{result.speed:.3g} images/s"
        if result.ratio is not None:
            cell = _ratio(result)
        case = (_case(result.sizes), result.task, result.precision)
        row = (*case, _TITLES[result.backend])
        cells.setdefault(row, {})[result.implementation] = cell
    return _by_case(cells, lambda name: "" if name in _OURS else "/ ")


def memory(files: dict[str, dict]) -> str:
    """Returns the peaks of memory by case, "" if none were measured.

    Args:
        files: Backend -> contents of its file.
    """
    cells = {}
    for backend, contents in files.items():
        for row in sorted(contents["memory"], key=_order):
            case = (_case(_sizes(row)), row["task"], row["precision"])
            cells.setdefault((*case, _TITLES[backend]), {})[
                row["implementation"]
            ] = (
                ""
                if row["bytes"] is None
                else f"{row['bytes'] / 2**30:.2f} GiB"
            )
    return _by_case(cells, lambda name: "") if cells else ""


def details(found: list[Result]) -> str:
    """Returns the table of all numbers.

    Args:
        found: The results.
    """
    header = (
        "case, backend",
        "implementation",
        "images/s",
        "ratio (lowest to highest)",
        "MFU",
        "first result",
    )
    rows = []
    for result in found:
        rows.append(
            [
                f"{_case(result.sizes)}, {result.task}, {result.precision}, "
                f"{_TITLES[result.backend]}",
                _name(result.implementation),
                f"{result.speed:.3g}",
                "" if result.ratio is None else _ratio(result),
                f"{result.utilization:.2f}",
                f"{result.first_seconds:.1f} s",
            ]
        )
    return _table(header, rows)


def environments(files: dict[str, dict]) -> str:
    """Returns a line about the machine and the versions of each backend.

    Args:
        files: Backend -> contents of its file.
    """
    lines = []
    for backend, contents in files.items():
        about = contents["environment"]
        rates = ", ".join(
            f"{precision} {rate / 1e9:.0f}"
            for precision, rate in contents["product_rates"].items()
        )
        versions = ", ".join(
            f"{name} {version}" for name, version in about["versions"].items()
        )
        lines.append(
            f"{_TITLES[backend]}: {about['device']}, {about['processors']} "
            f"processors ({about['machine']}); products of matrices: {rates} "
            f"billion multiply-accumulates per second; {versions}."
        )
    return "\n\n".join(lines)


def _read(folder):
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
    return (
        [row[size] for size in _SIZES],
        cases.TASKS.index(row["task"]),
        cases.PRECISIONS.index(row["precision"]),
        cases.IMPLEMENTATIONS.index(row["implementation"]),
    )


def _sizes(row):
    return tuple(row[size] for size in _SIZES)


def _key(row):
    return tuple(row[name] for name in (*_SIZES, "task", "precision"))


def _case(sizes):
    model, image_size, batch_size = sizes
    return (
        model
        + (f", {image_size} px" if image_size else "")
        + f", batch {batch_size}"
    )


def _ratio(result):
    low, high = result.spread
    return f"{result.ratio:.2f} ({low:.2f} to {high:.2f})"


def _by_case(cells, prefix):
    """Returns a table with a row for each case and backend."""
    names = [
        name
        for name in cases.IMPLEMENTATIONS
        if any(name in values for values in cells.values())
    ]
    header = ["case", "task", "precision", "backend"]
    return _table(
        header + [prefix(name) + _name(name) for name in names],
        [
            [*case, *(values.get(name, "") for name in names)]
            for case, values in cells.items()
        ],
    )


def _name(implementation):
    library = cases.library(implementation)
    title = library.replace("keras_hub", "keras-hub")
    return title + (", compiled" if implementation != library else "")


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
