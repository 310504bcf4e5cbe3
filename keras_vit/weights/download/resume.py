"""Downloads files over unreliable networks: resumed, verified, atomic.

Bytes are collected in `incomplete/<name>.part` beside the final file, under a
lock; the server's description of their object is in `<name>.part.origin`. The
file is moved to its place only when its length and hashes match those of the
server.
"""

import contextlib
import errno
import functools
import http.client
import json
import os
import time
import urllib.parse
from collections.abc import Callable

from keras_vit.weights.download import cache, servers

ATTEMPTS = 5  # in a row without a new byte, before giving up
BACKOFF = 0.5  # seconds before the second attempt; doubles

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
        url: URL of the file: http, https, file, or gs (through fsspec).
        path: Destination of the file.
        size: Its length in bytes, if known.
        sha256: Its SHA-256 in hex, if known.
        check: Called with the path of a file; raises a ValueError if the
            content is not the expected one. Called before a download is moved
            to its place, and for an existing file not checked before.
        progress: Whether to show a progress bar if Keras logs interactively.

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
    servers.check_url(url)
    if not url.startswith("file:") and servers.is_offline():
        raise ValueError(
            f"{path!r} {damage}, and KERAS_VIT_OFFLINE forbids to download "
            f"it. Place the file of {cache.without_query(url)} there by hand, "
            "or unset KERAS_VIT_OFFLINE."
        )
    base = os.path.join(folder, "incomplete", name)
    part = f"{base}.part"
    with cache.locked(f"{base}.lock"):
        # Another process may have downloaded it while this one waited.
        if _damage(path, size, sha256, check) is None:
            return path
        try:
            found = _download(url, path, part, size, sha256, progress)
            os.replace(part, base)  # keeps the ending of the file
            cache.discard(part)
            if check is not None:
                _check_download(url, base, check)
            # In this order a file always has its record.
            cache.write_record(path, url, found, check)
            os.replace(base, path)
        except ConnectionError:
            raise  # `_pull` has kept or deleted the bytes
        except Exception:
            cache.discard(part)
            cache.remove(base)
            raise
        _verified[path, check] = _stamp(path)
    return path


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
    record = cache.record(path)
    if _verified.get((path, check)) != stamp:
        try:
            if record is not None:
                found = cache.digests(path)
                cache.compare(path, record, found, "It is damaged.")
            if check is not None and not (record or {}).get("checked"):
                check(path)
                # A shared folder may be read-only.
                with contextlib.suppress(OSError):
                    found = cache.digests(path)
                    cache.write_record(path, None, found, check)
        except ValueError as error:
            return f"cannot be used ({error})"
        _verified[path, check] = stamp
    found = {"size": stamp[1]}
    if sha256 is not None:
        found["sha256"] = (record or cache.digests(path))["sha256"]
    cache.compare(path, {"size": size, "sha256": sha256}, found, cache.AGAIN)
    return None


def _stamp(path):
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _check_download(url, path, check):
    try:
        check(path)
    except ValueError as error:
        raise ValueError(
            f"What {cache.without_query(url)} sends is not the file "
            f"expected: {error} Nothing was kept. Is it the page of a proxy "
            f"or a login? {servers.ELSEWHERE}."
        ) from error


def _download(url, path, part, size, sha256, progress):
    """Download to `part` and verify it; return its length and hashes."""
    remedy = f"Nothing was kept. Try again. {servers.ELSEWHERE}."
    bar = functools.cache(lambda total: _bar(url, total, progress))
    for last in (False, True):
        remote, resumed = _pull(url, path, part, size, sha256, bar)
        expected = {**remote._asdict(), "sha256": sha256}
        if size is not None:
            expected["size"] = size
        found = cache.digests(part, **servers.crc32c(url, remote, sha256))
        try:
            cache.compare(cache.without_query(url), expected, found, remedy)
        except ValueError:
            # The beginning of a resumed transfer may belong to another object.
            if last or not resumed:
                raise
            cache.discard(part)
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
        start = cache.length(part)
        resumed = resumed or start > 0
        try:
            return _attempt(url, part, start, size, sha256, bar), resumed
        except servers.Lost as error:
            length = cache.length(part)
            if length > max(longest, start):
                longest, idle = length, 0
            else:
                idle += 1
            if idle == ATTEMPTS:
                kept = f"{length} bytes are kept: the same call continues."
                raise ConnectionError(
                    f"{cache.without_query(url)} could not be fetched: {error};"
                    f" {ATTEMPTS} attempts in a row brought no new byte. "
                    f"{kept if length else 'Nothing was kept.'} "
                    f"{servers.ELSEWHERE}. Without a network, place the "
                    f"file at {path!r} by hand."
                ) from error
        time.sleep(BACKOFF * 2 ** max(idle - 1, 0))


def _attempt(url, part, start, size, sha256, bar):
    """Continue `part` at `start`, or begin it again.

    Returns the server's description of the object.

    Raises:
        servers.Lost: If the connection fails before the end; `part` is there
            if the next attempt can continue it.
    """
    opener = servers.OPENERS[urllib.parse.urlsplit(url).scheme]
    known = _description(part)
    with opener(url, start, part, known.validator) as (read, begin, remote):
        if None not in (size, remote.size):
            source, said = cache.without_query(url), {"size": remote.size}
            cache.compare(source, {"size": size}, said, f"{servers.ELSEWHERE}.")
        same = remote.validator and remote.validator == known.validator
        if begin and same:  # the answer may omit what the first one said
            remote = known._replace(size=remote.size)
        hashed = remote.md5 or sha256 or servers.crc32c(url, remote, sha256)
        if not begin:
            cache.discard(part)
            with open(f"{part}.origin", "w") as file:
                json.dump(remote, file)
        elif (
            begin != start
            or not (hashed or same)
            or known.size not in (None, remote.size)
        ):
            cache.discard(part)
            raise servers.Lost("the server cannot continue a transfer")
        needed = (remote.size or size or 0) - begin
        if needed > cache.free(part):
            raise cache.disk_full(part, needed)
        try:
            _append(read, part, begin, remote.size, bar(remote.size))
        except servers.Lost:
            if begin != start or not (hashed or remote.validator):
                cache.discard(part)
            raise
    return remote


def _description(part):
    """Return the server's description of the object that a part is of."""
    try:
        with open(f"{part}.origin") as file:
            return servers.RemoteMetadata(*json.load(file))
    except (OSError, TypeError, ValueError):
        return servers.RemoteMetadata(None)


def _append(read, part, begin, size, show):
    position = begin
    try:
        with open(part, "ab") as file:
            while size is None or position < size:
                try:
                    block = read(cache.BLOCK)
                except (OSError, http.client.HTTPException) as error:
                    raise servers.Lost(error) from error
                if not block:
                    break
                file.write(block)
                position += len(block)
                show(position, finalize=False)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise cache.disk_full(
                part, (size or position) - position
            ) from error
        raise
    if size is not None and position < size:
        raise servers.Lost(
            f"the connection closed {size - position} bytes early"
        )
    show(position, finalize=True)


def _bar(url, size, progress):
    if progress:
        import keras

        if keras.config.is_interactive_logging_enabled():
            print(f"Downloading {cache.without_query(url)}")
            bar = keras.utils.Progbar(size, interval=0.5, unit_name="byte")
            return bar.update
    return lambda position, finalize: None
