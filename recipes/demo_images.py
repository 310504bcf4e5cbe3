"""The images that visitors of the web page upload."""

import dataclasses
import pathlib

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
    """Read an image file, if decoding it is cheap.

    Raises:
        ValueError: If the file does not decode, or states too many pixels.
    """
    tf = tensorflow()
    content = pathlib.Path(path).read_bytes()
    with tf.device("CPU"):
        encoded = tf.constant(content)
        if not any(formats.is_kind(encoded, kind) for kind in formats.KINDS):
            raise ValueError(
                f"{path!r} is not a JPEG, PNG, GIF, BMP or WebP image."
            )
        try:
            pixels, seconds = limits.claim(encoded)
        except tf.errors.OpError:
            raise ValueError(f"{path!r} {_damage(path, content)}.") from None
        if pixels > limits.MAX_PIXELS:
            raise ValueError(
                f"{path!r} is too large: it has more than "
                f"{limits.MAX_PIXELS // 10**6} million pixels."
            )
        if seconds > limits.DECODING_BUDGET:
            raise ValueError(f"{path!r} would take too long to decode.")
    pixels = decode.read_pixels(path)
    return Shown(thumbnail(pixels), pixels.shape[:2])


def _damage(path, content):
    """Return why an image cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = image.width * image.height
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return "is damaged: its size cannot be read"
    # A block of 8 x 8 pixels takes at least one bit.
    if 8 * 64 * len(content) < pixels:
        return "is cut short: most of its bytes are missing"
    return "is damaged, or of a kind that is not read"


def thumbnail(pixels: np.ndarray) -> np.ndarray:
    """Return an image with no side longer than `SHOWN`."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((SHOWN, SHOWN))
    return np.asarray(image)
