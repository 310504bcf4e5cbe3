"""Arrays in files, and the checks that hold for the files of every format."""

import collections
import contextlib
import dataclasses
import json
import os
import textwrap
import typing
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

# Largest expansion of an archive, as a factor and as additional bytes: weights
# hardly compress, a decompression bomb does.
MAX_UNFOLDING = 20
MAX_BYTES_MORE = 2**28
# The largest ViTs have about a thousand arrays. An archive with more members
# than this is not read, since each takes time.
MAX_MEMBERS = 20_000
_MAX_AXES = 8
# Endings of names that are not weights: counters of BatchNorm and of PyTorch's
# `AveragedModel`, index tables, and the 0, 1, 2, ... of files of CLIP by
# transformers 4.
DERIVED = (".num_batches_tracked", "_index", ".position_ids", "n_averaged")
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


@dataclasses.dataclass(frozen=True)
class Guard:
    """Refuses what no checkpoint contains.

    Attributes:
        path: The file, named in every error.
    """

    path: str

    def add(
        self, arrays: dict[str, Stored], name: str, shape, dtype: str, read
    ) -> None:
        """Add an array, whose values are checked when they are read.

        Args:
            arrays: Those of the file so far.
            name: Its name, which must be new.
            shape: Its shape, of positive lengths.
            dtype: Name of its type, one of floats.
            read: Returns it.
        """
        if name in arrays:
            raise self.twice([name])
        if dtype not in _FLOATS:
            raise self.refuse(
                f"must contain arrays of floats. Received: `{name}` of {dtype}"
            )
        # In Python a bool is an int; NumPy does not accept it as a length.
        if (
            shape is None
            or len(shape) > _MAX_AXES
            or not all(type(n) is int and 0 < n < 2**48 for n in shape)
        ):
            raise self.damaged(
                name,
                f"expected up to {_MAX_AXES} positive lengths of axes; found "
                f"the shape {textwrap.shorten(str(shape), 80)}",
            )

        def checked():
            with self.at(name):
                array = read()
            if not np.isfinite(array).all():
                raise self.damaged(
                    name, "it contains values that are not finite"
                )
            return array

        arrays[name] = Stored(tuple(shape), checked)

    def merge(
        self, arrays: dict[str, Stored], others: dict[str, Stored]
    ) -> None:
        """Add the arrays of another file of a directory, which must be new."""
        repeated = sorted(arrays.keys() & others.keys())
        if repeated:
            raise self.twice(repeated)
        arrays |= others

    @contextlib.contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Turn any exception that damaged bytes cause into a ValueError."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            if repr(self.path) in str(error):  # already is one
                raise
            reason = textwrap.shorten(str(error), 200) or type(error).__name__
            raise self.damaged(name, reason) from error

    def open_zip(self) -> zipfile.ZipFile:
        """Open an archive with a complete index, not a decompression bomb."""
        if not zipfile.is_zipfile(self.path):
            raise self.refuse(
                "is not a zip archive, as its file type requires, or is "
                "truncated. Fetch it again."
            )
        size = os.path.getsize(self.path)
        with open(self.path, "rb") as file:
            file.seek(max(0, size - 22 - 2**16))
            end = file.read()
        # The last record counts the members, up to 65,535.
        record = end[end.rfind(b"PK\5\6") :]
        self.limit(int.from_bytes(record[10:12], "little"), "members")
        with self.at("its index"):
            archive = zipfile.ZipFile(self.path)
        counts = collections.Counter(archive.namelist())
        self.limit(counts.total(), "members")
        repeated = sorted(name for name, count in counts.items() if count > 1)
        if repeated:
            raise self.twice(repeated)
        claimed = sum(member.file_size for member in archive.infolist())
        if claimed > MAX_UNFOLDING * size + MAX_BYTES_MORE:
            raise self.too_large(claimed, size)
        return archive

    def limit(self, count: int, what: str) -> None:
        """Refuse more members than any checkpoint has."""
        if count > MAX_MEMBERS:
            raise self.refuse(
                f"has more than {MAX_MEMBERS} {what}: this is not a "
                "checkpoint; refusing to read it."
            )

    def refuse(self, reason: str) -> ValueError:
        """Return the error of this file."""
        return ValueError(f"{self.path!r} {reason}")

    def damaged(self, name: str, reason: str) -> ValueError:
        """Return the error of damage at a part of the file."""
        return self.refuse(f"is damaged at `{name}`: {reason}. Fetch it again.")

    def twice(self, names: list[str]) -> ValueError:
        """Return the error of duplicate members."""
        return self.refuse(f"has members twice: {names[:5]}. Fetch it again.")

    def not_plain(self, name: str, what: str) -> ValueError:
        """Return the error of an array that is not simply in the file."""
        return self.refuse(
            f"must contain plain arrays. Received: `{name}`, which {what}"
        )

    def too_large(self, claimed: int, size: int) -> ValueError:
        """Return the error of a file that claims more than it can hold."""
        return self.refuse(
            f"claims to hold {claimed} bytes in a file of {size}: this is not "
            "a checkpoint; refusing to read it."
        )

    def needs(self, library: str) -> ValueError:
        """Return the error of a library that is not installed."""
        return self.refuse(f"needs {library}: pip install {library}")


def native_type(dtype: np.dtype) -> np.dtype:
    """Return the type in memory of what a file stores as another.

    NumPy and Keras write bfloat16, which NumPy lacks, as two bytes of unnamed
    type; no library accepts the other byte order.
    """
    import ml_dtypes  # a dependency of Keras

    if dtype.str == "|V2":
        return np.dtype(ml_dtypes.bfloat16)
    return dtype.newbyteorder("=")


def native(array: np.ndarray) -> np.ndarray:
    """Return an array of a file in its `native_type`."""
    dtype = native_type(array.dtype)
    return array.view(dtype) if array.dtype.kind == "V" else array.astype(dtype)


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
