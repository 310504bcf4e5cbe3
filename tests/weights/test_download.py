"""Downloads over a server that drops, lies, refuses and changes its mind."""

import base64
import builtins
import contextlib
import errno
import hashlib
import http.server
import itertools
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import urllib.request

import keras
import pytest

from keras_vit.weights import download
from keras_vit.weights.download import cache, resume, servers

pytestmark = pytest.mark.backend_independent

PAYLOAD = random.Random(0).randbytes(300_001)
HALF = 150_000
OTHER_URLS = [
    *("ftp://host/a", "weights.npz", "C:\\a.npz", "http:///a.npz"),
    "file://host/a.npz",
]
SHA256 = hashlib.sha256(PAYLOAD).hexdigest()
# The package as it is, but without Keras, which takes seconds to import.
FETCH = """
import sys, types
for name in ("keras_vit", "keras_vit.weights"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = ["/".join([sys.argv[1], *name.split(".")])]
from keras_vit.weights import download
print("ready", flush=True)
print(download.fetch(sys.argv[2], sys.argv[3], progress=False))
"""
ROOT = pathlib.Path(__file__).parents[2]


def crc32c_table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


TABLE = tuple(crc32c_table())


class Checksum:
    """As google_crc32c has it."""

    def __init__(self):
        self.value = 0xFFFFFFFF

    def update(self, chunk):
        value = self.value
        for byte in chunk:
            value = value >> 8 ^ TABLE[(value ^ byte) & 255]
        self.value = value

    def digest(self):
        return struct.pack(">I", self.value ^ 0xFFFFFFFF)


def md5_entry(payload):
    return "md5=" + base64.b64encode(hashlib.md5(payload).digest()).decode()


def crc32c_entry(payload):
    checksum = Checksum()
    checksum.update(payload)
    return "crc32c=" + base64.b64encode(checksum.digest()).decode()


CRC32C = crc32c_entry(PAYLOAD)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.close_connection = True
        server = self.server
        server.seen.append(dict(self.headers))
        status = next(server.statuses, 200)
        asked, body, total = self.headers["Range"], server.payload, 0
        total = len(body)
        begin = 0
        same = (None, *server.headers.values(), *server.ignored)
        if asked and server.ranges and self.headers["If-Range"] in same:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            status = 206 if begin < total else 416
        if status not in (200, 206):
            body = b""
        self.send_response(status)
        if status == 206:
            shift = begin + server.shift
            self.send_header(
                "Content-Range", f"bytes {shift}-{total - 1}/{total}"
            )
        elif status == 416:
            self.send_header("Content-Range", f"bytes */{total}")
        if status < 300:
            whole = status == 200 or server.hashes_of_parts is None
            for entry in server.hashes if whole else server.hashes_of_parts:
                self.send_header("x-goog-hash", entry)
        for name, value in server.headers.items():
            self.send_header(name, value)
        body = body[begin:]
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif server.sends_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = body[: next(server.drops, None)]
        server.sent += len(sent)
        if server.chunked:
            if sent:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(sent), sent))
            if len(sent) == len(body):
                self.wfile.write(b"0\r\n\r\n")
            return
        self.wfile.write(sent[:HALF])
        if server.stalls:
            server.stalls -= 1
            server.go_on.wait(10)
        self.wfile.write(sent[HALF:])


class Server(http.server.ThreadingHTTPServer):
    """What it does wrong is set by each test."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/a/weights.npz"
        self.payload = PAYLOAD
        self.hashes = [CRC32C, md5_entry(PAYLOAD)]
        self.hashes_of_parts = None  # the same
        self.headers = {}
        self.ranges = True
        self.ignored = ()  # validators of If-Range that it takes
        self.shift = 0
        self.chunked = False
        self.sends_length = True
        self.statuses = iter(())
        self.drops = iter(())  # bytes after which each answer ends
        self.stalls = 0  # answers that wait for `go_on` at HALF or their end
        self.go_on = threading.Event()
        self.seen = []  # headers of each request
        self.sent = 0  # bytes of bodies

    @property
    def asked(self):
        return [headers.get("Range") for headers in self.seen]

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(resume, "BACKOFF", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("KERAS_VIT_OFFLINE", raising=False)
    # Where it is installed, the machine that runs the tests may lack it.
    monkeypatch.setitem(sys.modules, "google_crc32c", None)


@pytest.fixture
def with_crc32c(monkeypatch):
    fake = types.SimpleNamespace(Checksum=Checksum)
    monkeypatch.setitem(sys.modules, "google_crc32c", fake)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "weights.npz"


def part_of(path):
    return path.parent / "incomplete" / f"{path.name}.part"


def leave_part(path, content):
    part_of(path).parent.mkdir(parents=True)
    part_of(path).write_bytes(content)


def files_beside(path):
    return {p.name for p in path.parent.rglob("*") if p.is_file()}


def assert_complete(path):
    assert path.read_bytes() == PAYLOAD
    download.verify(path)
    assert files_beside(path) == {
        "weights.npz",
        "weights.npz.json",
        "weights.npz.lock",
    }


@contextlib.contextmanager
def refused(path, match, kind=ValueError, kept=0):
    """What happens inside fails and leaves nothing, or `kept` bytes."""
    with pytest.raises(kind, match=match):
        yield
    assert not path.exists()
    names = {"weights.npz.lock"}
    if kept:
        names |= {"weights.npz.part", "weights.npz.part.origin"}
    assert files_beside(path) <= names
    assert part_of(path).exists() == bool(kept)
    assert not kept or part_of(path).read_bytes() == PAYLOAD[:kept]


def fetch(server, path, **kwargs):
    found = download.fetch(server.url, path, progress=False, **kwargs)
    assert found == str(path)


def test_file_and_record_come_once(server, path):
    fetch(server, path, size=len(PAYLOAD), sha256=SHA256.upper())
    fetch(server, path, size=len(PAYLOAD), sha256=SHA256)
    assert_complete(path)
    assert json.loads(pathlib.Path(f"{path}.json").read_text()) == {
        "url": server.url,
        "size": len(PAYLOAD),
        "md5": hashlib.md5(PAYLOAD).hexdigest(),
        "sha256": SHA256,
    }
    (headers,) = server.seen
    assert headers["User-Agent"] == "keras_vit"
    assert headers["Accept-Encoding"] == "identity"
    assert "Range" not in headers


def test_lost_connection_is_continued(server, path):
    server.drops = iter([HALF, 10, 0, 0, 0, 0, 5, 0, 0, 0, 0])
    fetch(server, path)
    assert_complete(path)
    assert server.sent == len(PAYLOAD)
    assert server.asked[:3] == [None, f"bytes={HALF}-", f"bytes={HALF + 10}-"]


def test_silence_is_a_lost_connection(server, path, monkeypatch):
    monkeypatch.setattr(servers, "TIMEOUT", 0.5)
    server.drops, server.stalls = iter([HALF]), 1
    fetch(server, path)
    assert_complete(path)
    assert server.asked == [None, f"bytes={HALF}-"]


def test_without_hashes_nothing_is_continued_or_kept(server, path):
    server.drops, server.hashes = itertools.repeat(HALF), []
    leave_part(path, PAYLOAD[:HALF])
    with refused(path, "Nothing was kept", ConnectionError):
        fetch(server, path)


def test_an_end_that_nothing_shows_is_refused(server, path):
    server.sends_length, server.hashes = False, [CRC32C]
    with refused(path, "must send the length or a hash"):
        fetch(server, path)


def test_sha256_stands_in_for_hashes(server, path):
    server.hashes = []
    leave_part(path, PAYLOAD[:HALF])
    fetch(server, path, sha256=SHA256)
    assert server.asked[-1] == f"bytes={HALF}-"
    assert_complete(path)


PAST = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    "headers", [{"ETag": '"one"'}, {"Last-Modified": PAST}], ids=str
)
def test_a_validator_resumes_in_the_next_call(server, path, headers):
    server.hashes, server.headers = [], headers
    server.drops = itertools.chain([HALF], itertools.repeat(0, 5))
    with refused(path, "kept: the same call", ConnectionError, kept=HALF):
        fetch(server, path)
    fetch(server, path)
    assert_complete(path)
    assert server.sent == len(PAYLOAD)
    (validator,) = headers.values()
    assert [h.get("If-Range") for h in server.seen] == [None] + [validator] * 6


@pytest.mark.parametrize(
    "headers",
    [
        {"ETag": 'W/"one"', "Last-Modified": PAST},
        {"Last-Modified": "Thu, 21 Oct 2100 07:28:00 GMT"},
        {"Last-Modified": "yesterday"},
    ],
    ids=str,
)
def test_a_weak_validator_resumes_nothing(server, path, headers):
    server.hashes, server.headers = [], headers
    server.drops = iter([HALF])
    fetch(server, path)
    assert_complete(path)
    assert server.asked == [None, None]


@pytest.mark.parametrize("change", ["validator", "ignores If-Range", "total"])
def test_the_rest_of_another_object_is_not_appended(server, path, change):
    server.hashes, server.headers = [], {"ETag": '"one"'}
    server.payload = b"?" * len(PAYLOAD)
    server.drops = itertools.chain([HALF], itertools.repeat(0, 5))
    with pytest.raises(ConnectionError, match="kept"):
        fetch(server, path)
    server.payload = PAYLOAD
    if change == "total":
        server.payload = PAYLOAD + b"more"
    else:
        server.headers = {"ETag": '"two"'}
        server.ignored = ('"one"',) * (change != "validator")
    fetch(server, path)
    assert path.read_bytes() == server.payload


def test_hash_of_the_first_answer_holds_for_all(server, path):
    # A partial answer without it, but of the same ETag, is checked by it.
    server.drops, server.headers = iter([HALF]), {"ETag": '"one"'}
    server.hashes, server.hashes_of_parts = [md5_entry(b"another")], []
    with refused(path, "md5"):
        fetch(server, path)


def test_chunked_body_is_continued_after_a_drop(server, path):
    server.chunked, server.drops = True, iter([HALF])
    fetch(server, path)
    assert_complete(path)
    assert server.asked == [None, f"bytes={HALF}-"]


def test_whole_part_is_verified_not_sent_again(server, path):
    leave_part(path, PAYLOAD)
    fetch(server, path)
    assert_complete(path)
    assert server.sent == 1


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (PAYLOAD + b"more", {}),
        (b"?" + PAYLOAD[1:HALF], {}),
        (b"?" + PAYLOAD[1:], {}),
        (b"?" * HALF, dict(ranges=False)),
        (PAYLOAD[:HALF], dict(shift=1)),
    ],
    ids=["too long", "another", "whole but another", "no ranges", "shifted"],
)
def test_part_that_cannot_be_continued_starts_over(
    server, path, content, changes
):
    vars(server).update(changes)
    leave_part(path, content)
    fetch(server, path)
    assert_complete(path)
    assert server.asked[0] == f"bytes={len(content)}-"
    # A server without ranges sends all at once.
    assert (server.asked[-1] is None) == ("ranges" not in changes)


def test_wrong_hash_after_a_resumed_transfer_starts_over_once(server, path):
    server.hashes = [md5_entry(b"another")]
    leave_part(path, PAYLOAD[:HALF])
    with refused(path, f"md5 {hashlib.md5(b'another').hexdigest()} was"):
        fetch(server, path)
    assert server.asked == [f"bytes={HALF}-", None]


def test_wrong_md5_is_refused(server, path):
    server.hashes = [md5_entry(b"another")]
    with refused(path, f"{hashlib.md5(PAYLOAD).hexdigest()} found"):
        fetch(server, path)
    assert len(server.seen) == 1


def test_wrong_crc32c_is_refused(server, path, with_crc32c):
    server.hashes = [f"{crc32c_entry(b'123456789')}, {md5_entry(PAYLOAD)}"]
    with refused(path, "crc32c e3069283 was expected"):
        fetch(server, path)


def test_crc32c_alone_needs_its_package(server, path, with_crc32c, monkeypatch):
    server.hashes = [CRC32C]
    fetch(server, path)
    assert_complete(path)
    path.unlink()
    pathlib.Path(f"{path}.json").unlink()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with refused(path, "pip install google-crc32c"):
        fetch(server, path)
    fetch(server, path, sha256=SHA256)
    assert_complete(path)


@pytest.mark.parametrize(
    "expected, match",
    [
        ({"size": 7}, "size 7 was expected, 300001 found"),
        ({"sha256": "0" * 64}, f"sha256 {'0' * 64} was expected, {SHA256}"),
    ],
)
def test_size_and_sha256_are_checked(server, path, expected, match):
    with refused(path, match):
        fetch(server, path, **expected)
    fetch(server, path)
    with pytest.raises(ValueError, match=f"{match}.*Delete it"):
        fetch(server, path, **expected)
    # Without a record too.
    pathlib.Path(f"{path}.json").unlink()
    with pytest.raises(ValueError, match=match):
        fetch(server, path, **expected)


def test_compressed_answer_is_refused(server, path):
    server.headers = {"Content-Encoding": "gzip"}
    with refused(path, "plain bytes. Received: Content-Encoding gzip"):
        fetch(server, path)


@pytest.mark.parametrize("status", [403, 404, 410])
def test_absent_file_is_refused(server, path, status):
    server.statuses = iter([status])
    match = rf"HTTP {status}.*list_weights\(\).*KERAS_VIT_WEIGHTS_URL"
    with refused(path, match):
        fetch(server, path)
    assert len(server.seen) == 1


def test_a_busy_server_gets_the_request_again(server, path):
    server.statuses = iter([500, 429, 503, 500])
    fetch(server, path)
    assert_complete(path)


def test_broken_server_is_given_up(server, path):
    server.statuses = itertools.repeat(500)
    match = "HTTP 500.*Nothing was kept.*by hand"
    with refused(path, match, ConnectionError):
        fetch(server, path)
    assert len(server.seen) == resume.ATTEMPTS


def test_no_network_keeps_the_part(path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/weights.npz"
    with refused(path, "refused.*Nothing was kept", ConnectionError):
        download.fetch(url, path)
    part_of(path).write_bytes(PAYLOAD[:HALF])
    match = "refused.*150000 bytes are kept: the same call continues"
    with refused(path, match, ConnectionError, kept=HALF):
        download.fetch(url, path)


def test_disk_too_small_is_found_before(server, path, monkeypatch):
    usage = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: usage)
    match = "300001 bytes are needed, 1000 are free.*KERAS_HOME"
    with refused(path, match, OSError):
        fetch(server, path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_disk_that_fills_is_told(server, path, monkeypatch, number):
    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, block):
            raise OSError(number, "no room")

    def opened(name, mode="r"):
        file = builtins.open(name, mode)
        return Full(file) if str(name).endswith(".part") else file

    monkeypatch.setattr(resume, "open", opened, raising=False)
    with refused(path, "300001 bytes are needed.*KERAS_HOME", OSError):
        fetch(server, path)


def test_folder_that_cannot_be_made_is_told(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="`path` must be in a folder.*KERAS_HOME"):
        fetch(server, tmp_path / "cache" / "weights.npz")


def test_flipped_byte_is_found(server, path):
    fetch(server, path)
    content = bytearray(PAYLOAD)
    content[HALF] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="sha256 .* Delete it"):
        download.verify(path)
    pathlib.Path(f"{path}.json").write_text("{}")
    with pytest.raises(ValueError, match="with its record beside it"):
        download.verify(path)


def test_offline_uses_existing_files(server, path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    match = f"{path}.*KERAS_VIT_OFFLINE forbids.*{server.url}"
    with refused(path, match):
        fetch(server, path)
    assert not server.seen
    path.parent.mkdir()
    path.write_bytes(PAYLOAD)
    fetch(server, path)
    path.unlink()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "False")
    fetch(server, path)
    assert_complete(path)


def test_file_url(path, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    source = tmp_path / "a+b c.npz"
    with refused(path, "It is not there.*list_weights"):
        download.fetch(source.as_uri(), path)
    source.write_bytes(PAYLOAD)
    download.fetch(source.as_uri(), path, progress=False)
    assert_complete(path)


@pytest.mark.parametrize(
    ("url", "match"),
    [
        *((url, "must begin with http://, https://") for url in OTHER_URLS),
        ("http://127.0.0.1/a b", "must be a valid URL"),
    ],
)
def test_other_urls_are_refused(path, url, match):
    with refused(path, f"`url` {match}"):
        download.fetch(url, path)


@pytest.mark.parametrize("path", ["", "a/", "a/.", "a/..", "a/incomplete"])
def test_path_must_name_a_file(path, tmp_path):
    with pytest.raises(ValueError, match="`path` must end in the name"):
        download.fetch("http://127.0.0.1/a", path)
    with pytest.raises(ValueError, match="`path` must be a file"):
        download.fetch("http://127.0.0.1/a", tmp_path)


class Bucket:
    """As gcsfs has it."""

    def __init__(self, path):
        self.path = path
        self.error = None

    def filesystem(self, protocol):
        assert protocol == "gs"
        return self

    def info(self, url):
        assert url == "gs://bucket/weights.npz"
        if self.error:
            raise self.error
        entry = md5_entry(PAYLOAD).removeprefix("md5=")
        return {"size": len(PAYLOAD), "md5Hash": entry}

    def open(self, url, mode):
        return open(self.path, mode)


def test_gs_url_goes_through_fsspec(path, tmp_path, monkeypatch):
    url = "gs://bucket/weights.npz"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with refused(path, "pip install fsspec gcsfs"):
        download.fetch(url, path)
    bucket = Bucket(tmp_path / "source")
    bucket.path.write_bytes(PAYLOAD)
    monkeypatch.setitem(sys.modules, "fsspec", bucket)
    bucket.error = FileNotFoundError(url)
    with refused(path, "list_weights"):
        download.fetch(url, path)
    bucket.error = RuntimeError("lost")
    with refused(path, "lost; 5 attempts", ConnectionError):
        download.fetch(url, path)
    bucket.error = None
    part_of(path).write_bytes(PAYLOAD[:HALF])
    download.fetch(url, path, progress=False)
    assert_complete(path)


def start_fetching(server, path):
    process = subprocess.Popen(
        [sys.executable, "-c", FETCH, str(ROOT), server.url, path],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_at_once_fetch_once(server, path):
    server.stalls = 1
    processes = [start_fetching(server, path) for _ in range(2)]
    time.sleep(0.05)  # lets the second come to the lock
    server.go_on.set()
    for process in processes:
        printed, _ = process.communicate(timeout=20)
        assert printed == f"{path}\n"
        assert process.returncode == 0
    assert server.sent == len(PAYLOAD)
    assert_complete(path)


def test_the_download_of_a_killed_process_resumes(server, path):
    server.drops, server.stalls = iter([HALF]), 1
    process = start_fetching(server, path)
    deadline = time.monotonic() + 20
    while not (part_of(path).exists() and part_of(path).stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    server.go_on.set()
    assert not path.exists()
    kept = part_of(path).stat().st_size
    fetch(server, path)
    assert_complete(path)
    assert server.asked == [None, f"bytes={kept}-"]


def test_bar_counts_bytes_unless_silenced(server, path, capsys):
    def printed(**kwargs):
        path.unlink(missing_ok=True)
        download.fetch(server.url, path, **kwargs)
        return capsys.readouterr().out

    text = printed()
    assert f"Downloading {server.url}\n" in text
    assert f"{len(PAYLOAD)}/{len(PAYLOAD)}" in text and text.endswith("\n")
    server.chunked = True
    assert printed().endswith("\n")
    assert printed(progress=False) == ""
    assert keras.config.is_interactive_logging_enabled()
    keras.config.disable_interactive_logging()
    try:
        assert printed() == ""
    finally:
        keras.config.enable_interactive_logging()


def test_cache_is_beside_that_of_keras(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    assert download.cache_dir() == str(tmp_path / "home" / "keras_vit")
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.cache_dir() == str(tmp_path / ".keras" / "keras_vit")
    monkeypatch.setenv("KERAS_HOME", "")
    assert download.cache_dir() == os.path.join("/tmp", ".keras", "keras_vit")


class TestCheck:
    """What is kept can be opened as what it should be."""

    @staticmethod
    def check(path):
        with open(path, "rb") as file:
            if file.read() != PAYLOAD:
                raise ValueError(f"{path!r} is no such file.")

    def fetch(self, server, path):
        return fetch(server, path, check=self.check)

    @pytest.fixture(autouse=True)
    def anew(self, monkeypatch):
        monkeypatch.setattr(resume, "_verified", {})

    def test_the_page_of_a_proxy_is_deleted(self, server, path):
        server.payload, server.hashes = b"<html>Log in</html>", []
        match = "is not the file expected.*weights.npz.*Nothing was kept.*login"
        with refused(path, match):
            self.fetch(server, path)
        server.payload = PAYLOAD
        self.fetch(server, path)
        assert_complete(path)

    def test_a_damaged_file_is_fetched_again(self, server, path):
        self.fetch(server, path)
        content = bytearray(PAYLOAD)
        content[HALF] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        self.fetch(server, path)
        assert_complete(path)
        assert len(server.seen) == 2

    def test_files_of_an_older_version_are_downloaded_again(self, server, path):
        # Its record is of the page, without a check.
        server.payload, server.hashes = b"<html>Log in</html>", []
        fetch(server, path)
        server.payload = PAYLOAD
        self.fetch(server, path)
        assert_complete(path)

    def test_a_file_placed_by_hand_is_checked_and_recorded(
        self, server, path, monkeypatch
    ):
        path.parent.mkdir()
        path.write_bytes(PAYLOAD)
        monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
        self.fetch(server, path)
        download.verify(path)
        path.write_bytes(PAYLOAD[:-1] + b"?")
        with pytest.raises(ValueError, match="sha256.*OFFLINE forbids"):
            self.fetch(server, path)

    def test_a_file_is_read_once_while_it_does_not_change(
        self, server, path, monkeypatch
    ):
        self.fetch(server, path)
        read = []
        digests = cache.digests
        monkeypatch.setattr(
            cache,
            "digests",
            lambda path: read.append(path) or digests(path),
        )
        self.fetch(server, path)
        assert read == []
        resume._verified.clear()  # another process
        self.fetch(server, path)
        self.fetch(server, path)
        os.utime(path, ns=(1, 1))
        self.fetch(server, path)
        assert read == [str(path)] * 2
        assert len(server.seen) == 1


@pytest.mark.parametrize(
    "entry", ["md5=", "md5=?", "md5=AAAA", "crc32c=AAAAAAAAAAA="]
)
def test_an_invalid_hash_is_refused_with_the_url(server, path, entry):
    server.hashes = [entry]
    with refused(path, f"{server.url}.*must send its x-goog-hash"):
        fetch(server, path)


def test_a_token_of_the_url_is_not_recorded(server, path, capsys):
    url = f"{server.url}?token=secret"
    server.statuses = iter([404])
    with refused(path, r"weights\.npz', which answers: HTTP 404"):
        download.fetch(url, path)
    download.fetch(url, path)
    assert_complete(path)
    assert "secret" not in pathlib.Path(f"{path}.json").read_text()
    assert "weights.npz\n" in capsys.readouterr().out


def test_a_redirection_to_an_unencrypted_server_is_refused(
    server, path, monkeypatch
):
    def redirected(request, timeout):
        return urlopen(server.url, timeout=timeout)

    urlopen = urllib.request.urlopen
    monkeypatch.setattr(urllib.request, "urlopen", redirected)
    with refused(path, "an unencrypted server.*leads to http://127"):
        download.fetch("https://host/weights.npz", path)
