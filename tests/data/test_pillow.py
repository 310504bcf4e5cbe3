"""Images read without TensorFlow have the pixels that training reads."""

import sys

import numpy as np
import pytest

from keras_vit.data import decode, read_image

Image = pytest.importorskip("PIL.Image")


def picture():
    """A smooth picture in colour, as a photograph is."""
    rows, columns = np.mgrid[:45, :60]
    waves = [
        np.sin(rows / a + columns / b) for a, b in ((3, 9), (7, 4), (5, 5))
    ]
    return Image.fromarray((127 + 120 * np.stack(waves, -1)).astype("uint8"))


def with_alpha(image):
    image = image.copy()
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def of_16_bits():
    return Image.fromarray(np.arange(0, 65536, 32, "uint16").reshape(32, 64))


TURNED = Image.Exif()
TURNED[0x0112] = 6
# Name of the file -> the image and how it is written.
FILES = {
    "a.jpg": (picture(), {}),
    "grey.jpg": (picture().convert("L"), {}),
    "cmyk.jpg": (picture().convert("CMYK"), {}),
    "turned.jpg": (picture(), {"exif": TURNED}),
    "a.png": (picture(), {}),
    "turned.png": (picture(), {"exif": TURNED}),
    "palette.png": (picture().convert("P"), {"transparency": 3}),
    "alpha.png": (with_alpha(picture()), {}),
    "grey_alpha.png": (with_alpha(picture().convert("L")), {}),
    "bits_1.png": (picture().convert("1"), {}),
    "bits_16.png": (of_16_bits(), {}),
    "a.gif": (picture().convert("P"), {"transparency": 3}),
    "a.bmp": (picture(), {}),
    "a.webp": (with_alpha(picture()), {"exif": TURNED}),
}


@pytest.fixture
def without_tensorflow(monkeypatch):
    def hide():
        monkeypatch.setattr(decode, "_has_tensorflow", lambda: False)
        # A use of it would be an error.
        monkeypatch.setattr(decode, "tensorflow", None)

    return hide


@pytest.mark.backend_independent
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_training(
    name, channels, tmp_path, without_tensorflow
):
    image, options = FILES[name]
    image.save(tmp_path / name, **options)
    wanted = decode.read_pixels(tmp_path / name, channels).astype(int)
    without_tensorflow()
    found = decode.read_pixels(tmp_path / name, channels)
    assert found.dtype == np.uint8 and found.shape == wanted.shape
    difference = np.abs(found - wanted)
    if name.endswith(".jpg"):  # the decoders round differently
        assert difference.max() <= 15 and difference.mean() < 1.5
    else:
        assert difference.max() <= (channels == 1)


@pytest.mark.parametrize("size", [(45, 60), (16, 16), (70, 81)])
@pytest.mark.thorough("jax")
def test_they_are_resized_as_in_training(size, tmp_path, without_tensorflow):
    picture().save(tmp_path / "a.png")
    wanted = read_image(tmp_path / "a.png", size)
    without_tensorflow()
    found = read_image(tmp_path / "a.png", size)
    assert found.dtype == wanted.dtype == "float32"
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.backend_independent
def test_what_cannot_be_read_is_refused(
    tmp_path, without_tensorflow, monkeypatch
):
    without_tensorflow()
    path = tmp_path / "a.png"
    with pytest.raises(ValueError, match="a.png.*is not there"):
        decode.read_pixels(path)
    picture().save(path)
    with pytest.raises(ValueError, match="1 or 3. Received: channels=2"):
        decode.read_pixels(path, 2)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="a.png.*does not decode"):
        decode.read_pixels(path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image")
    with pytest.raises(ImportError, match=r"`PIL` is needed.*\[images\]"):
        decode.read_pixels(path)
