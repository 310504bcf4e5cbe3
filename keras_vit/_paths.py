"""Paths that a user names, looked at before they are opened."""

import contextlib
import hashlib
import os
import pathlib
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

# What NumPy raises of an npz file that is damaged, or another file.
NPZ_ERRORS = (
    *(AttributeError, EOFError, KeyError, OSError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)

# Folders that systems make: archives of macOS; thumbnails and waste of NAS;
# waste and indices of Windows; what a repair of a Linux disk found.
_OF_SYSTEMS = (
    *("__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN"),
    *("System Volume Information", "lost+found"),
)


def is_hidden(name: str) -> bool:
    """Whether a file or folder of a data set is not part of it, by its name."""
    return name.startswith(".") or name in _OF_SYSTEMS


def why_no_file(path: str | os.PathLike) -> str | None:
    """Return why a path cannot be read as a file, or None if it can.

    A device or a pipe may have no end, and names that are not UTF-8 are
    refused by some libraries without naming the file.

    Args:
        path: The path.

    Returns:
        The end of a sentence, such as "is not there".
    """
    try:
        os.fsencode(path).decode()
    except UnicodeError:
        return "has a name that is not UTF-8"
    if os.path.isfile(path):
        return None
    if os.path.isdir(path):
        return "is a folder"
    return "is no regular file" if os.path.exists(path) else "is not there"


def require_file(path: str | os.PathLike) -> None:
    """Raise ValueError if a path cannot be read as a file."""
    reason = why_no_file(path)
    if reason:
        raise ValueError(f"{os.fspath(path)!r} must be a file. It {reason}.")


def files_to_name(folder: str | os.PathLike) -> str:
    """Return a hint at the models of a folder, such as that of a run.

    Args:
        folder: The path.

    Returns:
        The end of a message, "" where there is no model.
    """
    files = sorted(map(os.fspath, pathlib.Path(folder).glob("*.keras")))
    return f". Name a file in it: {files[:8]}" if files else ""


def can_be_written(path: str | os.PathLike) -> bool:
    """Return whether a path is, or can become, a file that one may write."""
    if not os.fspath(path):
        return False
    if os.path.exists(path):
        return not os.path.isdir(path) and os.access(path, os.W_OK)
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.isdir(folder) and os.access(folder, os.W_OK)


@contextlib.contextmanager
def atomic(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Write a file that appears at `path` only when it is complete."""
    with _part_of(path) as part:
        with open(part, "w+b") as file:
            yield file
        os.replace(part, path)


def save_whole(model, path: str | os.PathLike) -> None:
    """Save a Keras model; a file that is there is replaced by a whole one."""
    with _part_of(path) as part:
        model.save(part)
        os.replace(part, path)


@contextlib.contextmanager
def _part_of(path):
    """Yield a path of the same name, in a folder of its own beside `path`.

    So other processes may write the same file, and it has the permissions that
    the user gives to new files.
    """
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as parts:
        yield os.path.join(parts, name)


def digest(path: str | os.PathLike) -> str | None:
    """Return the SHA-256 of a file, or of a directory's files and their names.

    Args:
        path: The path, in which "~" is the home directory.

    Returns:
        The digest in hex, or None if nothing is there.
    """
    found = pathlib.Path(os.path.expanduser(path))
    if found.is_file():
        with open(found, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if not found.is_dir():
        return None
    files = sorted(each for each in found.rglob("*") if each.is_file())
    lines = [f"{each.relative_to(found)} {digest(each)}\n" for each in files]
    content = "".join(lines).encode(errors="surrogateescape")
    return hashlib.sha256(content).hexdigest()
