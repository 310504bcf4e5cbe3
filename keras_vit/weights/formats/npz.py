"""NumPy's npz files."""

import json
import math
import os
import zipfile

import numpy as np

from keras_vit.weights.formats.guard import (
    Guard,
    Stored,
    native,
    native_type,
    parse_json,
)

# What big_vision's training saves beside the weights: among others, counters.
BESIDE = ("opt/", "extra/", "chrono/")


def read(path: str) -> tuple[dict[str, Stored], dict]:
    """Open an npz file.

    Returns:
        Name -> array, and the metadata that `write` left in the comment.

    Raises:
        ValueError: If it is not an npz file, is truncated or damaged, has a
            duplicate member, claims more bytes than it can hold, or contains
            anything but arrays of floats. Reading an array also raises it if
            the array does not match its checksum or is not finite.
    """
    guard, arrays = Guard(path), {}
    if not (path.lower().endswith(".npz") or zipfile.is_zipfile(path)):
        raise ValueError(
            f"{path!r} is of no format that is read: it is not an npz file, "
            "nor does its name end as those of another, such as .safetensors."
        )
    archive = guard.open_zip()
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        with guard.at(name), archive.open(member) as content:
            shape, dtype = _header(content)
            header = content.tell()
        if name.startswith(BESIDE) and dtype.kind in "iu":
            continue
        if dtype.hasobject:
            raise guard.refuse(
                f"contains pickled Python objects under `{name}`, which could "
                "run code; only plain arrays are read."
            )
        claimed = math.prod(shape) * dtype.itemsize
        if claimed != member.file_size - header:
            raise guard.damaged(
                name,
                f"it claims an array of {claimed} bytes and has "
                f"{member.file_size - header}",
            )

        def values(member=member):
            with archive.open(member) as content:
                return native(np.load(content, allow_pickle=False))

        guard.add(arrays, name, shape, native_type(dtype).name, values)
    comment, metadata = archive.comment, {}
    with guard.at("its comment"), open(path, "rb") as file:
        # The last record of the archive ends with the length of the comment.
        file.seek(-len(comment) - 2, os.SEEK_END)
        length = int.from_bytes(file.read(2), "little")
        if length != len(comment):
            raise ValueError(f"{len(comment)} of {length} bytes are there")
        if comment.startswith(b"{"):
            metadata = parse_json(comment)
    return arrays, metadata


def _header(file):
    """Return the shape and the type of an array."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the npy format")
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    try:
        shape, _, dtype = read_header(file)
    except (MemoryError, RecursionError):  # of Python's parser
        raise ValueError("its header is not that of an array") from None
    return shape, dtype


def write(file, arrays: dict[str, np.ndarray], metadata: dict) -> None:
    """Write arrays, and in the comment the metadata that they do not show.

    Args:
        file: An open file, binary.
        arrays: Name -> array.
        metadata: Written as JSON, unless it is empty.
    """
    np.savez(file, **arrays)  # type: ignore[arg-type]
    if metadata:
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = json.dumps(metadata).encode()
