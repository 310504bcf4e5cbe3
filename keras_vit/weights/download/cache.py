"""The cache: its folder, its locks, and the record beside each file."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
import urllib.parse

BLOCK = 1 << 20  # bytes read at a time
AGAIN = "Delete it and fetch it again."


def cache_dir() -> str:
    """Return the folder `keras_vit` in the cache directory of Keras.

    That is $KERAS_HOME or ~/.keras, or .keras in the temporary directory if
    that cannot be written, as in `keras.utils.get_file`.
    """
    home = os.path.expanduser("~")
    if not os.access(home, os.W_OK):
        home = "/tmp"
    base = os.environ.get("KERAS_HOME", os.path.join(home, ".keras"))
    base = os.path.expanduser(base)
    with contextlib.suppress(OSError):
        os.makedirs(base, exist_ok=True)
    if not os.access(base, os.W_OK):
        temporary = "/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir()
        base = os.path.join(temporary, ".keras")
    return os.path.join(base, "keras_vit")


def verify(path: str | os.PathLike) -> None:
    """Check a file against the record written beside it at download.

    Args:
        path: The file that `fetch` returned.

    Raises:
        ValueError: If it differs, or there is no file or no record.
    """
    path = os.fsdecode(path)
    known = record(path)
    if known is None or not os.path.isfile(path):
        raise ValueError(
            "`path` must be a file with its record beside it, as `fetch` "
            f"leaves them. Received: path={path!r}, and {path}.json or the "
            "file itself is missing or unreadable. Delete what there is and "
            "fetch it again."
        )
    compare(path, known, digests(path), AGAIN)


def record(path: str) -> dict | None:
    """Return the record of a file, or None without a readable one."""
    try:
        with open(f"{path}.json") as file:
            known = json.load(file)
        found = {name: known[name] for name in ("size", "md5", "sha256")}
        return {**found, "checked": known.get("checked") is True}
    except (AttributeError, OSError, ValueError, LookupError, TypeError):
        return None


def write_record(path: str, url: str | None, found: dict, check) -> None:
    """Record length and hashes beside a file, in one step.

    Args:
        path: The file.
        url: Where it came from, recorded without its query.
        found: Its length and hashes.
        check: With what its content was checked, or None.
    """
    content = {"url": url and without_query(url), **found}
    if check is not None:
        content["checked"] = True
    folder, name = os.path.split(path)
    part = os.path.join(folder, "incomplete", f"{name}.json")
    os.makedirs(os.path.dirname(part), exist_ok=True)
    with open(part, "w") as file:
        json.dump(content, file, indent=2)
    os.replace(part, f"{path}.json")


def without_query(url: str) -> str:
    """Return a URL without its query, which may contain a token."""
    return urllib.parse.urlsplit(url)._replace(query="", fragment="").geturl()


def digests(path: str, **more) -> dict:
    """Return length and hashes, in hex; `more` are further checksums."""
    sums = {
        "md5": hashlib.md5(usedforsecurity=False),
        "sha256": hashlib.sha256(),
        **more,
    }
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            for one in sums.values():
                one.update(block)
        size = file.tell()
    return {"size": size, **{n: one.digest().hex() for n, one in sums.items()}}


def compare(source: str, expected: dict, found: dict, remedy: str) -> None:
    """Refuse a file whose length or hashes are not the expected ones."""
    differences = [
        f"{name} {expected[name]} was expected, {value} found"
        for name, value in found.items()
        if expected.get(name) not in (None, value)
    ]
    if differences:
        raise ValueError(
            f"{source!r} is not the file expected: {', '.join(differences)}. "
            f"{remedy}"
        )


@contextlib.contextmanager
def locked(path: str):
    """Hold an exclusive lock, which the system releases at the process' end."""
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "ab"))
            if sys.platform == "win32":
                import msvcrt

                while True:  # LK_LOCK gives up after ten seconds
                    with contextlib.suppress(OSError):
                        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                        break
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise OSError(
                error.errno,
                "`path` must be in a folder where files can be written and "
                f"locked. Received: {error}. KERAS_HOME moves the cache",
            ) from error
        yield


def free(part: str) -> int:
    """Return the free bytes where a part is."""
    return shutil.disk_usage(os.path.dirname(part)).free


def disk_full(part: str, needed: int) -> OSError:
    """Return the error of a disk without room for `needed` more bytes."""
    return OSError(
        errno.ENOSPC,
        f"No room for {part!r}: {needed or 'more'} bytes are needed, "
        f"{free(part)} are free. Nothing was kept. Make room, or set "
        "KERAS_HOME, which moves the cache, to a folder on a larger disk",
    )


def length(path: str) -> int:
    """Return the bytes of a file, 0 if there is none."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def discard(part: str) -> None:
    """Delete a part and the description of its object."""
    # In this order no part is ever beside the description of another.
    remove(part)
    remove(f"{part}.origin")


def remove(path: str) -> None:
    """Delete a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
