"""Text files and CSV tables, of which no line is lost."""

import csv
import io
import os
import warnings
from collections.abc import Iterator

from keras_vit._paths import require_file


def read_text(path: str | os.PathLike) -> str:
    """Read a text file in UTF-8, with or without a byte order mark.

    Raises:
        ValueError: If it is no file, or in another encoding.
    """
    require_file(path)
    with open(path, "rb") as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{os.fspath(path)!r} must be text in UTF-8. Received: line "
            f"{line}, byte 0x{error.object[error.start]:02x}. Save the file "
            "as UTF-8."
        ) from error


def read_rows(
    path: str | os.PathLike, columns: tuple[str, ...], remedy: str = ""
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file after its header, each with its line.

    Args:
        path: The file. Empty lines are ignored.
        columns: Columns that its header must contain, among others.
        remedy: What to write instead of surplus cells, for error messages.

    Raises:
        ValueError: If a line is lost otherwise.
    """
    rows = read_cells(path)
    _, header = next(rows, (1, []))
    if [header.count(name) for name in columns] != [1] * len(columns):
        names = " and ".join(f"`{name}`" for name in columns)
        raise ValueError(
            f"{os.fspath(path)!r} must have the columns {names}, each "
            f"once, between commas. Received: {header}"
        )
    for line, cells in rows:
        if len(cells) != len(header):
            raise ValueError(
                f"Each line of {os.fspath(path)!r} must have the "
                f"{len(header)} cells of {header}. Received: line "
                f"{line}, {cells}. {remedy}".rstrip()
            )
        yield line, dict(zip(header, cells, strict=True))


def warn_of_splits(path: str | os.PathLike, splits: set[str | None]) -> None:
    """Warn of a list of several parts, whose column `split` is not read.

    Args:
        path: The list.
        splits: The values of the column; None in a list without it.
    """
    if len(splits) > 1:
        warnings.warn(
            f"The column `split` of {os.fspath(path)!r} is not read. Received: "
            f"{sorted(map(str, splits))[:4]}. Give training and evaluation a "
            "list each.",
            stacklevel=4,
        )


def read_cells(path: str | os.PathLike) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line of a CSV file, with its number.

    Args:
        path: The file. Empty lines are ignored.
    """
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(
            f"{os.fspath(path)!r} must be CSV. Received: line "
            f"{reader.line_num}: {error}"
        ) from error
