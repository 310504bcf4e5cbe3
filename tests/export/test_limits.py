"""Files that cost more to decode than their bytes suggest."""

import io
import pathlib
import struct
import time
import zlib

import numpy as np
import pytest

from keras_vit.export import decoding, limits

tf = pytest.importorskip("tensorflow")
pillow = pytest.importorskip("PIL.Image")
# Keras has no part in it.
pytestmark = pytest.mark.backend("tensorflow")

SIDE = 7000  # of an image of 49 million pixels


def encoded(image, kind, **arguments):
    file = io.BytesIO()
    image.save(file, kind, **arguments)
    return file.getvalue()


def chunk(name, content):
    check = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + check


def zeros(number):
    """Deflated zero bytes."""
    packer, block = zlib.compressobj(9), bytes(2**20)
    whole, rest = divmod(number, 2**20)
    parts = [packer.compress(block) for _ in range(whole)]
    return b"".join([*parts, packer.compress(block[:rest]), packer.flush()])


def png(side, before=b"", after=b""):
    """A black PNG of one bit a pixel."""
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + before
        + chunk(b"IDAT", zeros((1 + (side + 7) // 8) * side))
        + after
        + chunk(b"IEND", b"")
    )


def texts(number, name=b"zTXt", start=b"k\0\0"):
    return chunk(name, start + zeros(8_000_000)) * number


def gif(frames, side):
    """A GIF of equal frames."""
    one = encoded(pillow.new("P", (side, side), 1), "GIF")
    begin = one.index(b"\x2c\0\0\0\0")
    return one[:begin] + one[begin:-1] * frames + b";"


def progressive(side, scans, mode="RGB"):
    """A progressive JPEG that repeats its last scan."""
    jpeg = encoded(pillow.new(mode, (side, side)), "JPEG", progressive=True)
    last = jpeg.rindex(b"\xff\xda")
    more = scans - jpeg.count(b"\xff\xda")
    return jpeg[:-2] + jpeg[last:-2] * more + jpeg[-2:]


def jpeg_of(side, kind=b"\xff\xc0"):
    """A JPEG that claims more than it holds."""
    jpeg = encoded(pillow.new("RGB", (16, 16)), "JPEG")
    size = jpeg.index(b"\xff\xc0")
    sides = struct.pack(">HH", side, side)
    return (
        jpeg[:size]
        + kind
        + jpeg[size + 2 : size + 5]
        + sides
        + (jpeg[size + 9 :])
    )


def sized(content, place, *sides, form="<ii"):
    sides = struct.pack(form[: 1 + len(sides)], *sides)
    return content[:place] + sides + content[place + len(sides) :]


def large_gif(frames):
    """A GIF that claims 64 million pixels."""
    content = gif(frames, 9)
    sides = content.index(b"\x2c\0\0\0\0") + 5
    for place in (6, sides):
        content = sized(content, place, 8000, 8000, form="<HH")
    return content


def exif(tiff):
    return b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff


def requests():
    """Name -> images of a request below 1 MB, none of which is valid."""
    bmp = encoded(pillow.new("1", (2800, 2800)), "BMP")
    small = encoded(pillow.new("RGB", (20, 20)), "BMP")
    webp = encoded(pillow.new("RGB", (9, 9)), "WEBP", lossless=True)
    jpeg = encoded(pillow.new("RGB", (9, 9)), "JPEG")
    frame = gif(1, 9).index(b"\x2c\0\0\0\0") + 5
    screen = b"GIF89a\x01\0\x01\0\0\0\0"
    start = screen + b"\x2c\0\0\0\0\x01\0\x01\0\0\x02"
    loop = b"II*\0\x08\0\0\0\xff\xff" + b"\x12\1\3\0\1\0\0\0\7\0\0\0" * 5000
    found = {
        "empty strings": [b""] * 1000,
        "letters": [b"x"] * 1000,
        "jpeg starts": [b"\xff\xd8\xff"] * 1000,
        "png starts": [b"\x89PNG\r\n\x1a\n"] * 1000,
        "progressive jpeg of 3000 scans": [progressive(1500, 3000)],
        "progressive jpeg of 101 scans": [progressive(64, 101)],
        "progressive jpeg of 50 large scans": [progressive(SIDE, 50)],
        "jpeg of 4 billion pixels": [jpeg_of(65535)],
        "jpeg of 64 million pixels": [jpeg_of(8000)],
        "jpeg of 49 million pixels": [jpeg_of(SIDE)],
        "arithmetic jpeg": [jpeg_of(SIDE, b"\xff\xc9")],
        "lossless jpeg": [jpeg_of(SIDE, b"\xff\xc3")],
        "jpegs of 49 million pixels": [jpeg_of(SIDE)] * 1000,
        "cut jpegs": [jpeg_of(SIDE)[:-2]] * 1000,
        "jpeg of segments": [b"\xff\xd8" + b"\xff\xfe\0\2" * 240_000],
        "jpeg of exif": [b"\xff\xd8" + exif(loop) * 15],
        "cut jpeg": [jpeg[:-20]],
        "png of 4 billion pixels": [sized(png(9), 16, 256, 256)],
        "png of 2^62 pixels": [sized(png(9), 16, 2**31 - 1, 2**31 - 1)],
        "png of 64 million pixels": [png(8000)],
        "png with a wrong checksum": [png(9)[:-14] + b"\0" + png(9)[-13:]],
        "png of texts": [png(9, texts(100))],
        "png of texts behind": [png(9, b"", texts(100))],
        "png of international texts": [
            png(9, texts(100, b"iTXt", b"k\0\1\0\0\0"))
        ],
        "png of chunks": [png(9, chunk(b"abCd", b"") * 70_000)[:-12]],
        "cut png": [png(SIDE)[:-20]],
        "cut pngs": [png(SIDE)[:-20]] * 150,
        "gif of a frame of 4 billion pixels": [sized(gif(1, 9), frame, -1)],
        "gif of a screen of 4 billion pixels": [sized(gif(1, 9), 6, -1)],
        "gif of 64 million pixels": [large_gif(1)],
        "gif of 20 times 64 million pixels": [large_gif(20)],
        "cut gif": [gif(1, 2000)[:-2]],
        "gif of extensions": [screen + b"\x21\xfe\0" * 300_000],
        "gif of small blocks": [start + b"\1a" * 450_000],
        "gif of blocks of two sizes": [start + b"\1a\2aa" * 190_000 + b"\0;"],
        "webp of 268 million pixels": [sized(webp, 21, 0x0FFFFFFF, 0)],
        "webp of chunks": [webp[:12] + b"abcd\0\0\0\0" * 110_000],
        "webp without an image": [webp.replace(b"VP8L", b"abcd")],
        "cut webp": [webp[:-3]],
        "bmp of 2^62 pixels": [sized(bmp, 18, 2**31 - 1, 2**31 - 1)],
        "bmp of a long row": [sized(bmp, 18, 2**27, 2**27)],
        "bmp of negative width": [sized(bmp, 18, -9, 9)],
        "bmp of the lowest height": [sized(bmp, 18, 9, -(2**31))],
        "bmp of 15 million pixels": [sized(bmp, 18, 2800, 5600)],
        "packed bmp": [sized(bmp, 28, 8, 1)],
        "cut bmp": [small[:-1]],
        "tiff": [b"II*\0\x08\0\0\0" + bytes(1000)],
        "jpeg xl": [b"\xff\x0a" + bytes(1000)],
        "svg": [b"<svg xmlns='http://www.w3.org/2000/svg'/>"],
        "mixed": [jpeg_of(SIDE), png(8000), b"", webp[:-3]] * 15,
    }  # fmt: skip
    assert len(found) == 50
    return found


@pytest.fixture(scope="module")
def decode():
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def decode(image_bytes):
        _, indices, _, reasons = decoding.decode_valid(image_bytes, (8, 8), 3)
        return indices, reasons

    decode(tf.constant([encoded(pillow.new("RGB", (9, 9)), "JPEG")] * 2))
    return decode


def memory(key):
    """Bytes that this process holds (VmRSS), or held at most (VmHWM)."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) << 10 for x in lines if x.startswith(key))


def cost(decode, images):
    """Returns the reason of each image, CPU seconds and bytes at the peak."""
    measured = pathlib.Path("/proc/self/clear_refs")
    if not measured.exists():
        pytest.skip("this system does not give the memory of a process")
    measured.write_text("5")  # forgets the peak
    memory_before, time_before = memory("VmRSS"), time.process_time()
    indices, codes = decode(tf.constant(images))
    seconds = time.process_time() - time_before
    assert indices.numpy().tolist() == np.flatnonzero(codes == 0).tolist()
    reasons = [limits.REASONS[code] for code in codes]
    return reasons, seconds, memory("VmHWM") - memory_before


TOO_LARGE = (
    "progressive jpeg of 3000 scans",
    "progressive jpeg of 101 scans", "progressive jpeg of 50 large scans",
    "png of 4 billion pixels", "png of 2^62 pixels",
    "png of 64 million pixels", "png of texts", "png of texts behind",
    "png of international texts", "gif of 64 million pixels",
    "gif of 20 times 64 million pixels", "webp of 268 million pixels",
)  # fmt: skip


def test_50_hostile_requests_are_cheap_and_none_is_valid(decode):
    for name, images in requests().items():
        assert sum(map(len, images)) < 10**6, name
        reasons, seconds, peak = cost(decode, images)
        assert seconds < 5, (name, seconds)
        assert peak < 500e6, (name, peak)
        assert "" not in reasons, name
        if name not in ("mixed", "cut pngs"):
            assert {*reasons} == {
                "too large" if name in TOO_LARGE else "undecodable"
            }, name


@pytest.mark.parametrize(
    "images",
    [
        [gif(100, 2200)],
        [progressive(SIDE, 20)],
        [encoded(pillow.new("RGB", (SIDE, SIDE)), "WEBP", lossless=True)],
    ],
    ids=["first frame of a gif", "scans", "webp"],
)
def test_the_most_expensive_valid_images_are_affordable(decode, images):
    reasons, seconds, peak = cost(decode, images)
    assert reasons == [""]
    assert seconds < 5
    assert peak < 500e6


def test_large_images_are_decoded_one_after_the_other():
    small = encoded(pillow.new("RGB", (9, 9)), "PNG")
    for images, number in (([small], 8), ([small, png(SIDE)], 1)):
        *_, parallel = decoding._plan(tf.constant(images), 9.0)
        assert parallel == number


def claims(images):
    claims = [limits.claim(tf.constant(image)) for image in images]
    return *np.array(claims).T, np.array([len(image) for image in images])


def reasons(images, budget=limits.DECODING_BUDGET):
    codes = limits.reasons(*claims(images), budget).numpy()
    return [limits.REASONS[code] for code in codes]


def test_the_budget_is_of_all_images_of_a_request():
    """A request that took 7 seconds when each image had its own."""
    small = encoded(pillow.new("L", (300, 300)), "JPEG")
    images = [progressive(3200, 100, "L")] * 9 + [small] * 12
    found = reasons(images)
    assert found[9:] == [""] * 12
    assert found[:9] == [""] * 3 + ["over the request's budget"] * 6
    assert reasons(images, budget=20) == [""] * 21
    assert reasons(images, budget=0.5)[:9] == ["too large"] * 9


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "JPEG"])
def test_32_scanned_pages_fit_a_request(kind):
    page = pillow.new("RGB", (2480, 3508), "white")
    page.paste((20, 20, 20), (300, 300, 2000, 800))
    options = dict(progressive=True) if kind == "JPEG" else {}
    options |= dict(lossless=True, method=0) if kind == "WEBP" else {}
    content = encoded(page, kind, **options)
    assert len(content) < 100_000
    assert reasons([content] * 32) == [""] * 32


def test_the_cheapest_images_of_a_request_come_first():
    """The bombs of another client in one batch do not spoil an answer."""
    page = encoded(pillow.new("L", (2480, 3508), "white"), "PNG")
    found = reasons([png(SIDE)] * 30 + [page] * 2)
    assert found[30:] == [""] * 2
    assert "over the request's budget" in found


def test_costs_of_kinds():
    """Nanoseconds of a pixel, at least those that were measured."""
    turned = pillow.Exif()
    turned[0x112] = 6
    image, grey = pillow.new("RGB", (64, 50)), pillow.new("L", (64, 50))
    deep = sized(encoded(image, "PNG"), 24, 16, form="<b")
    for content, expected in (
        (encoded(grey, "PNG"), 5.6),
        (encoded(image, "PNG"), 12.8),
        (encoded(image.convert("1"), "PNG"), 2.45),
        (encoded(image.convert("RGBA"), "PNG"), 16.4),
        (deep, 23.6),
        (sized(encoded(grey, "PNG"), 28, 1, form="<b"), 13.6),
        (encoded(image, "PNG", exif=turned), 24.8),
        (encoded(image, "JPEG"), 3),
        (encoded(image, "JPEG", exif=turned), 15),
        (encoded(image, "JPEG", progressive=True), 12),
        (encoded(image, "WEBP"), 8),
        (encoded(image, "WEBP", exif=turned), 20),
        (encoded(image, "GIF"), 8),
        (encoded(image, "BMP"), 8),
    ):
        pixels, seconds = limits.claim(tf.constant(content))
        assert pixels == 64 * 50
        np.testing.assert_allclose(seconds / pixels, expected * 1e-9, rtol=1e-5)


def test_photographs_are_free_and_limited_by_their_memory():
    photograph = encoded(pillow.new("RGB", (8000, 6100)), "JPEG", quality=95)
    cmyk = encoded(pillow.new("CMYK", (8000, 6100)), "JPEG", quality=95)
    pixels, seconds, _ = claims([photograph, cmyk])
    np.testing.assert_allclose(pixels, [48.8e6, 48.8e6 * 11 / 9])
    codes = limits.reasons(pixels, seconds, [int(4e6)] * 2, 1e-9).numpy()
    assert codes.tolist() == [limits.VALID, limits.TOO_LARGE]
