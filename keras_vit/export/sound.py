"""Whether bytes are an image, told without decoding them.

TensorFlow's decoders fail a whole batch over one broken image. What can be
seen from the outside is seen here first: the kind of file, that it is not cut
short, and how many pixels it claims to unfold to.
"""

from keras_vit.data.lazy import tensorflow

# More than any camera takes; a file of a few bytes can claim billions.
MAX_PIXELS = 2**26
_MAX_SEGMENTS = 10_000


def is_sound(encoded):
    """Tells a whole JPEG, PNG, GIF or BMP from anything else.

    Args:
        encoded: Scalar string tensor, the bytes of a file.

    Returns:
        Scalar bool tensor. False where the bytes are of no known kind, lack
        the kind's end marker, or claim no pixels or more than 2^26. True does
        not promise that the data between decodes.
    """
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)
    length = tf.size(data)
    # Reads beyond the end see zeros.
    data = tf.concat([data, tf.zeros(64, tf.uint8)], 0)

    def starts(values):
        return tf.reduce_all(data[: len(values)] == list(values))

    def number(position, count, order):
        """A number of `count` bytes."""
        found = tf.constant(0, tf.int64)
        places = range(count) if order == "big" else reversed(range(count))
        for i in places:
            found = found * 256 + tf.cast(data[position + i], tf.int64)
        return found

    def has(values, after):
        """Whether bytes come one after another, anywhere after a place."""
        there = data[after : length - len(values) + 1] == values[0]
        for i, value in enumerate(values[1:], 1):
            there &= data[after + i : length - len(values) + 1 + i] == value
        return tf.reduce_any(there)

    def few(height, width):
        # Each by itself first: their product may be too large for 64 bits.
        sides = [(n > 0) & (n <= MAX_PIXELS) for n in (height, width)]
        return sides[0] & sides[1] & (height * width <= MAX_PIXELS)

    def jpeg():
        height, width, scan = _jpeg_size_and_scan(number, length)
        # A thumbnail before the scan has an end of its own, and photographs
        # may have anything behind theirs.
        return few(height, width) & has([0xFF, 0xD9], tf.minimum(scan, length))

    def png():
        size = number(16, 4, "big"), number(20, 4, "big")
        return few(*size) & has(list(b"IEND"), 24)

    def gif():
        size = number(6, 2, "little"), number(8, 2, "little")
        # One byte among many proves little: it must be the last but zeros.
        last = tf.concat([[0], tf.where(data != 0)[:, 0]], 0)[-1]
        return few(*size) & (data[last] == 0x3B)

    def bmp():
        width, height = number(18, 4, "little"), number(22, 4, "little")
        # Rows may be stored from the top, which is a negative height.
        height = tf.where(height >= 2**31, 2**32 - height, height)
        row = (width * number(28, 2, "little") + 31) // 32 * 4
        end = number(10, 4, "little") + row * height
        return few(height, width) & (end <= tf.cast(length, tf.int64))

    return tf.case(
        [
            (starts(b"\xff\xd8\xff"), jpeg),
            (starts(b"\x89PNG\r\n\x1a\n"), png),
            (starts(b"GIF87a") | starts(b"GIF89a"), gif),
            (starts(b"BM"), bmp),
        ],
        default=lambda: tf.constant(False),
    )


def _jpeg_size_and_scan(number, length):
    """Walks the segments of a JPEG to its scan; 0 for what it does not find.

    Returns:
        Height, width, and the place of the first scan.
    """
    tf = tensorflow()
    nothing = tf.constant(0, tf.int64)

    def marker_at(position):
        found = number(position, 2, "big")
        return tf.where(found >= 0xFF00, found - 0xFF00, nothing)

    def going(position, height, width):
        marker = marker_at(tf.minimum(position, length))
        # DA: the image itself begins.
        return (position + 9 < length) & (marker > 0) & (marker != 0xDA)

    def following(position, height, width):
        marker = marker_at(position)
        # C0 to CF are sizes, but for tables (C4, CC) and an extension (C8).
        is_size = (marker >= 0xC0) & (marker <= 0xCF)
        for other in (0xC4, 0xC8, 0xCC):
            is_size &= marker != other
        height = tf.where(is_size, number(position + 5, 2, "big"), height)
        width = tf.where(is_size, number(position + 7, 2, "big"), width)
        # Markers may be padded with further FF.
        size = tf.cast(number(position + 2, 2, "big"), tf.int32)
        step = tf.where(marker == 0xFF, 1, 2 + size)
        return position + step, height, width

    position, height, width = tf.while_loop(
        going,
        following,
        (tf.constant(2), nothing, nothing),
        maximum_iterations=_MAX_SEGMENTS,
    )
    position = tf.minimum(position, length)
    found = marker_at(position) == 0xDA
    return tf.where(found, height, nothing), width, position
