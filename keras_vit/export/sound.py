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

    def has(values, after, before=None):
        """Whether bytes come one after another, between two places."""
        end = (length if before is None else before) - len(values) + 1
        there = data[after:end] == values[0]
        for i, value in enumerate(values[1:], 1):
            there &= data[after + i : end + i] == value
        return tf.reduce_any(there)

    def few(height, width):
        # Each by itself first: their product may be too large for 64 bits.
        sides = [(n > 0) & (n <= MAX_PIXELS) for n in (height, width)]
        return sides[0] & sides[1] & (height * width <= MAX_PIXELS)

    def enough(height, width, begin, pixels_a_byte):
        """Whether the data can unfold to so many pixels at all."""
        there = tf.cast(tf.maximum(length - begin, 0), tf.int64)
        return there * pixels_a_byte >= height * width

    def jpeg():
        height, width, scan = _jpeg_size_and_scan(number, length)
        scan = tf.minimum(scan, length)
        # A thumbnail before the scan has an end of its own, and photographs
        # may have anything behind theirs. A block of 8x8 has one bit at least.
        return (
            few(height, width)
            & enough(height, width, scan, 8 * 64)
            & has([0xFF, 0xD9], scan)
        )

    def png():
        size = number(16, 4, "big"), number(20, 4, "big")
        # Deflate packs 1032 bytes into one at most, and a byte has 8 pixels.
        return (
            few(*size)
            & enough(*size, 24, 8 * 1032)
            & has(list(b"IDAT"), 24)
            & has(list(b"IEND"), 24)
        )

    def gif():
        size = number(6, 2, "little"), number(8, 2, "little")
        frame, height, width = _first_frame(number, length)
        # Among the last bytes: some writers put a line's end behind it.
        tail = tf.maximum(length - 64, 0)
        return (
            few(*size)
            & few(height, width)
            & has([0x00, 0x3B], tf.maximum(tail, tf.minimum(frame, length)))
        )

    def bmp():
        width, height = number(18, 4, "little"), number(22, 4, "little")
        # Rows may be stored from the top, which is a negative height.
        height = tf.where(height >= 2**31, 2**32 - height, height)
        bits = number(28, 2, "little")
        row = (width * bits + 31) // 32 * 4
        end = number(10, 4, "little") + row * height
        # What TensorFlow decodes: whole bytes, not packed, and to the last.
        plain = (bits == 8) | (bits == 24) | (bits == 32)
        packing = number(30, 4, "little")
        plain &= (packing == 0) | (packing == 3)
        return few(height, width) & plain & (end == tf.cast(length, tf.int64))

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
        # The kinds that are decoded: baseline, extended and progressive, by
        # Huffman or arithmetic codes, of 8 bits.
        is_size = tf.zeros((), tf.bool)
        for kind in (0xC0, 0xC1, 0xC2, 0xC9, 0xCA):
            is_size |= marker == kind
        is_size &= number(position + 4, 1, "big") == 8
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


def _first_frame(number, length):
    """Walks a GIF's blocks to its first frame; 0 for what it does not find.

    TensorFlow takes the frame's size, whatever that of the screen.

    Returns:
        The place of the frame, its height and its width.
    """
    tf = tensorflow()
    nothing = tf.constant(0, tf.int64)
    packed = number(10, 1, "little")
    colours = tf.where(packed >= 0x80, 3 * 2 ** (packed % 8 + 1), nothing)

    def going(position, inside):
        block = number(tf.minimum(position, length), 1, "little")
        return (position < length) & (inside | (block == 0x21))

    def following(position, inside):
        # An extension is its label, then sub-blocks up to an empty one.
        size = tf.cast(number(position, 1, "little"), tf.int32)
        step = tf.where(inside, size + 1, 2)
        return position + step, ~inside | (size > 0)

    position, _ = tf.while_loop(
        going,
        following,
        (13 + tf.cast(colours, tf.int32), tf.constant(False)),
        maximum_iterations=_MAX_SEGMENTS,
    )
    position = tf.minimum(position, length)
    found = number(position, 1, "little") == 0x2C
    width = number(position + 5, 2, "little")
    height = number(position + 7, 2, "little")
    return position, tf.where(found, height, nothing), width
