"""The EXIF orientation of photographs: cameras store rotated pixels.

Orientation k of EXIF, 1 to 8, means: transpose the stored pixels if k >= 5,
then flip the rows if k is 3, 4, 7 or 8 and the columns if k is 2, 3, 6 or 7.
"""

from keras_vit.data import formats
from keras_vit.data.formats import number
from keras_vit.data.optional_imports import tensorflow

# More blocks than any writer places before EXIF.
_MAX_BLOCKS = 1000
_ORIENTATION, _SHORT = 0x0112, 3  # a tag and a type of TIFF


# EXIF is read from the first such segment (APP1) of a JPEG, if only APP and COM
# segments precede it; from the eXIf chunk of a PNG, if it precedes the pixels;
# and from the EXIF chunk of a WebP. Cameras and image libraries write it there.
# XMP and text chunks are not read.


def of_jpeg(encoded):
    """Reads the orientation that a JPEG's EXIF states, without decoding it.

    Args:
        encoded: Scalar string tensor, the bytes of a JPEG.

    Returns:
        Scalar int64 tensor, 1 to 8; 1, upright, without EXIF.
    """
    tf = tensorflow()

    # Padded: TensorFlow's error for a position beyond the end contains the
    # bytes, which Python cannot decode.
    start = tf.strings.join([tf.strings.substr(encoded, 0, 22), b"\0" * 22])

    def at(position, count):
        return tf.strings.substr(start, position, count)

    # Most JPEGs without EXIF: JFIF's segment, then a table.
    plain = (at(2, 4) == b"\xff\xe0\0\x10") & (at(20, 2) == b"\xff\xdb")
    return tf.cond(
        plain,
        lambda: tf.constant(1, tf.int64),
        lambda: _search_jpeg(encoded),
    )


@formats.apart
def _search_jpeg(encoded):
    return _read(encoded, 2, _jpeg_segment)


def of_png(encoded):
    """Reads the orientation that a PNG's EXIF states; see `of_jpeg`."""
    return _read(encoded, 8, _png_chunk)


def of_webp(encoded):
    """Reads the orientation that a WebP's EXIF states; see `of_jpeg`."""
    return _read(encoded, 12, _webp_chunk)


def upright(image, orientation):
    """Rotates and flips stored pixels according to their orientation.

    Args:
        image: `[H, W, C]`.
        orientation: Scalar int64 tensor, 1 to 8.

    Returns:
        `[H, W, C]`, or `[W, H, C]` if the orientation is 5 or more.
    """
    tf = tensorflow()

    turned = tf.cond(
        orientation == 1, lambda: image, lambda: _turn(image, orientation)
    )
    return tf.ensure_shape(turned, (None, None, image.shape[-1]))


@formats.apart
def _turn(image, orientation):
    tf = tensorflow()
    turned = tf.cond(
        orientation >= 5,
        lambda: tf.transpose(image, (1, 0, 2)),
        lambda: image,
    )
    return tf.reverse(turned, tf.boolean_mask([0, 1], _flips(orientation)))


def stored_window(begin, size, shape, orientation):
    """Finds a window of the upright image in the stored pixels.

    Args:
        begin: Its first (row, column) in the upright image.
        size: Its (rows, columns).
        shape: (height, width) of the upright image.
        orientation: Scalar int64 tensor, 1 to 8.

    Returns:
        `begin` and `size` in the stored pixels.
    """
    tf = tensorflow()
    begin = tf.where(_flips(orientation), shape - begin - size, begin)
    return swap(begin, orientation), swap(size, orientation)


def swap(pair, orientation):
    """Swaps (rows, columns) if the orientation is 5 or more."""
    return tensorflow().where(orientation >= 5, pair[::-1], pair)


def _flips(orientation):
    """Returns whether rows and whether columns are flipped, bool `[2]`."""
    tf = tensorflow()
    rows = (orientation == 3) | (orientation == 4) | (orientation >= 7)
    columns = (orientation // 2 == 1) | (orientation // 2 == 3)
    return tf.stack([rows, columns])


def _read(encoded, begin, block):
    """Iterates over the blocks of a file up to EXIF.

    Args:
        encoded: The bytes of the file.
        begin: Index of the first block.
        block: Function of uint8 `[length]` and a position that returns whether
            the block is EXIF, whether to stop, where its content begins and
            where the next block does.
    """
    tf = tensorflow()
    data = formats.bytes_of(encoded)

    def step(position, content, end, looking):
        is_exif, last, start, following = block(data, position)
        return (
            following,
            tf.where(is_exif, start, content),
            following,
            ~is_exif & ~last,
        )

    nothing = tf.constant(0, tf.int64)
    _, content, end, _ = tf.while_loop(
        lambda position, content, end, looking: looking,
        step,
        (tf.constant(begin, tf.int64), nothing, nothing, True),
        maximum_iterations=_MAX_BLOCKS,
    )
    return tf.cond(
        content > 0,
        lambda: _of_tiff(data[content:end]),
        lambda: tf.constant(1, tf.int64),
    )


def _jpeg_segment(data, position):
    marker = number(data, position, 2, big_endian=True)
    size = number(data, position + 2, 2, big_endian=True)
    name = number(data, position + 4, 4, big_endian=True)
    is_exif = (marker == 0xFFE1) & (name == int.from_bytes(b"Exif"))
    is_comment = (marker // 16 == 0xFFE) | (marker == 0xFFFE)
    # Two zeros follow the name.
    return is_exif, ~is_comment, position + 10, position + 2 + size


def _png_chunk(data, position):
    size = number(data, position, 4, big_endian=True)
    name = number(data, position + 4, 4, big_endian=True)
    last = (name == 0) | (name == int.from_bytes(b"IDAT"))
    is_exif = name == int.from_bytes(b"eXIf")
    return is_exif, last, position + 8, position + 12 + size


def _webp_chunk(data, position):
    tf = tensorflow()
    name = number(data, position, 4, big_endian=True)
    size = number(data, position + 4, 4)
    # Some writers begin with the name, as in a JPEG.
    named = number(data, position + 8, 4, True) == int.from_bytes(b"Exif")
    return (
        name == int.from_bytes(b"EXIF"),
        name == 0,
        position + 8 + 6 * tf.cast(named, tf.int64),
        position + 8 + size + size % 2,
    )


def _of_tiff(tiff):
    """Returns the orientation of the first image of TIFF data."""
    tf = tensorflow()
    big = number(tiff, 0, 2) == int.from_bytes(b"MM")
    begin = number(tiff, 4, 4, big)
    count = number(tiff, begin, 2, big)
    # Twelve bytes each: tag, type, count, value. No offset is followed.
    entries = tiff[begin + 2 : begin + 2 + 12 * count]
    entries = tf.cast(entries, tf.int64)[: tf.size(entries) // 12 * 12]
    entries = tf.reshape(entries, [-1, 6, 2])
    places = tf.where(big, [256, 1], [1, 256])
    halves = tf.reduce_sum(entries * tf.cast(places, tf.int64), -1)  # [N, 6]
    value = halves[:, 4]
    stated = (
        (halves[:, 0] == _ORIENTATION)
        & (halves[:, 1] == _SHORT)
        & (value >= 1)
        & (value <= 8)
    )
    return tf.reduce_max(tf.concat([[1], tf.where(stated, value, 1)], 0))
