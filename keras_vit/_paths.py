"""Paths that a user names, looked at before they are opened."""

import os


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
