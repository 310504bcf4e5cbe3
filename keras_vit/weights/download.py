"""Downloads files over unreliable networks: resumed, verified, atomic.

Bytes are collected in `incomplete/<name>.part` beside the final file, under a
lock; the server's description of their object is in `<name>.part.origin`. The
file is moved to its place only when its length and hashes match those of the
server.
"""

import contextlib
import errno
import functools
import hashlib
import http.client
import json
import os
import shutil
import tempfile
import time
import urllib.parse
from collections.abc import Callable

from keras_vit.weights import transport

BLOCK = 1 << 20  # bytes read at a time
ATTEMPTS = 5  # in a row without a new byte, before giving up
BACKOFF = 0.5  # seconds before the second attempt; doubles

_AGAIN = "Delete it and fetch it again."
# (path, check) -> (modification time, length) of files that this process has
# compared with their digests, so that gigabytes are not read at every call.
_verified = {}


def fetch(
    url: str,
    path: str | os.PathLike,
    *,
    size: int | None = None,
    sha256: str | None = None,
    check: Callable[[str], None] | None = None,
    progress: bool = True,
) -> str:
    """Return the path of a complete, verified file, downloading it if absent.

    Length and hashes are compared with those of the server (Content-Length,
    x-goog-hash) and recorded in `path` plus ".json". An existing file is
    compared with its record, once per process unless it changes; a file that
    differs, or that `check` refuses, is downloaded again. An interrupted
    download resumes, at the next call too, if the server takes ranges and the
    rest can be shown to belong to the beginning: by a hash, or by an ETag or
    modification date, and an equal length. Processes that need the same file
    take turns.

    Args:
        url: URL of the file: http, https, file, or gs (through fsspec and
            gcsfs).
        path: Destination of the file.
        size: Its length in bytes, if known.
        sha256: Its SHA-256 in hex, if known.
        check: Called with the path of a file; raises a ValueError if the
            content is not the expected one. Called before a download is moved
            to its place, and for an existing file that was not checked after
            its download.
        progress: Whether to show a progress bar if Keras logs interactively.

    Returns:
        `path` as a string.

    Raises:
        ValueError: If the URL has no file or not the expected one, or if
            KERAS_VIT_OFFLINE is set and the local file is absent or damaged.
        ConnectionError: If the connection fails repeatedly. Received bytes are
            kept if the server can resume a transfer.
        OSError: If the disk is full or the folder cannot be written.
    """
    path = os.fsdecode(path)
    sha256 = sha256 and sha256.lower()
    folder, name = os.path.split(path)
    if name in ("", ".", "..", "incomplete"):
        raise ValueError(
            "`path` must end in the name of a file, other than 'incomplete'. "
            f"Received: path={path!r}"
        )
    damage = _damage(path, size, sha256, check)
    if damage is None:
        return path
    scheme, host, *_ = urllib.parse.urlsplit(url)
    if scheme not in transport.OPENERS or not (host or scheme == "file"):
        raise ValueError(
            "`url` must begin with http://, https:// or gs:// and a host, or "
            f"with file://. Received: url={url!r}"
        )
    if scheme != "file" and transport.is_offline():
        raise ValueError(
            f"{path!r} {damage}, and KERAS_VIT_OFFLINE forbids to download "
            f"it. Place the file of {url} there by hand, or unset "
            "KERAS_VIT_OFFLINE."
        )
    base = os.path.join(folder, "incomplete", name)
    part = f"{base}.part"
    with _locked(f"{base}.lock"):
        # Another process may have downloaded it while this one waited.
        if _damage(path, size, sha256, check) is None:
            return path
        try:
            found = _download(url, path, part, size, sha256, progress)
            os.replace(part, base)  # keeps the ending of the file
            _discard(part)
            if check is not None:
                _check_download(url, base, check)
            # In this order a file always has its record.
            _write_record(path, url, found, check)
            os.replace(base, path)
        except ConnectionError:
            raise  # `_pull` has kept or deleted the bytes
        except Exception:
            _discard(part)
            _remove(base)
            raise
        _verified[path, check] = _stamp(path)
    return path


def verify(path: str | os.PathLike) -> None:
    """Check a file against the record written beside it at download.

    Args:
        path: The file that `fetch` returned.

    Raises:
        ValueError: If it differs, or there is no file or no record.
    """
    path = os.fsdecode(path)
    record = _record(path)
    if record is None or not os.path.isfile(path):
        raise ValueError(
            "`path` must be a file with its record beside it, as `fetch` "
            f"leaves them. Received: path={path!r}, and {path}.json or the "
            "file itself is missing or unreadable. Delete what there is and "
            "fetch it again."
        )
    _compare(path, record, _digests(path), _AGAIN)


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


def _damage(path, size, sha256, check):
    """Return why the file at `path` cannot be used; None if it can.

    Raises:
        ValueError: If it is unchanged since its download but has another size
            or digest than the given one: another download would not help.
    """
    if not os.path.exists(path):
        return "is not there"
    if not os.path.isfile(path):
        raise ValueError(f"`path` must be a file. Received: path={path!r}")
    stamp = _stamp(path)
    if _verified.get((path, check)) != stamp:
        record = _record(path)
        try:
            if record is not None:
                _compare(path, record, _digests(path), "It is damaged.")
            if check is not None and not (record or {}).get("checked"):
                check(path)
                # A shared folder may be read-only.
                with contextlib.suppress(OSError):
                    _write_record(path, None, _digests(path), check)
        except ValueError as error:
            return f"cannot be used ({error})"
        _verified[path, check] = stamp
    found = {"size": stamp[1]}
    if sha256 is not None:
        found["sha256"] = (_record(path) or _digests(path))["sha256"]
    _compare(path, {"size": size, "sha256": sha256}, found, _AGAIN)
    return None


def _stamp(path):
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _check_download(url, path, check):
    try:
        check(path)
    except ValueError as error:
        raise ValueError(
            f"What {transport.without_query(url)} sends is not the file "
            f"expected: {error} Nothing was kept. Is it the page of a proxy "
            f"or a login? {transport.ELSEWHERE}."
        ) from error


def _write_record(path, url, found, check):
    """Record length and hashes beside a file, in one step."""
    record = {"url": url and transport.without_query(url), **found}
    if check is not None:
        record["checked"] = True
    folder, name = os.path.split(path)
    part = os.path.join(folder, "incomplete", f"{name}.json")
    os.makedirs(os.path.dirname(part), exist_ok=True)
    with open(part, "w") as file:
        json.dump(record, file, indent=2)
    os.replace(part, f"{path}.json")


def _record(path):
    try:
        with open(f"{path}.json") as file:
            record = json.load(file)
        found = {name: record[name] for name in ("size", "md5", "sha256")}
        return {**found, "checked": record.get("checked") is True}
    except (AttributeError, OSError, ValueError, LookupError, TypeError):
        return None


def _digests(path, **more):
    """Return the length and the hashes, in hex; `more` are further
    checksums."""
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


def _compare(source, expected, found, remedy):
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


def _download(url, path, part, size, sha256, progress):
    """Download to `part` and verify it; return its length and hashes."""
    remedy = f"Nothing was kept. Try again; {transport.ELSEWHERE}."
    bar = functools.cache(lambda total: _bar(url, total, progress))
    for last in (False, True):
        remote, resumed = _pull(url, path, part, size, sha256, bar)
        expected = {**remote._asdict(), "sha256": sha256}
        if size is not None:
            expected["size"] = size
        found = _digests(part, **_crc32c(url, remote, sha256))
        try:
            _compare(url, expected, found, remedy)
        except ValueError:
            # The beginning of a resumed transfer may belong to another object.
            if last or not resumed:
                raise
            _discard(part)
        else:
            break
    return {name: found[name] for name in ("size", "md5", "sha256")}


def _pull(url, path, part, size, sha256, bar):
    """Download to `part`, in several attempts if necessary.

    Returns the server's description of the object, and whether there were
    bytes of an earlier attempt.
    """
    longest, idle, resumed = 0, 0, False
    while True:
        start = _length(part)
        resumed = resumed or start > 0
        try:
            return _attempt(url, part, start, size, sha256, bar), resumed
        except transport.Lost as error:
            length = _length(part)
            if length > max(longest, start):
                longest, idle = length, 0
            else:
                idle += 1
            if idle == ATTEMPTS:
                kept = f"{length} bytes are kept: the same call continues."
                raise ConnectionError(
                    f"{url} could not be fetched: {error}; {ATTEMPTS} attempts "
                    f"in a row brought no new byte. "
                    f"{kept if length else 'Nothing was kept.'} "
                    f"{transport.ELSEWHERE}. Without a network, place the "
                    f"file at {path!r} by hand."
                ) from error
        time.sleep(BACKOFF * 2 ** max(idle - 1, 0))


def _attempt(url, part, start, size, sha256, bar):
    """Continues `part` at `start`, or begins it again.

    Returns the server's description of the object.

    Raises:
        transport.Lost: If the connection fails before the end; `part` is there
            if the next attempt can continue it.
    """
    opener = transport.OPENERS[urllib.parse.urlsplit(url).scheme]
    known = _description(part)
    answer = opener(url, start, part, known.validator)
    with answer as (read, begin, remote):
        if None not in (size, remote.size):
            said = {"size": remote.size}
            _compare(url, {"size": size}, said, f"{transport.ELSEWHERE}.")
        same = remote.validator and remote.validator == known.validator
        if begin and same:  # the answer may omit what the first one said
            remote = known._replace(size=remote.size)
        hashed = remote.md5 or sha256 or _crc32c(url, remote, sha256)
        if not begin:
            _discard(part)
            with open(f"{part}.origin", "w") as file:
                json.dump(remote, file)
        elif (
            begin != start
            or not (hashed or same)
            or known.size not in (None, remote.size)
        ):
            _discard(part)
            raise transport.Lost("the server cannot continue a transfer")
        needed = (remote.size or size or 0) - begin
        if needed > _free(part):
            raise _disk_full(part, needed)
        try:
            _append(read, part, begin, remote.size, bar(remote.size))
        except transport.Lost:
            if begin != start or not (hashed or remote.validator):
                _discard(part)
            raise
    return remote


def _description(part):
    """Return the server's description of the object that a part is of."""
    try:
        with open(f"{part}.origin") as file:
            return transport.RemoteMetadata(*json.load(file))
    except (OSError, TypeError, ValueError):
        return transport.RemoteMetadata(None)


def _append(read, part, begin, size, show):
    position = begin
    try:
        with open(part, "ab") as file:
            while size is None or position < size:
                try:
                    block = read(BLOCK)
                except (OSError, http.client.HTTPException) as error:
                    raise transport.Lost(error) from error
                if not block:
                    break
                file.write(block)
                position += len(block)
                show(position, finalize=False)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(part, (size or position) - position) from error
        raise
    if size is not None and position < size:
        raise transport.Lost(
            f"the connection closed {size - position} bytes early"
        )
    show(position, finalize=True)


def _free(part):
    return shutil.disk_usage(os.path.dirname(part)).free


def _disk_full(part, needed):
    return OSError(
        errno.ENOSPC,
        f"No room for {part!r}: {needed or 'more'} bytes are needed, "
        f"{_free(part)} are free. Nothing was kept. Make room, or set "
        "KERAS_HOME, which moves the cache, to a folder on a larger disk",
    )


def _bar(url, size, progress):
    if progress:
        import keras

        if keras.config.is_interactive_logging_enabled():
            print(f"Downloading {url}")
            bar = keras.utils.Progbar(size, interval=0.5, unit_name="byte")
            return bar.update
    return lambda position, finalize: None


def _crc32c(url, remote, sha256):
    """Return {"crc32c": a running checksum} if the server gives that hash."""
    if remote.crc32c is None:
        return {}
    try:
        import google_crc32c
    except ImportError as error:
        if remote.md5 or sha256:
            return {}
        raise ValueError(
            f"The server of {url} gives no hash but crc32c, and google_crc32c "
            "is not installed. Run: pip install google-crc32c"
        ) from error
    return {"crc32c": google_crc32c.Checksum()}


def _length(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def _discard(part):
    # In this order no part is ever beside the description of another.
    _remove(part)
    _remove(f"{part}.origin")


def _remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


@contextlib.contextmanager
def _locked(path):
    """Hold an exclusive lock, which the system releases if the process
    dies."""
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "ab"))
            if os.name == "nt":
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
