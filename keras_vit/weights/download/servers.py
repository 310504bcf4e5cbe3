"""Transfers bytes from servers: http and https, files, Google's gs.

An opener takes a URL, the offset at which to start, the file of the bytes
received so far, and the validator of the object that they are of. It yields a
function that reads up to n bytes, the actual offset (for the caller to
compare), and the metadata.
"""

import base64
import contextlib
import email.utils
import http.client
import os
import re
import typing
import urllib.error
import urllib.parse
import urllib.request

from keras_vit._paths import require_file
from keras_vit.weights.download import cache

TIMEOUT = 60  # seconds without a byte that make a connection lost
ELSEWHERE = "Set KERAS_VIT_WEIGHTS_URL to download from a mirror"


class Lost(Exception):
    """The connection failed, but another attempt may succeed."""


class RemoteMetadata(typing.NamedTuple):
    """The server's description of the complete object; None where absent."""

    size: int | None
    md5: str | None = None  # in hex, as all hashes here
    crc32c: str | None = None
    validator: str | None = None  # other bytes have another one


def is_offline() -> bool:
    """Whether KERAS_VIT_OFFLINE forbids using the network."""
    value = os.environ.get("KERAS_VIT_OFFLINE", "")
    return value.lower() not in ("", "0", "false")


@contextlib.contextmanager
def _http(url, start, part, validator):
    # With compression, lengths and hashes would be those of other bytes.
    headers = {"User-Agent": "keras_vit", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator:  # of another object the server sends all
            headers["If-Range"] = validator
    try:
        request = urllib.request.Request(url, headers=headers)
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            raise _refusal(url, start, part, error) from error
    except http.client.InvalidURL as error:
        raise ValueError(f"`url` must be a valid URL: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Lost(getattr(error, "reason", error)) from error
    with answer:
        if url.startswith("https:") and not answer.url.startswith("https:"):
            raise ValueError(
                f"`url` must not lead to an unencrypted server. Received: "
                f"{cache.without_query(url)}, which leads to "
                f"{cache.without_query(answer.url)}. {ELSEWHERE}."
            )
        coding = answer.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise ValueError(
                f"The server of {cache.without_query(url)} must send plain "
                f"bytes. Received: Content-Encoding {coding}. {ELSEWHERE}."
            )
        begin, total = 0, answer.headers.get("Content-Length")
        if answer.status == 206:
            said = answer.headers.get("Content-Range", "")
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", said)
            begin, total = (int(found[1]), found[2]) if found else (-1, None)
        entries = ",".join(answer.headers.get_all("x-goog-hash", [])).split(",")
        # base64 may end in "=" too: the first one is the separator.
        hashes = dict(entry.strip().partition("=")[::2] for entry in entries)
        total = total or ""
        size = int(total) if re.fullmatch(r"\d{1,18}", total) else None
        chunked = answer.headers.get("Transfer-Encoding", "") == "chunked"
        if size is None and not chunked and not hashes.get("md5"):
            raise ValueError(
                f"The server of {cache.without_query(url)} must send the "
                "length or a hash of the file; otherwise a truncated download "
                "cannot be detected. "
                f"{ELSEWHERE}."
            )
        yield (
            # Unlike `read`, it keeps the bytes received before a failure.
            answer.read1,
            begin,
            RemoteMetadata(
                size,
                _hex(url, "md5", hashes.get("md5")),
                _hex(url, "crc32c", hashes.get("crc32c")),
                _validator(answer.headers),
            ),
        )


def _validator(headers):
    """Return a strong ETag, or a strong date if there is no ETag, or None.

    Only these show that a rest belongs to a beginning (RFC 9110, 13.1.5). A
    date is strong if the server's clock was past that second.
    """
    etag = headers.get("ETag")
    if etag is not None:
        return etag if re.fullmatch(r'"[!#-~]*"', etag) else None
    try:
        date, modified = (
            email.utils.parsedate_to_datetime(headers[name])
            for name in ("Date", "Last-Modified")
        )
        strong = (date - modified).total_seconds() >= 1
    except (TypeError, ValueError):  # absent, or no dates
        return None
    return headers["Last-Modified"] if strong else None


def _refusal(url, start, part, error):
    """Return the exception for an HTTP error."""
    status = f"HTTP {error.code} {error.reason}"
    if error.code == 416 and start:
        # No bytes follow the part. If it is complete, request its last byte
        # again, since the server sends the hashes only with a body.
        complete = error.headers.get("Content-Range") == f"bytes */{start}"
        os.truncate(part, start - 1 if complete else 0)
        return Lost(status)
    if error.code in (408, 429) or error.code >= 500:
        return Lost(status)
    return _absent(url, status)


def _absent(url, answer):
    return ValueError(
        "`url` must be of a file that all may read. Received: "
        f"url={cache.without_query(url)!r}, which answers: {answer}. "
        f"keras_vit.list_weights() lists the names. {ELSEWHERE}."
    )


def crc32c(url: str, remote: RemoteMetadata, sha256: str | None) -> dict:
    """Return {"crc32c": a running checksum} if the server gives that hash."""
    if remote.crc32c is None:
        return {}
    try:
        import google_crc32c
    except ImportError as error:
        if remote.md5 or sha256:
            return {}
        raise ValueError(
            f"The server of {cache.without_query(url)} gives no hash but "
            "crc32c, and google_crc32c is not installed. Run: pip install "
            "google-crc32c"
        ) from error
    return {"crc32c": google_crc32c.Checksum()}


def _hex(url, name, code):
    """Return a hash of the server in hex."""
    if code is None:
        return None
    try:
        digest = base64.b64decode(code, validate=True)
    except ValueError:
        digest = b""
    if len(digest) != {"md5": 16, "crc32c": 4}[name]:
        raise ValueError(
            f"The server of {cache.without_query(url)} must send its "
            f"x-goog-hash in base64. Received: {name}={code!r}. {ELSEWHERE}."
        )
    return digest.hex()


@contextlib.contextmanager
def _file(url, start, part, validator):
    source = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
    try:
        require_file(source)
        file = open(source, "rb")
    except (OSError, ValueError) as error:
        raise _absent(url, error) from error
    with file:
        yield file.read, 0, RemoteMetadata(os.path.getsize(source))


@contextlib.contextmanager
def _gs(url, start, part, validator):
    try:
        import fsspec

        system = fsspec.filesystem("gs")
        info = system.info(url)
        file = system.open(url, "rb")
    except ImportError as error:
        raise ValueError(
            f"`url` begins with gs://, which needs other packages: {error}. "
            f"Run: pip install fsspec gcsfs. Received: url={url!r}"
        ) from error
    except FileNotFoundError as error:
        raise _absent(url, error) from error
    except Exception as error:  # gcsfs and aiohttp have their own types
        raise Lost(error) from error

    def read(count):
        try:
            return file.read(count)
        except Exception as error:
            raise Lost(error) from error

    with file:
        begin = start if start < info["size"] else 0
        file.seek(begin)
        hashes = (
            _hex(url, "md5", info.get("md5Hash")),
            _hex(url, "crc32c", info.get("crc32c")),
        )
        yield (
            read,
            begin,
            RemoteMetadata(info["size"], *hashes, info.get("etag")),
        )


OPENERS = {"http": _http, "https": _http, "file": _file, "gs": _gs}


def check_url(url: str) -> None:
    """Refuse a URL of another scheme, or without a host that is read."""
    scheme, host, *_ = urllib.parse.urlsplit(url)
    has_place = host in ("", "localhost") if scheme == "file" else bool(host)
    if scheme not in OPENERS or not has_place:
        raise ValueError(
            "`url` must begin with http://, https:// or gs:// and a host, or "
            f"with file:/// and the path of a file. Received: url={url!r}"
        )
