"""Reads image files with Pillow, where TensorFlow is not installed."""

import os

import keras
import numpy as np

from keras_vit.data.optional_imports import optional

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")


def decode(path: str | os.PathLike, channels: int = 3) -> np.ndarray:
    """Decode a file as `keras_vit.data.decode_image` does.

    The pixels are the same, but for JPEG, since TensorFlow's decoder rounds
    more (on photographs by 1 of 255 on average, by up to 15), and for colour
    that is converted to grey, by 1.

    Raises:
        ImportError: If Pillow is not installed.
        ValueError: If the file does not decode.
    """
    image = optional("PIL.Image", extra="images")
    turn = optional("PIL.ImageOps", extra="images").exif_transpose
    mode = "RGB" if channels == 3 else "L"
    try:
        with image.open(path, formats=FORMATS) as file:
            if channels == 1:
                file.draft("L", file.size)  # of JPEG, the luma as it is stored
            upright = turn(file)
            if upright.mode.startswith("I"):  # 16 bits, which `convert` clips
                upright = image.fromarray(
                    (np.asarray(upright) >> 8).astype("uint8")
                )
            pixels = np.asarray(upright.convert(mode))
    except (
        OSError,
        SyntaxError,
        ValueError,
        image.DecompressionBombError,
    ) as e:
        raise ValueError(
            f"{os.fspath(path)!r} does not decode as JPEG, PNG, GIF, BMP or "
            f"WebP: {e}"
        ) from None
    return pixels.reshape(*pixels.shape[:2], channels)


def resize(image: np.ndarray, image_size: tuple[int, int]) -> np.ndarray:
    """Resize `[H, W, C]` as `keras_vit.data.decode.resize` does."""
    if image.shape[:2] == tuple(image_size):
        return image
    resized = keras.ops.image.resize(
        image.astype("float32"), image_size, data_format="channels_last"
    )
    return keras.ops.convert_to_numpy(resized)
