"""Limits on the cost of decoding images, estimated from their bytes first.

A file of some kilobytes can claim billions of pixels, or thousands of passes
over millions; TensorFlow's decoders allocate and compute what it claims.
"""

from keras_vit.data import decode, formats
from keras_vit.data.optional_imports import apart, tensorflow

# Why an image is not valid, by code; "" if it is.
REASONS = "", "undecodable", "too large", "over the request's budget"
REASONS += ("not finite",)
VALID, UNDECODABLE, TOO_LARGE, OVER_BUDGET, NOT_FINITE = range(len(REASONS))

# A decoded image and the memory of its decoder stay below 500 MB.
MAX_PIXELS = 50_000_000
# A progressive JPEG has about ten scans; each is a pass over all pixels.
MAX_SCANS, _MAX_SCANNED_PIXELS = 100, 2**30
# libpng decompresses each compressed text of a PNG to up to 8 MB, in memory.
_MAX_TEXTS = 8
# Seconds of one core for the images of a request.
DECODING_BUDGET = 3.3
# Not counted, since a photograph has more bytes than it costs.
_SECONDS_A_BYTE, _SECONDS_AN_IMAGE = 256e-9, 0.5e-3
# The unit of the costs below, the longest that were measured, of content that
# compresses well, on a core that decodes a baseline JPEG in 1.3 ns a pixel.
_SECONDS_A_PIXEL = 4e-9
_TURNED = 3.0  # pixels that cost as much as turning one by its EXIF orientation


def claim(encoded):
    """Estimate what decoding an image costs, from its bytes, a scalar string.

    Returns:
        Its number of pixels, by which `MAX_PIXELS` limits memory, and the
        seconds that one core needs at most: both scalar float32 tensors.

    Raises:
        InvalidArgumentError: (of TensorFlow) If no such image can be read.
    """
    return tensorflow().cond(
        formats.is_kind(encoded, "JPEG"),
        lambda: claim_of_jpeg(encoded, formats.orientation(encoded)),
        lambda: _claim_of_other(encoded),
    )


def reasons(pixels, seconds, lengths, budget: float):
    """Return the code of `REASONS` of each image of a request, int32 `[N]`.

    Args:
        pixels, seconds: What each image claims, float32 `[N]`.
        lengths: Bytes of each image, `[N]`.
        budget: Seconds for all of them, besides those that their bytes allow.
            The cheapest images come first, so that a bomb spoils no others.
    """
    tf = tensorflow()
    free = _SECONDS_A_BYTE * tf.cast(lengths, tf.float32) + _SECONDS_AN_IMAGE
    cost = seconds - free
    too_large = (pixels > MAX_PIXELS) | (cost > budget)
    cost = tf.where(too_large, 0.0, tf.maximum(cost, 0))
    order = tf.argsort(cost, stable=True)
    spent = tf.gather(tf.cumsum(tf.gather(cost, order)), tf.argsort(order))
    over = (cost > 0) & (spent > budget)
    return tf.where(too_large, TOO_LARGE, tf.where(over, OVER_BUDGET, VALID))


def claim_of_jpeg(encoded, orientation):
    """Do what `claim` does, for a JPEG of an orientation by EXIF."""
    tf = tensorflow()
    shape = tf.cast(tf.io.extract_jpeg_shape(encoded), tf.float32)
    height, width, components = tf.unstack(shape)
    # A block of 8 x 8 pixels takes at least one bit. The decoder paints missing
    # blocks grey.
    length = tf.cast(tf.strings.length(encoded), tf.float32)
    is_whole = 8 * 64 * length >= height * width
    encoded = formats.require(is_whole, "The JPEG is cut short.", encoded)
    # The third byte is the high one of the length, which is 6 to 14.
    scans = _count(encoded, b"\xff\xda\0", MAX_SCANS)
    is_bomb = scans * height * width > _MAX_SCANNED_PIXELS
    cost = tf.where(is_bomb, float("inf"), (2 + scans) / 4)
    # With several scans all coefficients are in memory, two bytes each.
    memory = tf.maximum((3 + 2 * components) / 9, 1)
    return _claim(height, width, cost, orientation, memory)


def _claim(height, width, cost, orientation=1, memory=1.0):
    """Return the claim of an image that costs so many passes over pixels."""
    tf = tensorflow()
    pixels = tf.cast(height, tf.float32) * tf.cast(width, tf.float32)
    cost = tf.cast(cost, tf.float32) + tf.where(orientation == 1, 0.0, _TURNED)
    pixels = formats.require(pixels > 0, "The image has no pixels.", pixels)
    return pixels * memory, pixels * cost * _SECONDS_A_PIXEL


@apart
def _claim_of_other(encoded):
    def of(kind, read):
        _, height, width = read(encoded)
        cost = _cost_of_png(encoded) if kind == "PNG" else 2
        return _claim(height, width, cost, formats.orientation(encoded, kind))

    return decode.of_kind(encoded, of, lambda: _claim(0, 0, 0))


def _cost_of_png(encoded):
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)
    fields = (formats.number(data, at, 1) for at in (24, 25, 28))
    bits, colours, interlaced = fields
    # Of grey, colours, indices, grey with alpha and colours with alpha.
    channels = tf.gather([1, 0, 3, 1, 2, 0, 4, 0], colours % 8)
    size = tf.cast(channels, tf.float32) * tf.cast(bits, tf.float32) / 8
    # zTXt and iTXt. Some cost little.
    texts = _count(encoded, b"TXt", _MAX_TEXTS)
    cost = 0.5 + 0.9 * size + 2 * tf.cast(interlaced > 0, tf.float32)
    return tf.where(texts > _MAX_TEXTS, texts, cost)


def _count(encoded, pattern, most):
    """Count the occurrences of bytes; more than `most` are infinitely many."""
    tf = tensorflow()
    parts = tf.strings.split(encoded, pattern, maxsplit=most + 1)
    number = tf.cast(tf.size(parts) - 1, tf.float32)
    return tf.where(number > most, float("inf"), number)
