"""Decodes image files to pixels, exactly as in evaluation."""

import functools
import importlib.util
import os
import re
from collections.abc import Collection
from typing import Annotated

import numpy as np

from keras_vit._arguments import Count, checked
from keras_vit._paths import require_file, why_no_file
from keras_vit.data import formats, pillow
from keras_vit.data.optional_imports import apart, tensorflow, unconverted

# Extensions of the files that `decode_image` reads.
EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
Channels = Annotated[int, "1 or 3", lambda n: n in (1, 3)]


@checked
def decode_image(encoded, channels: Channels = 3):
    """Decode JPEG, PNG, GIF, BMP or WebP, detected by content, and rotate.

    Grey is converted to colour, or colour to grey, according to `channels`;
    alpha is dropped; 16-bit PNG is converted to 8 bits, CMYK JPEG to RGB;
    palettes of PNG and GIF are applied. Only the first frame of an animated
    GIF is decoded, and refused unless it fills the screen; so are animations
    of WebP, and BMP files with a palette of colours or compression
    (`formats.plain_bmp`). The EXIF orientation of JPEG, PNG and WebP is applied
    (see `formats`). WebP needs a TensorFlow that decodes it, such as 2.21.

    Args:
        encoded: Scalar string tensor, the bytes of a file.
        channels: 1 or 3.

    Returns:
        uint8 `[H, W, channels]`.

    Raises:
        ValueError: If `channels` is neither 1 nor 3.
    """
    tf = tensorflow()
    image = tf.cond(
        formats.is_plain_jpeg(encoded),
        lambda: stored_jpeg(encoded, channels),
        lambda: _decode_any(encoded, channels),
    )
    return tf.ensure_shape(image, (None, None, channels))


def _decode(encoded, channels):
    tf = tensorflow()
    image = tf.io.decode_image(encoded, channels, expand_animations=False)
    return tf.ensure_shape(image, (None, None, channels or None))


@apart
def _decode_any(encoded, channels):
    return tensorflow().cond(
        formats.is_kind(encoded, "JPEG"),
        lambda: _decode_jpeg(encoded, channels),
        lambda: _decode_other(encoded, channels),
    )


def _decode_jpeg(encoded, channels):
    image = stored_jpeg(encoded, channels)
    return formats.upright(image, formats.orientation(encoded))


def stored_jpeg(encoded, channels: int):
    """Decode a JPEG as it is stored, whatever its orientation."""
    return _decode(encoded, channels) if channels == 3 else _grey(encoded)


def _grey(encoded):
    return tensorflow().cond(
        cmyk_to_grey(encoded, 1),
        lambda: recolour(_decode(encoded, 3), 1),
        lambda: _decode(encoded, 1),
    )


def _decode_kind(encoded, kind, read, channels):
    # Of other kinds, the decoder converts to no number of channels; of PNG
    # to grey by the file's gamma, unlike Pillow and its own JPEG.
    if kind == "PNG":  # as it is: its header would be read for nothing
        return _decode(encoded, 3 if channels == 3 else 0)
    return _decode(read(encoded)[0], 0)


# One by one, the operations that read a header take longer than the decoder.
_decode_kind_apart = apart(_decode_kind)


def _decode_other(encoded, channels):
    def of(kind, read):
        image = _decode_kind(encoded, kind, read, channels)
        image = recolour(image, channels)
        return formats.upright(image, formats.orientation(encoded, kind))

    # Whatever it is, the decoder says why it does not decode.
    return of_kind(encoded, of, lambda: _decode(encoded, channels))


def of_kind(encoded, apply, default):
    """Return `apply(kind, reader)` of a file of `formats.READERS`."""
    cases = [
        (formats.is_kind(encoded, kind), functools.partial(apply, kind, read))
        for kind, read in formats.READERS.items()
    ]
    return tensorflow().case(cases, default=default)


def stored_pixels(encoded: bytes, channels: int, name: str) -> np.ndarray:
    """Decode a file in Python as it is stored, whatever its orientation.

    Args:
        encoded: The bytes of the file.
        channels: 1 or 3.
        name: The file's name, for the message.

    Returns:
        uint8 `[H, W, C]`, for `recolour` to convert to `channels`.

    Raises:
        ValueError: If the file does not decode.
    """
    tf = tensorflow()
    try:
        with tf.device("CPU"):
            return _stored(encoded, channels).numpy()
    except tf.errors.OpError as error:
        raise _undecodable(name, error) from None


def _stored(encoded, channels):
    # Of bytes Python finds the kind faster than operations do.
    for kind, read in formats.READERS.items():
        if encoded.startswith(formats.KINDS[kind]):
            encoded = tensorflow().constant(encoded)  # else a graph for each
            return _decode_kind_apart(encoded, kind, read, channels)
    return _decode(encoded, 3 if cmyk_to_grey(encoded, channels) else channels)


def cmyk_to_grey(encoded, channels: int):
    """Return whether this is a JPEG that the decoder cannot convert to grey."""
    tf = tensorflow()
    if channels != 1:
        return tf.constant(False)
    return tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.io.extract_jpeg_shape(encoded)[2] == 4,
        lambda: False,
    )


def recolour(image, channels: int):
    """Convert `[..., H, W, C]` to 1 or 3 channels.

    A second or fourth channel, alpha, is dropped.
    """
    tf = tensorflow()
    leading = [None] * (image.shape.rank - 1)

    def to_grey(i):
        colours = tf.cast(image[i, ..., :3], "float32")
        return tf.cast(
            tf.round(tf.image.rgb_to_grayscale(colours)), image.dtype
        )

    def from_colour():
        if channels == 3:
            return image[..., :3]
        # A row, or a frame, at a time: float32 takes four times the memory.
        return tf.map_fn(
            to_grey,
            tf.range(tf.shape(image)[0]),
            fn_output_signature=tf.TensorSpec((*leading[1:], 1), image.dtype),
        )

    found = tf.cond(
        tf.shape(image)[-1] >= 3,
        from_colour,
        lambda: tf.repeat(image[..., :1], channels, axis=-1),
    )
    return tf.ensure_shape(found, (*leading, channels))


def resize(image, image_size: tuple[int, int]):
    """Resize directly to (height, width), bilinearly, as the authors do.

    An image, or clip, that already has this static size is returned unchanged,
    also as uint8; otherwise the result is float32.
    """
    tf = tensorflow()
    if tuple(image.shape[-3:-1]) == tuple(image_size):
        return image
    return tf.image.resize(image, image_size)


def resize_padded(image, image_size: tuple[int, int]):
    """Resize to fit into (height, width), the ratio of the sides kept.

    The rest, below or at the right, is black.
    """
    tf = tensorflow()
    size = fitted(tf.shape(image)[-3:-1], image_size)
    missing = [n - m for n, m in zip(image_size, tf.unstack(size), strict=True)]
    padding = [[0, n] for n in (*missing, 0)]
    padding = [[0, 0]] * (image.shape.rank - 3) + padding
    padded = tf.pad(tf.image.resize(image, size), padding)
    shape = (*image.shape[:-3], *image_size, image.shape[-1])
    return tf.ensure_shape(padded, shape)


def fitted(size, image_size: tuple[int, int]):
    """Return the size, int32 `[2]`, of an image that `resize_padded` fits."""
    tf = tensorflow()
    size = tf.cast(size, tf.float64)
    scale = tf.reduce_min(tf.constant(image_size, tf.float64) / size)
    return tf.maximum(tf.cast(tf.round(size * scale), tf.int32), 1)


@checked
def read_image(
    path: str | os.PathLike,
    image_size: tuple[Count, Count],
    channels: Channels = 3,
) -> np.ndarray:
    """Read one image file as evaluation does.

    Without TensorFlow, with Pillow; see `keras_vit.data.pillow`.

    Args:
        path: The file.
        image_size: (height, width) in pixels.
        channels: 1 or 3.

    Returns:
        `[height, width, channels]` in [0, 255], float32.

    Raises:
        ValueError: If the file is missing or does not decode, or another
            argument is out of range.
    """
    pixels = read_pixels(path, channels)
    if not _has_tensorflow():
        resized = pillow.resize(pixels, image_size)
    else:
        with tensorflow().device("CPU"):
            resized = np.asarray(resize(pixels, image_size))
    return resized.astype("float32", copy=False)  # uint8 of that size already


@checked
def read_pixels(path: str | os.PathLike, channels: Channels = 3) -> np.ndarray:
    """Read an image file in its own size, upright: uint8 `[H, W, channels]`."""
    require_file(path)
    if not _has_tensorflow():
        return pillow.decode(path, channels)
    tf = tensorflow()
    try:
        with tf.device("CPU"):
            encoded = tf.io.read_file(os.fspath(path))
            return decode_image(encoded, channels).numpy()
    except tf.errors.OpError as error:
        raise _undecodable(path, error) from None


def _undecodable(path, error):
    return ValueError(
        f"{os.fspath(path)!r} does not decode as JPEG, PNG, GIF, BMP or WebP: "
        f"{_reason(error)}"
    )


def _has_tensorflow():
    return importlib.util.find_spec("tensorflow") is not None


@checked
@unconverted
def find_broken(
    paths: Collection[str | os.PathLike], channels: Channels = 3
) -> dict[str, str]:
    """Return the files that do not decode and why, after trying every one.

    The decoder's message by path is in the order of `paths`.
    """
    tf = tensorflow()
    reasons = {}
    for path in paths:
        reason = why_no_file(path)
        reasons[os.fspath(path)] = f"It {reason}." if reason else ""
    files = [path for path, reason in reasons.items() if not reason]
    if not files:
        return reasons

    def try_one(i, path):
        image = decode_image(tf.io.read_file(path), channels)
        # An image without pixels counts as broken.
        with tf.control_dependencies(
            [tf.debugging.assert_positive(tf.size(image))]
        ):
            return tf.identity(i)

    valid = (
        tf.data.Dataset.from_tensor_slices((np.arange(len(files)), files))
        .map(try_one, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .ignore_errors(log_warning=False)
    )
    valid = {int(i) for i in valid.as_numpy_iterator()}
    for i, path in enumerate(files):
        # `ignore_errors` drops the reason: only these files are decoded again.
        if i not in valid:
            reasons[path] = _why_broken(path, channels)
    return {path: reason for path, reason in reasons.items() if reason}


def _why_broken(path, channels):
    tf = tensorflow()
    try:
        with tf.device("CPU"):
            decode_image(tf.io.read_file(path), channels)
    except tf.errors.OpError as error:
        return _reason(error)
    return "The image has no pixels."


def _reason(error):
    """Return the message of a TensorFlow error without the names of ops."""
    # A function of the graph first reports its code, above an empty line.
    message = error.message.split("\n\n")[-1]
    return re.sub(r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:.*", "", message).strip()
