"""Whether bytes are an image, told without decoding them.

TensorFlow's decoders fail a whole batch over one broken image. What can be
seen from the outside is seen here first: the kind of file, that it is not cut
short, and how many pixels it claims to unfold to.
"""

from keras_vit.data.lazy import tensorflow

# More than any camera takes; a file of a few bytes can claim billions.
MAX_PIXELS = 2**26
# Bytes in which the end marker may be followed by others.
_TAIL = 64
_MAX_SEGMENTS = 1000


def is_sound(encoded):
    """Tells a whole JPEG, PNG, GIF or BMP from anything else.

    Args:
        encoded: Scalar string tensor, the bytes of a file.

    Returns:
        Scalar bool tensor. False where the bytes are of no known kind, end
        before the kind's end marker, or claim no pixels or more than 2^26.
        True does not promise that the data between decodes.
    """
    tf = tensorflow()
    data = tf.cast(tf.io.decode_raw(encoded, tf.uint8), tf.int64)
    length = tf.size(data)
    # Reads beyond the end see zeros.
    data = tf.concat([data, tf.zeros(64, tf.int64)], 0)

    def starts(*values):
        return tf.reduce_all(data[: len(values)] == list(values))

    def big(position, count):
        """A number of `count` bytes, the highest first."""
        number = tf.constant(0, tf.int64)
        for i in range(count):
            number = number * 256 + data[position + i]
        return number

    def little(position, count):
        number = tf.constant(0, tf.int64)
        for i in reversed(range(count)):
            number = number * 256 + data[position + i]
        return number

    def ends(*values):
        """Whether the marker is among the last bytes."""
        tail = data[tf.maximum(length - _TAIL, 0) : length]
        tail = tf.concat([tail, tf.fill([len(values)], tf.int64.max)], 0)
        size = tf.size(tail) - len(values)
        hits = [tail[i : size + i] == value for i, value in enumerate(values)]
        return tf.reduce_any(tf.reduce_all(hits, axis=0))

    def few(height, width):
        return (height > 0) & (width > 0) & (height * width <= MAX_PIXELS)

    def jpeg():
        return few(*_jpeg_size(data, length)) & ends(0xFF, 0xD9)

    def png():
        return few(big(16, 4), big(20, 4)) & ends(*b"IEND")

    def gif():
        # One byte among many proves little: it must be the last but zeros.
        last = tf.concat([[0], tf.where(data != 0)[:, 0]], 0)[-1]
        return few(little(6, 2), little(8, 2)) & (data[last] == 0x3B)

    def bmp():
        width, height = little(18, 4), little(22, 4)
        # Rows may be stored from the top, which is a negative height.
        height = tf.where(height >= 2**31, 2**32 - height, height)
        row = (width * little(28, 2) + 31) // 32 * 4
        whole = little(10, 4) + row * height <= tf.cast(length, tf.int64)
        return few(height, width) & whole

    return tf.case(
        [
            (starts(0xFF, 0xD8, 0xFF), jpeg),
            (starts(*b"\x89PNG\r\n\x1a\n"), png),
            (starts(*b"GIF87a") | starts(*b"GIF89a"), gif),
            (starts(*b"BM"), bmp),
        ],
        default=lambda: tf.constant(False),
    )


def _jpeg_size(data, length):
    """Walks the segments of a JPEG to the one that holds its size."""
    tf = tensorflow()

    def is_size(marker):
        # SOF0 to SOF15, without DHT (C4), JPG (C8) and DAC (CC).
        return (
            (marker >= 0xC0)
            & (marker <= 0xCF)
            & (marker != 0xC4)
            & (marker != 0xC8)
            & (marker != 0xCC)
        )

    def going(position):
        inside = position + 9 < length
        marker = data[tf.minimum(position + 1, length)]
        begins = data[tf.minimum(position, length)] == 0xFF
        # SOS (DA): the image itself, and no size came before.
        return inside & begins & ~is_size(marker) & (marker != 0xDA)

    def following(position):
        # Markers may be padded with further FF.
        padded = data[position + 1] == 0xFF
        size = data[position + 2] * 256 + data[position + 3]
        step = tf.where(padded, 1, 2 + tf.cast(size, tf.int32))
        return (position + step,)

    (position,) = tf.while_loop(
        going, following, (tf.constant(2),), maximum_iterations=_MAX_SEGMENTS
    )
    position = tf.minimum(position, length)
    found = (data[position] == 0xFF) & is_size(data[position + 1])
    height = data[position + 5] * 256 + data[position + 6]
    width = data[position + 7] * 256 + data[position + 8]
    nothing = tf.constant(0, tf.int64)
    return tf.where(found, height, nothing), tf.where(found, width, nothing)
