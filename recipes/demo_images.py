"""The images that visitors of the web page upload."""

import dataclasses

import numpy as np

from keras_vit.data import decode, formats
from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import limits

# Largest side of a displayed image, in pixels.
SHOWN = 384


@dataclasses.dataclass(frozen=True)
class Shown:
    """An image as the page shows it.

    Attributes:
        pixels: Upright, uint8 `[H, W, 3]`, no side longer than `SHOWN`.
        size: (height, width) of the upright image in the file.
    """

    pixels: np.ndarray
    size: tuple[int, int]


def read_shown(path: str) -> Shown:
    """Reads an image file, if decoding it is cheap.

    Raises:
        ValueError: If the file does not decode, or states too many pixels.
    """
    tf = tensorflow()
    kinds = ("jpeg", "png", "gif", "bmp", "webp")
    with tf.device("CPU"):
        with open(path, "rb") as file:
            content = file.read()
        encoded = tf.constant(content)
        if not any(getattr(formats, f"is_{kind}")(encoded) for kind in kinds):
            raise ValueError(
                f"{path!r} is not a JPEG, PNG, GIF, BMP or WebP image."
            )
        try:
            limits.claimed_pixels(encoded)
        except tf.errors.OpError:
            raise ValueError(
                f"{path!r} {_why_refused(path, content)}."
            ) from None
    pixels = decode.read_pixels(path)
    return Shown(thumbnail(pixels), pixels.shape[:2])


def _why_refused(path, content):
    """Returns why `limits` does not let an image be decoded."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = image.width * image.height
    except Image.DecompressionBombError:
        pixels = None
    except (OSError, SyntaxError, ValueError):
        return "is damaged: its size cannot be read"
    if pixels is None or pixels > limits.MAX_PIXELS:
        return (
            f"is too large: it has more than {limits.MAX_PIXELS // 10**6} "
            "million pixels"
        )
    # A block of 8 x 8 pixels takes at least one bit.
    if 8 * 64 * len(content) < pixels:
        return "is cut short: most of its bytes are missing"
    if content.count(b"\xff\xda\0") > 1 or content.count(b"TXt") > 1:
        return "would take too long to decode"
    return "is damaged"


def thumbnail(pixels: np.ndarray) -> np.ndarray:
    """Returns an image with no side longer than `SHOWN`."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((SHOWN, SHOWN))
    return np.asarray(image)
