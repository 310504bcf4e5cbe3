"""The EXIF orientation of photographs: cameras store rotated pixels.

Orientation k of EXIF, 1 to 8, means: transpose the stored pixels if k >= 5,
then flip the rows if k is 3, 4, 7 or 8 and the columns if k is 2, 3, 6 or 7.
"""

from keras_vit.data import formats
from keras_vit.data.formats import number
from keras_vit.data.optional_imports import tensorflow

# More blocks than any writer places before EXIF.
_MAX_BLOCKS = 1000
# Begin most JPEGs that no camera wrote.
_JFIF = b"\xff\xd8\xff\xe0\0\x10"
# A directory of up to 80 entries of 12 bytes right after the headers of a
# segment and of TIFF, in either order of bytes. The patterns match bytes; in
# TensorFlow they cannot contain those above 127.
_SHORT_EXIF = 20 + 12 * 80
_LONGEST_START = 20 + _SHORT_EXIF  # JFIF's segment may precede it
_SHORT_EXIF_PATTERN = (
    r"(?s)\C{4}Exif\x00\x00"
    r"(?:II\*\x00\x08\x00\x00\x00[\x00-\x50]\x00"
    r"|MM\x00\*\x00\x00\x00\x08\x00[\x00-\x50])\C*"
)
# An entry that states an orientation from 2 to 8.
_TURNED_PATTERN = (
    r"(?s)\C*(?:\x12\x01\x03\x00\C{4}[\x02-\x08]\x00"
    r"|\x01\x12\x00\x03\C{4}\x00[\x02-\x08])\C*"
)
# The marker of an EXIF segment and its first four letters.
_EXIF_SEGMENT = (0xFFE1, int.from_bytes(b"Ex"), int.from_bytes(b"if"))
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
    return if_upright_jpeg(
        encoded,
        lambda: tensorflow().constant(1, "int64"),
        lambda: _search_jpeg(encoded),
    )


def if_upright_jpeg(encoded, upright, otherwise):
    """Calls a function for JPEGs that are quickly seen to be upright.

    Nearly all JPEGs without EXIF meet a single condition, and most upright
    ones with EXIF a second one: in a graph a condition takes as long as many
    other operations.

    Args:
        encoded: Scalar string tensor, the bytes of a file.
        upright: Function without arguments.
        otherwise: Function without arguments for all other files, which may be
            upright too.

    Returns:
        What the functions return.
    """
    tf = tensorflow()
    # Padded: TensorFlow's error for a position beyond the end contains the
    # bytes, which Python cannot decode.
    start = tf.strings.substr(encoded, 0, _LONGEST_START)
    start = tf.strings.join([start, bytes(_LONGEST_START)])
    is_jfif = tf.strings.substr(start, 0, 6) == _JFIF
    # No segment other than JFIF's precedes the tables.
    is_plain = is_jfif & (tf.strings.substr(start, 20, 2) == b"\xff\xdb")
    return tf.cond(
        is_plain,
        upright,
        lambda: tf.cond(_has_upright_exif(start, is_jfif), upright, otherwise),
    )


def _has_upright_exif(start, is_jfif):
    """Returns whether EXIF begins a JPEG and cannot state another orientation.

    This is so if its first directory is short and follows its header, and no
    bytes that it may occupy look like a statement.
    """
    tf = tensorflow()
    segment = tf.strings.substr(start, tf.where(is_jfif, 20, 2), _SHORT_EXIF)
    matches = tf.strings.regex_full_match
    return (
        formats.is_jpeg(start)
        & (tf.strings.substr(segment, 0, 2) == b"\xff\xe1")
        & matches(segment, _SHORT_EXIF_PATTERN)
        & ~matches(segment, _TURNED_PATTERN)
    )


@formats.apart
def _search_jpeg(encoded):
    tf = tensorflow()

    def segment(position):
        # The marker, the size, and the first four letters.
        return _halves(encoded, position, 4, big_endian=True)

    def is_exif(found):
        return tf.reduce_all(tf.gather(found, (0, 2, 3)) == _EXIF_SEGMENT)

    def precedes(position, found):
        is_comment = (found[0] // 16 == 0xFFE) | (found[0] == 0xFFFE)
        return is_comment & ~is_exif(found)

    def following(position, found):
        position += 2 + found[1]
        return position, segment(position)

    position = tf.constant(2, tf.int64)
    position, found = tf.while_loop(
        precedes,
        following,
        (position, segment(position)),
        maximum_iterations=_MAX_BLOCKS,
    )
    # Two zeros follow the letters.
    content = formats.part(encoded, position + 10, found[1] - 8)
    return _of_content(content, is_exif(found))


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
    tiff = formats.part(encoded, content, end - content)
    return _of_content(tiff, content > 0)


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


def _of_content(tiff, is_exif):
    """Returns the orientation that EXIF states, or 1 without EXIF."""
    tf = tensorflow()
    return tf.cond(
        is_exif, lambda: _of_tiff(tiff), lambda: tf.constant(1, tf.int64)
    )


def _of_tiff(tiff):
    """Returns the orientation of the first image of TIFF data."""
    tf = tensorflow()
    big = tf.strings.substr(tiff, 0, 2) == b"MM"

    def halves(position, count):
        return tf.where(
            big,
            _halves(tiff, position, count, big_endian=True),
            _halves(tiff, position, count, big_endian=False),
        )

    places = tf.where(big, [2**16, 1], [1, 2**16])
    begin = tf.reduce_sum(halves(4, 2) * tf.cast(places, tf.int64))
    count = halves(begin, 1)[0]
    # Twelve bytes each: tag, type, count, value. No offset is followed. If the
    # data end in an entry, it does not count.
    length = tf.cast(tf.strings.length(tiff), tf.int64)
    count = tf.minimum(count, (length - begin - 2) // 12)
    entries = halves(begin + 2, 6 * tf.maximum(count, 1))
    entries = tf.reshape(entries, [-1, 6])
    value = entries[:, 4]
    stated = (
        (entries[:, 0] == _ORIENTATION)
        & (entries[:, 1] == _SHORT)
        & (value >= 1)
        & (value <= 8)
        & (count >= 1)
    )
    return tf.reduce_max(tf.where(stated, value, 1))


def _halves(data, position, count, big_endian):
    """Returns integers of two bytes; bytes beyond the end count as zero.

    Args:
        data: Scalar string tensor.
        position: Index of the first byte.
        count: Number of integers, at least 1.
        big_endian: Whether the first byte of each is the higher: a bool.

    Returns:
        int64 `[count]`.
    """
    tf = tensorflow()
    found = tf.io.decode_raw(
        formats.part(data, position, 2 * count),
        tf.uint16,
        little_endian=not big_endian,
        fixed_length=tf.cast(2 * count, tf.int32),
    )
    if isinstance(count, int):
        found = tf.ensure_shape(found, (count,))
    return tf.cast(found, tf.int64)
