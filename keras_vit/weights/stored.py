"""Arrays in files, and the checks of every file that contains some."""

import collections
import contextlib
import dataclasses
import json
import os
import textwrap
import typing
import zipfile
from collections.abc import Callable

import numpy as np

# Largest expansion of an archive, as a factor and as additional bytes: weights
# hardly compress, a decompression bomb does.
MAX_UNFOLDING = 20
MAX_BYTES_MORE = 2**28
# The largest ViTs have about a thousand arrays. An archive with more members
# than this is not read, since each takes time.
MAX_MEMBERS = 20_000
_MAX_AXES = 8
# Endings of names that are not weights: counters of BatchNorm, index tables.
DERIVED = (".num_batches_tracked", "_index")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Stored:
    """An array that is still in its file.

    Attributes:
        shape: Its shape.
        read: Returns it.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def map(self, function: Callable, shape: tuple[int, ...]) -> "Stored":
        """Return a `Stored` that applies a function when it is read."""
        return Stored(shape, lambda: function(self.read()))


def open_zip(path: str) -> zipfile.ZipFile:
    """Open an archive with a complete index that is not a decompression
    bomb."""
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path!r} is not a zip archive, as its file type requires, or is "
            "truncated. Fetch it again."
        )
    if _listed_members(path) > MAX_MEMBERS:
        raise too_many(path, "members")
    with naming(path, "its index"):
        archive = zipfile.ZipFile(path)
    counts = collections.Counter(archive.namelist())
    if counts.total() > MAX_MEMBERS:
        raise too_many(path, "members")
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise twice(path, repeated)
    claimed = sum(member.file_size for member in archive.infolist())
    size = os.path.getsize(path)
    if claimed > MAX_UNFOLDING * size + MAX_BYTES_MORE:
        raise too_large(path, claimed, size)
    return archive


def _listed_members(path):
    """Return the members that the last record counts, at most 65,535."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 22 - 2**16))
        end = file.read()
    record = end[end.rfind(b"PK\5\6") :]
    return int.from_bytes(record[10:12], "little")


@contextlib.contextmanager
def naming(path, name):
    """Turn any exception that damaged bytes cause into a clear ValueError."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if repr(path) in str(error):  # already is one
            raise
        reason = textwrap.shorten(str(error), 200) or type(error).__name__
        raise ValueError(
            f"{path!r} is damaged at `{name}`: {reason}. Fetch it again."
        ) from error


def check_dtype(path: str, name: str, dtype: str) -> None:
    """Refuses an array of anything but floats."""
    if dtype not in _FLOATS:
        raise ValueError(
            f"{path!r} must hold arrays of floats. Received: `{name}` of "
            f"{dtype}"
        )


def check_shape(path: str, name: str, shape: tuple[int, ...]) -> None:
    """Refuses shapes that no array of weights has."""
    # In Python a bool is an int; NumPy does not accept it as a length.
    if (
        shape is None
        or len(shape) > _MAX_AXES
        or not all(type(n) is int and 0 < n < 2**48 for n in shape)
    ):
        raise ValueError(
            f"{path!r} is damaged at `{name}`: expected up to {_MAX_AXES} "
            f"positive lengths of axes; found the shape "
            f"{textwrap.shorten(str(shape), 80)}. Fetch it again."
        )


def finite(path: str, name: str, array: np.ndarray) -> np.ndarray:
    """Return the array, unless it holds infinities or NaN."""
    if not np.isfinite(array).all():
        raise ValueError(
            f"{path!r} is damaged at `{name}`: it holds values that are not "
            "finite. Fetch it again."
        )
    return array


def parse_json(text: str | bytes) -> typing.Any:
    """Parse JSON; a key that an object has twice, differently, is an error."""

    def unique(pairs):
        found = {}
        for key, value in pairs:
            first = found.setdefault(key, value)
            if first is not value and first != value:  # NaN is not itself
                raise ValueError(f"{key!r} is there twice")
        return found

    return json.loads(text, object_pairs_hook=unique)


def not_plain(path: str, name: str, what: str) -> ValueError:
    """Return the error of an array that is not simply in the file."""
    return ValueError(
        f"{path!r} must hold plain arrays. Received: `{name}`, which {what}"
    )


def twice(path: str, names: list[str]) -> ValueError:
    """Return the error of duplicate members."""
    return ValueError(
        f"{path!r} has members twice: {names[:5]}. Fetch it again."
    )


def too_many(path: str, what: str) -> ValueError:
    """Return the error of more members than any checkpoint has."""
    return ValueError(
        f"{path!r} has more than {MAX_MEMBERS} {what}: no checkpoint, and "
        "not read."
    )


def too_large(path: str, claimed: int, size: int) -> ValueError:
    """Return the error of a file that claims more than it can hold."""
    return ValueError(
        f"{path!r} claims to hold {claimed} bytes in a file of {size}: no "
        "checkpoint, and not read."
    )


def needs(path: str, library: str) -> ValueError:
    """Return the error of a library that is not installed."""
    return ValueError(
        f"Reading {path!r} needs {library}: pip install {library}"
    )
