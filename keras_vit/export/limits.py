"""Limits on the cost of decoding an image, checked on its bytes first.

A file of some kilobytes can claim billions of pixels, or thousands of passes
over millions of them. TensorFlow's decoders allocate and compute what the file
claims.
"""

from keras_vit.data import formats
from keras_vit.data.optional_imports import tensorflow

# A decoded image and the memory of its decoder stay below 450 MB.
MAX_PIXELS = 50_000_000
# A progressive JPEG has about ten scans; each is a pass over all pixels.
MAX_SCANS = 100
_MAX_SCANNED_PIXELS = 2**30
# libpng decompresses each compressed text of a PNG to up to 8 MB, in memory.
_MAX_TEXTS = 8
# Largest number of pixels per byte of a photograph; pixels of a small image;
# and pixels of all other images of a request together.
_PIXELS_A_BYTE = 64
_SMALL = 2**17
_MAX_SURPLUS = 2 * MAX_PIXELS


def claimed_pixels(encoded):
    """Returns the number of pixels an image claims, if decoding it is cheap.

    Args:
        encoded: Scalar string tensor, the bytes of a file.

    Returns:
        Scalar int64 tensor, at most `MAX_PIXELS`.

    Raises:
        InvalidArgumentError: (of TensorFlow) If the bytes are not those of a
            JPEG, PNG, GIF, BMP or WebP, the image has no pixels or too many,
            a JPEG has too many scans, or a PNG too many texts.
    """
    return tensorflow().cond(
        formats.is_jpeg(encoded),
        lambda: jpeg_pixels(encoded),
        lambda: _pixels(*_other_size(encoded)),
    )


def jpeg_pixels(encoded):
    """Like `claimed_pixels`, for bytes that begin like a JPEG."""
    return _pixels(*_jpeg_size(encoded))


def _pixels(height, width):
    # Each side separately first: the product may be too large for 64 bits.
    few = (height > 0) & (width > 0) & (height <= MAX_PIXELS)
    few &= (width <= MAX_PIXELS) & (height * width <= MAX_PIXELS)
    with formats.require(few, "The image has no pixels, or too many."):
        return height * width


def fitting(pixels, lengths):
    """Returns which images of a request are within its limits.

    Photographs and small images always are, whatever the other images; images
    that claim many pixels in few bytes are until their total is too large.

    Args:
        pixels: Claimed pixels, int64 `[N]`.
        lengths: Bytes of each image, int64 `[N]`.

    Returns:
        bool `[N]`.
    """
    tf = tensorflow()
    surplus = tf.maximum(pixels - _PIXELS_A_BYTE * lengths - _SMALL, 0)
    return (surplus == 0) | (tf.cumsum(surplus) <= _MAX_SURPLUS)


def _jpeg_size(encoded):
    tf = tensorflow()
    shape = tf.cast(tf.io.extract_jpeg_shape(encoded), tf.int64)
    pixels = shape[0] * shape[1]
    # A block of 8 x 8 pixels takes at least one bit. The decoder paints missing
    # blocks grey.
    length = tf.cast(tf.strings.length(encoded), tf.int64)
    # The third byte is the high one of the length, which is 6 to 14.
    scans = _count(encoded, b"\xff\xda\0", MAX_SCANS)
    cheap = (
        (8 * 64 * length >= pixels)
        & (scans <= MAX_SCANS)
        & (scans * pixels <= _MAX_SCANNED_PIXELS)
        # With several scans all coefficients are in memory, two bytes each.
        & (pixels * (3 + 2 * shape[2]) <= 9 * MAX_PIXELS)
    )
    message = "The JPEG is cut short, or has too many scans or pixels."
    with formats.require(cheap, message):
        return tf.identity(shape[0]), tf.identity(shape[1])


@formats.apart
def _other_size(encoded):
    tf = tensorflow()
    nothing = tf.zeros((), tf.int64)
    return tf.case(
        [
            (formats.is_png(encoded), lambda: _png_size(encoded)),
            (
                formats.is_webp(encoded),
                lambda: formats.first_webp_frame(encoded)[1:],
            ),
            (
                formats.is_gif(encoded),
                lambda: formats.first_gif_frame(encoded)[1:],
            ),
            (
                formats.is_bmp(encoded),
                lambda: formats.bmp_size(formats.bytes_of(encoded))[:2],
            ),
        ],
        default=lambda: (nothing, nothing),
    )


def _png_size(encoded):
    # zTXt and iTXt.
    texts = _count(encoded, b"TXt", _MAX_TEXTS)
    with formats.require(texts <= _MAX_TEXTS, "The PNG has too many texts."):
        data = formats.bytes_of(encoded)
        return (
            formats.number(data, 20, 4, big_endian=True),
            formats.number(data, 16, 4, big_endian=True),
        )


def _count(encoded, pattern, most):
    """Counts the occurrences of bytes, up to `most` + 1."""
    tf = tensorflow()
    parts = tf.raw_ops.StringSplitV2(
        input=encoded[None], sep=pattern, maxsplit=most + 1
    )
    return tf.size(parts.values, tf.int64) - 1
