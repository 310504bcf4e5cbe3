"""A person's folder, with what such folders hold."""

import io
import warnings

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import formats

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend_independent
pillow = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")

RED = (255, 0, 0)


def encoded(image, kind, **arguments):
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image.save(buffer, kind, **arguments)
    return buffer.getvalue()


def files():
    """Red images of every kind, by name."""
    red = pillow.new("RGB", (12, 9), RED)
    blue = pillow.new("RGB", (12, 9), (0, 0, 255))
    wide = np.zeros((9, 12, 3), "uint16")
    wide[..., 0] = 65535
    return {
        "cmyk.jpg": encoded(
            pillow.new("CMYK", (12, 9), (0, 255, 255, 0)), "JPEG"
        ),
        "sixteen bits.png": tf.io.encode_png(wide).numpy(),
        "animated.gif": encoded(
            red, "GIF", save_all=True, append_images=[blue, blue]
        ),
        "1x1.png": encoded(pillow.new("RGB", (1, 1), RED), "PNG"),
        "20000x10.jpg": encoded(
            pillow.new("RGB", (20_000, 10), RED), "JPEG", quality=95
        ),
        "10x20000.png": encoded(pillow.new("RGB", (10, 20_000), RED), "PNG"),
        "with  two spaces & more.JPG": encoded(red, "JPEG", quality=95),
        "lossless.webp": encoded(red, "WEBP", lossless=True),
        "plain.bmp": encoded(red, "BMP"),
        "zażółć 猫 ñ [1].png": encoded(red, "PNG"),
    }


@pytest.fixture
def folder(tmp_path):
    """Two classes whose names are odd too, the same files in both."""
    for name in ("red things", "rötliche 猫"):
        (tmp_path / name).mkdir()
        for file, content in files().items():
            (tmp_path / name / file).write_bytes(content)
    return tmp_path


def sources(folder, **arguments):
    return [
        source
        for source in data.load(str(folder), eval_fraction=0.5, **arguments)
        if source.num_examples
    ]


def test_every_one_is_right_in_evaluation(folder):
    seen = []
    for source in sources(folder):
        assert source.class_names == ("red things", "rötliche 猫")
        assert not source.skipped
        batches = data.eval_batches(
            source, batch_size=10, image_size=(8, 8), resize=10
        )
        (batch,) = batches.as_numpy_iterator()
        seen += source.paths
        np.testing.assert_allclose(
            batch["images"], np.broadcast_to(RED, (10, 8, 8, 3)), atol=6
        )
    assert len(set(seen)) == 2 * len(files())


def test_every_one_is_right_in_training(folder):
    source = sources(folder)[0]
    batches = data.train_batches(source, batch_size=16, image_size=(8, 8))
    (batch,) = batches.take(1).as_numpy_iterator()
    np.testing.assert_allclose(
        batch["images"], np.broadcast_to(RED, (16, 8, 8, 3)), atol=6
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0 and no more",
        b"\x89PNG\r\n\x1a\n\xff",
        b"GIF89a\xff\xff",
        b"BM\xff\xff\xff\xff",
        b"RIFF\xff\xff\xff\xffWEBPVP8 \xff\xff",
        b"\xff",
        b"",
    ],
)
def test_a_file_that_ends_after_its_first_bytes_is_named(tmp_path, content):
    path = tmp_path / "short.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="short.jpg' does not decode"):
        data.read_image(path, (8, 8))


def read(content, channels=3):
    return data.decode_image(tf.constant(content), channels).numpy()


def photograph(mode="RGB"):
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (4, 5, 4)).astype("uint8")
    image = pillow.fromarray(coarse).resize((31, 22))
    return image if mode == "RGBA" else image.convert("RGB").convert(mode)


@pytest.mark.parametrize(
    ("mode", "width"), [("L", 1), ("L", 31), ("RGB", 7), ("RGBA", 8)]
)
def test_bmp_is_read_as_pillow_reads_it(mode, width):
    image = photograph(mode).crop((0, 0, width, 22))
    content = encoded(image, "BMP")
    np.testing.assert_array_equal(read(content), image.convert("RGB"))
    grey = np.asarray(image.convert("L"), "int32")
    assert np.abs(read(content, 1)[..., 0] - grey).max() <= (mode != "L")


def test_the_fourth_byte_of_a_grey_palette_means_nothing():
    content = bytearray(encoded(photograph("L"), "BMP"))
    for of_others in (bytes(256), bytes(range(256)), b"\xff" * 256):
        content[57 : 54 + 1024 : 4] = of_others
        expected = np.asarray(photograph("L"))
        np.testing.assert_array_equal(read(bytes(content), 1)[..., 0], expected)


def test_a_bmp_stored_from_the_top_is_read():
    content = bytearray(encoded(photograph(), "BMP"))
    content[22:26] = (-22).to_bytes(4, "little", signed=True)
    expected = np.asarray(photograph())[::-1]
    np.testing.assert_array_equal(read(bytes(content)), expected)


def changed(content, place, *values):
    return content[:place] + bytes(values) + content[place + len(values) :]


@pytest.mark.parametrize("mode", ["1", "P", "L", "RGB"])
@pytest.mark.parametrize(
    ("place", "values"),
    [
        (10, [0]),  # pixels that begin in the header, or in the palette
        (10, [54, 3]),
        (14, [12]),
        (18, [200]),
        (22, [0]),
        (28, [16]),
        (30, [1]),
        (54 + 4 * 200, [7]),  # a level that is no level of grey
        (0, b"BM"),  # nothing is changed
    ],
)
def test_a_bmp_that_tensorflow_reads_wrongly_is_refused(mode, place, values):
    content = changed(encoded(photograph(mode), "BMP"), place, *values)
    if mode == "RGB" and place in (0, 854) or mode == "L" and place == 0:
        np.testing.assert_array_equal(read(content + b"\0"), read(content))
        return
    if mode == "RGB" and values == [54, 3]:
        content = content[:-1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="A BMP must be"):
        read(content)


def test_a_bmp_whose_channels_have_another_order_is_refused():
    content = changed(encoded(photograph("RGBA"), "BMP"), 30, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="A BMP must be"):
        read(content)


@pytest.mark.parametrize(
    ("mode", "lossless"), [("L", True), ("RGBA", True), ("RGBA", False)]
)
def test_webp_is_read_as_pillow_reads_it(mode, lossless):
    image = photograph(mode)
    content = encoded(image, "WEBP", lossless=lossless, exact=True)
    expected = pillow.open(io.BytesIO(content)).convert("RGB")
    np.testing.assert_array_equal(read(content), expected)


def animated(kind, **arguments):
    image = photograph()
    arguments |= dict(save_all=True, append_images=[image.rotate(90)] * 3)
    return encoded(image, kind, **arguments)


@pytest.mark.parametrize("lossless", [True, False])
def test_an_animated_webp_is_refused(lossless):
    with pytest.raises(tf.errors.InvalidArgumentError, match="no animation"):
        read(animated("WEBP", lossless=lossless))


def test_an_image_of_another_size_than_its_canvas_is_refused():
    frame = encoded(photograph("P"), "GIF")
    box = frame.index(b"\x2c\0\0\0\0")
    still = encoded(photograph(), "WEBP", lossless=True, exif=b"II*\0")
    for content, change, message in (
        (frame, (box + 1, 1), "first frame of a GIF must fill"),
        (frame, (box + 3, 1), "first frame of a GIF must fill"),
        (frame, (6, 32), "first frame of a GIF must fill"),
        (frame, (8, 21), "first frame of a GIF must fill"),
        (still, (24, 31), "Failed to decode WebP"),
        (still, (27, 20), "Failed to decode WebP"),
    ):
        assert read(content).shape == (22, 31, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            read(changed(content, *change))


def test_a_webp_without_its_last_padding_byte_is_read():
    # Until the length of the image is odd.
    contents = [
        encoded(photograph().crop((0, 0, width, 22)), "WEBP", lossless=True)
        for width in range(20, 31)
    ]
    odd = [c for c in contents if int.from_bytes(c[16:20], "little") % 2]
    assert odd and not odd[0][-1]
    np.testing.assert_array_equal(read(odd[0][:-1]), read(odd[0]))


def test_only_the_first_frame_of_a_gif_is_decoded():
    content = encoded(photograph("P"), "GIF")
    # Behind it, a frame that no decoder takes.
    broken = content[:-1] + b"\x2c" + b"\xff" * 20
    np.testing.assert_array_equal(read(broken), read(content))


def test_the_size_of_the_blocks_of_a_gif_does_not_matter():
    content = encoded(photograph("P"), "GIF")
    begin = content.index(b"\x2c\0\0\0\0") + 11
    pixels, place = b"", begin
    while content[place]:
        pixels += content[place + 1 : place + 1 + content[place]]
        place += 1 + content[place]
    blocks = b""
    for size in [1, 1, 1, 2, 3, 2, 250] + [9] * 999:
        part, pixels = pixels[:size], pixels[size:]
        blocks += bytes([len(part)]) + part if part else b""
    found = read(content[:begin] + blocks + b"\0;")
    np.testing.assert_array_equal(found, read(content))


def test_the_gamma_of_a_png_does_not_change_its_grey():
    chunks = pytest.importorskip("PIL.PngImagePlugin").PngInfo()
    chunks.add(b"gAMA", (45455).to_bytes(4))  # 1 / 2.2, as many programs write
    content = encoded(photograph(), "PNG", pnginfo=chunks)
    grey = np.asarray(photograph("L"), "int32")[..., None]
    assert abs(read(content, channels=1) - grey).max() <= 1


def turned(orientation, kind, endian="<", **arguments):
    exif = pillow.Exif()
    exif.endian = endian
    exif[0x010E], exif[0x0112] = "a description", orientation
    return encoded(photograph(), kind, exif=exif.tobytes(), **arguments)


@pytest.mark.parametrize(
    ("orientation", "kind", "arguments"),
    [
        *((i, "JPEG", dict()) for i in range(10)),
        (6, "JPEG", dict(endian=">", progressive=True)),
        (3, "PNG", dict()),
        (5, "PNG", dict()),
        (7, "WEBP", dict(lossless=True)),
    ],
    ids=str,
)
def test_exif_orientation_is_applied(orientation, kind, arguments):
    content = turned(orientation, kind, **arguments)
    stored = read(turned(1, kind, **arguments))
    upright = ImageOps.exif_transpose(
        with_orientation(pillow.fromarray(stored), orientation)
    )
    np.testing.assert_array_equal(read(content), upright)


def with_orientation(image, orientation):
    exif = pillow.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO(encoded(image, "PNG", exif=exif))
    return pillow.open(buffer)


@pytest.mark.parametrize(
    "tiff",
    [
        b"",
        b"II*\0",
        b"II*\0\x08\0\0\0\xff\xff",
        b"MM\0*\0\0\0\x08\0\x01\x01\x12",
        b"II*\0\xff\xff\xff\xff",
        b"II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\x01\0\0\0\x06\0\0\0",
    ],
)
def test_exif_that_states_no_orientation_changes_nothing(tiff):
    content = encoded(photograph(), "JPEG")
    segment = b"\xff\xe1" + (len(tiff) + 8).to_bytes(2) + b"Exif\0\0" + tiff
    np.testing.assert_array_equal(
        read(content[:2] + segment + content[2:]), read(content)
    )


def entries(*tags):
    """A directory of TIFF, little-endian: an orientation, or other tags."""
    content = b"".join(
        tag.to_bytes(2, "little")
        + b"\x03\0\x01\0\0\0"
        + value.to_bytes(4, "little")
        for tag, value in tags
    )
    return len(tags).to_bytes(2, "little") + content


TURNED, UPRIGHT = (0x0112, 6), (0x0112, 1)
OTHERS = [(0x0100 + i % 16, i) for i in range(90)]
COMMENT = b"\xff\xfe\0\5abc"
ORIENTATION = tf.function(
    formats.orientation,
    input_signature=[tf.TensorSpec((), tf.string)],
    autograph=False,
)


@pytest.mark.parametrize("has_jfif", [True, False])
@pytest.mark.parametrize(
    ("before", "tiff", "orientation"),
    [
        (b"", b"\x08\0\0\0" + entries(TURNED), 6),
        (b"", b"\x08\0\0\0" + entries(*OTHERS[:79], TURNED), 6),
        (b"", b"\x08\0\0\0" + entries(*OTHERS, TURNED), 6),
        (b"", b"\x0c\0\0\0abcd" + entries(*OTHERS[:3], TURNED), 6),
        (b"", b"\xff\x03\0\0" + bytes(1015) + entries(TURNED), 6),
        (COMMENT, b"\x08\0\0\0" + entries(TURNED), 6),
        # Of a thumbnail, not of the image.
        (b"", b"\x08\0\0\0" + entries(UPRIGHT) + entries(TURNED), 1),
        (b"", b"\x08\0\0\0" + entries(*OTHERS) + entries(TURNED), 1),
        (COMMENT, b"\x08\0\0\0" + entries(*OTHERS[:9]), 1),
    ],
)
def test_the_orientation_is_found_wherever_exif_states_it(
    has_jfif, before, tiff, orientation
):
    content = encoded(photograph(), "JPEG")
    tiff = b"II*\0" + tiff
    segment = b"\xff\xe1" + (len(tiff) + 8).to_bytes(2) + b"Exif\0\0" + tiff
    begin = content[: 20 if has_jfif else 2]
    found = ORIENTATION(begin + before + segment + content[20:])
    assert int(found) == orientation
