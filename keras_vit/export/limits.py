"""Limits on the cost of decoding images, estimated from their bytes first.

A file of some kilobytes can claim billions of pixels, or thousands of passes
over millions of them. TensorFlow's decoders allocate and compute what the file
claims.
"""

from keras_vit.data import formats, orientation
from keras_vit.data.optional_imports import tensorflow

# Why an image is not valid, by code; "" if it is.
REASONS = (
    "",
    "undecodable",
    "too large",
    "over the request's budget",
    "not finite",
)
VALID, UNDECODABLE, TOO_LARGE, OVER_BUDGET, NOT_FINITE = range(len(REASONS))

# A decoded image and the memory of its decoder stay below 500 MB.
MAX_PIXELS = 50_000_000
# A progressive JPEG has about ten scans; each is a pass over all pixels.
MAX_SCANS = 100
_MAX_SCANNED_PIXELS = 2**30
# libpng decompresses each compressed text of a PNG to up to 8 MB, in memory.
_MAX_TEXTS = 8

# Seconds of one core for the images of a request; see `claim`.
DECODING_BUDGET = 3.3
# These are not counted: a photograph has more bytes than it costs, and an image
# of 131,072 pixels is small.
_SECONDS_A_BYTE = 256e-9
_SECONDS_AN_IMAGE = 0.5e-3
# Costs below are in this unit. They are the longest measured times of content
# that compresses well, on a core that decodes a baseline JPEG in 1.3 ns a
# pixel.
_SECONDS_A_PIXEL = 4e-9
_TURNED = 3  # pixels that cost as much as turning one by its EXIF orientation


def claim(encoded):
    """Estimates what decoding an image costs, from its bytes.

    Args:
        encoded: Scalar string tensor, the bytes of a file.

    Returns:
        Its number of pixels, by which `MAX_PIXELS` limits memory, and the
        seconds that one core needs at most: both scalar float32 tensors.

    Raises:
        InvalidArgumentError: (of TensorFlow) If the bytes are not those of a
            JPEG, PNG, GIF, BMP or WebP that can be read.
    """
    return tensorflow().cond(
        formats.is_jpeg(encoded),
        lambda: claim_of_jpeg(encoded, orientation.of_jpeg(encoded) != 1),
        lambda: _claim_of_other(encoded),
    )


def reasons(pixels, seconds, lengths, budget: float):
    """Returns which images of a request are too expensive to decode.

    Args:
        pixels: Of each image, as from `claim`, float32 `[N]`.
        seconds: The same.
        lengths: Bytes of each image, `[N]`.
        budget: Seconds for all images of the request, besides those that their
            bytes allow. They are spent on the cheapest images first, so that
            those that claim most are refused.

    Returns:
        Codes of `REASONS`, int32 `[N]`: `VALID` of images to decode.
    """
    tf = tensorflow()
    lengths = tf.cast(lengths, tf.float32)
    cost = seconds - _SECONDS_A_BYTE * lengths - _SECONDS_AN_IMAGE
    too_large = (pixels > MAX_PIXELS) | (cost > budget)
    cost = tf.where(too_large, 0.0, tf.maximum(cost, 0))
    order = tf.argsort(cost, stable=True)
    spent = tf.gather(tf.cumsum(tf.gather(cost, order)), tf.argsort(order))
    over = (cost > 0) & (spent > budget)
    return tf.where(too_large, TOO_LARGE, tf.where(over, OVER_BUDGET, VALID))


def claim_of_jpeg(encoded, turned):
    """Like `claim`, for bytes that begin like a JPEG.

    Args:
        encoded: Scalar string tensor.
        turned: Whether the EXIF orientation turns it, a scalar bool tensor.
    """
    tf = tensorflow()
    shape = tf.cast(tf.io.extract_jpeg_shape(encoded), tf.float32)
    height, width, components = tf.unstack(shape)
    # A block of 8 x 8 pixels takes at least one bit. The decoder paints missing
    # blocks grey.
    length = tf.cast(tf.strings.length(encoded), tf.float32)
    whole = 8 * 64 * length >= height * width
    with formats.require(whole, "The JPEG is cut short."):
        # The third byte is the high one of the length, which is 6 to 14.
        scans = _count(encoded, b"\xff\xda\0", MAX_SCANS)
    cost = tf.where(
        scans * height * width > _MAX_SCANNED_PIXELS,
        float("inf"),
        (2 + scans) / 4,
    )
    # With several scans all coefficients are in memory, two bytes each.
    memory = tf.maximum((3 + 2 * components) / 9, 1)
    return _claim(height, width, cost, turned, memory)


def _claim(height, width, cost, turned=False, memory=1.0):
    """Returns the claim of an image that costs so many passes over pixels."""
    tf = tensorflow()
    height, width = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
    cost = tf.cast(cost, tf.float32) + _TURNED * tf.cast(turned, tf.float32)
    with formats.require(height * width > 0, "The image has no pixels."):
        pixels = height * width
    return pixels * memory, pixels * cost * _SECONDS_A_PIXEL


@formats.apart
def _claim_of_other(encoded):
    tf = tensorflow()

    def webp():
        _, *size = formats.first_webp_frame(encoded)
        return _claim(*size, 2, orientation.of_webp(encoded) != 1)

    def gif():
        _, *size = formats.first_gif_frame(encoded)
        return _claim(*size, 2)

    return tf.case(
        [
            (formats.is_png(encoded), lambda: _claim_of_png(encoded)),
            (formats.is_webp(encoded), webp),
            (formats.is_gif(encoded), gif),
            (
                formats.is_bmp(encoded),
                lambda: _claim(*formats.plain_bmp(encoded)[1:], 1),
            ),
        ],
        default=lambda: _claim(0, 0, 0),
    )


def _claim_of_png(encoded):
    tf = tensorflow()
    data = formats.bytes_of(encoded)
    width, height = (
        formats.number(data, place, 4, big_endian=True) for place in (16, 20)
    )
    bits, colours, interlaced = (
        formats.number(data, place, 1) for place in (24, 25, 28)
    )
    # Of grey, colours, indices, grey with alpha and colours with alpha.
    channels = tf.gather([1, 0, 3, 1, 2, 0, 4, 0], colours % 8)
    size = tf.cast(channels, tf.float32) * tf.cast(bits, tf.float32) / 8
    cost = 0.5 + 0.9 * size + 2 * tf.cast(interlaced > 0, tf.float32)
    # zTXt and iTXt.
    texts = _count(encoded, b"TXt", _MAX_TEXTS)
    turned = orientation.of_png(encoded) != 1
    # Some texts cost little, and more than the limit are infinitely many.
    cost = tf.where(texts > _MAX_TEXTS, texts, cost)
    return _claim(height, width, cost, turned)


def _count(encoded, pattern, most):
    """Counts the occurrences of bytes; more than `most` are infinitely many."""
    tf = tensorflow()
    parts = tf.raw_ops.StringSplitV2(
        input=encoded[None], sep=pattern, maxsplit=most + 1
    )
    number = tf.cast(tf.size(parts.values) - 1, tf.float32)
    return tf.where(number > most, float("inf"), number)
