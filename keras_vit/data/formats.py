"""Headers of image files, and what TensorFlow needs to decode them right.

TensorFlow decodes every frame of a GIF to return the first, and places it
wrongly unless it fills the screen; writes beyond its buffer for some animations
of WebP (2.21); and reads palettes of BMP as grey. All functions run in a graph.
They raise `tf.errors.InvalidArgumentError` for a malformed file, and for a rare
kind that would be read wrongly.

EXIF is read from its first segment (APP1) in a JPEG, if only APP and COM
segments precede it, from a chunk before the pixels of a PNG, and from a chunk
of a WebP. XMP and text chunks are not read.

`encoded` is a file, a scalar string, and `data` its bytes, uint8 `[length]`.
"""

import functools

from keras_vit.data.optional_imports import apart, tensorflow

# Kind of file -> its first bytes.
KINDS = {
    "JPEG": b"\xff\xd8\xff",
    "PNG": b"\x89PNG\r\n\x1a\n",
    "GIF": b"GIF8",
    "BMP": b"BM",
    "WEBP": b"RIFF",
}
# More blocks than any writer places before an image or EXIF.
_MAX_BLOCKS = 1000
# A directory of up to 80 entries right after the headers of EXIF and of TIFF,
# in either order of bytes; an entry that states an orientation from 2 to 8.
_SHORT_EXIF = (
    r"(?s)\C{4}Exif\x00\x00"
    r"(?:II\*\x00\x08\x00\x00\x00[\x00-\x50]\x00"
    r"|MM\x00\*\x00\x00\x00\x08\x00[\x00-\x50])\C*"
)
_TURNED = (
    r"(?s)\C*(?:\x12\x01\x03\x00\C{4}[\x02-\x08]\x00"
    r"|\x01\x12\x00\x03\C{4}\x00[\x02-\x08])\C*"
)
# Blocks of one size in a GIF, as nearly all are, are skipped many in one step.
_BLOCKS_A_STEP, _MAX_STEPS = 256, 4096


def is_kind(encoded, kind: str):
    """Return whether a file begins like one of `KINDS`."""
    start = tensorflow().strings.substr(encoded, 0, len(KINDS[kind]))
    return start == KINDS[kind]


def number(data, at, count: int, big=False):
    """Read an unsigned integer of up to 4 bytes, little-endian or `big`."""
    tf = tensorflow()
    places = tf.constant([256**i for i in range(count)], tf.int64)
    places = tf.where(big, places[::-1], places)
    return tf.reduce_sum(tf.cast(_part(data, at, count), tf.int64) * places)


def _has(data, at, content: bytes):
    """Return whether these bytes stand at a position."""
    return tensorflow().reduce_all(_part(data, at, len(content)) == [*content])


def _part(data, at, count):
    """Return `count` bytes from a position on; beyond the end are zeros."""
    tf = tensorflow()
    beyond = tf.zeros(count, tf.uint8)
    return tf.concat([data[at : at + count], beyond], 0)[:count]


def _seek(begin, found, following, most: int = _MAX_BLOCKS):
    """Go from block to the `following` until one is `found`, or so many."""
    tf = tensorflow()
    return tf.while_loop(
        lambda at: ~found(at),
        lambda at: (following(at),),
        (tf.cast(begin, tf.int64),),
        maximum_iterations=most,
    )[0]


def require(condition, message: str, tensor):
    """Return a tensor, which raises unless a condition holds."""
    tf = tensorflow()
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(tensor)


def png(encoded):
    """Return a PNG as it is, its height and its width."""
    data = tensorflow().io.decode_raw(encoded, "uint8")
    return encoded, *(number(data, at, 4, big=True) for at in (20, 16))


def first_gif_frame(encoded):
    """Return a GIF of only the first frame, its height and its width.

    Extensions are removed too: with that of transparency TensorFlow would paint
    pixels black, while other formats just drop alpha.
    """
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)

    def colours(at):
        packed = number(data, at, 1)
        return tf.where(packed >= 128, 3 * 2 ** (packed % 8 + 1), 0)

    def after_equal_blocks(at):
        stride = number(data, at, 1) + 1
        sizes = data[at : at + _BLOCKS_A_STEP * stride : stride]
        other = tf.cast(sizes, tf.int64) != stride - 1
        # The first of another size, or their number.
        return at + stride * tf.argmax(tf.concat([other, [True]], 0))

    def end_of_blocks(at):
        is_last = functools.partial(_has, data, content=b"\0")
        return 1 + _seek(at, is_last, after_equal_blocks, _MAX_STEPS)

    begin = 13 + colours(10)
    frame = _seek(
        begin,
        lambda at: ~_has(data, at, b"\x21"),  # no extension
        lambda at: end_of_blocks(at + 2),
    )
    # Ten bytes of description, the colours, and the size of a code.
    end = end_of_blocks(frame + 11 + colours(frame + 9))
    valid = (
        # A frame at left 0 and top 0, then its width and height.
        _has(data, frame, b"\x2c\0\0\0\0")
        & (number(data, frame + 5, 4) == number(data, 6, 4))
        & (end <= tf.size(data, tf.int64))
        & _has(data, end - 1, b"\0")
    )
    message = "The first frame of a GIF must fill its screen and be complete."
    encoded = require(valid, message, encoded)
    screen = tf.strings.substr(encoded, tf.zeros_like(begin), begin)
    image = tf.strings.substr(encoded, frame, end - frame)
    width, height = number(data, 6, 2), number(data, 8, 2)
    return tf.strings.join([screen, image, b";"]), height, width


def still_webp(encoded):
    """Return a WebP that is no animation, its height and its width.

    The decoder refuses a file whose image has another size than its canvas.
    """
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)
    tags = b"VP8X", b"VP8L", b"VP8 "
    extended, lossless, lossy = (_has(data, 12, tag) for tag in tags)
    is_still = lossless | lossy | extended & (number(data, 20, 1) & 2 == 0)
    message = "A WebP must have an image and no animation."
    # Some writers omit the last padding byte.
    padded = tf.strings.join([require(is_still, message, encoded), b"\0"])
    packed = number(data, 21, 4)
    canvas = [number(data, at, 3) + 1 for at in (27, 24)]
    of_lossless = [packed // 2**14 % 2**14 + 1, packed % 2**14 + 1]
    of_lossy = [number(data, at, 2) % 2**14 for at in (28, 26)]
    size = tf.where(lossless, of_lossless, of_lossy)
    return padded, *tf.unstack(tf.where(extended, canvas, size))


def plain_bmp(encoded):
    """Return a BMP up to its last pixel, its height and its width.

    Refused are palettes of colours, 1, 4 or 16 bits, run lengths and the first
    version of OS/2.
    """
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)
    length = tf.size(data, tf.int64)
    offset, header, width, height, packing = (
        number(data, at, 4) for at in (10, 14, 18, 22, 30)
    )
    bits = number(data, 28, 2)
    # Rows stored from the top have a negative height.
    height = tf.where(height >= 2**31, 2**32 - height, height)
    row = (width * bits + 31) // 32 * 4
    # Limited first: their product may be too large for 64 bits.
    end = offset + tf.minimum(row, length + 1) * tf.minimum(height, length + 1)
    # Blue, green and red; the fourth byte depends on the writer.
    palette = tf.reshape(_part(data, 14 + header, 1024), (256, 4))[:, :3]
    is_grey = (bits == 8) & tf.reduce_all(palette == [[i] for i in range(256)])
    masks = b"\0\0\xff\0\0\xff\0\0\xff\0\0\0"
    is_masked = (packing == 3) & (bits == 32) & _has(data, 54, masks)
    readable = (
        (header >= 40)
        & (is_grey | (bits == 24) | (bits == 32))
        & ((packing == 0) | is_masked)
        & (offset >= 14 + header + 1024 * tf.cast(bits == 8, tf.int64))
        & (width * height > 0)
        & (end <= length)
    )
    message = "A BMP must be complete, unpacked, and of 24 or 32 bits or grey."
    encoded = require(readable, message, encoded)
    return tf.strings.substr(encoded, tf.zeros_like(end), end), height, width


# Kind of file -> function that returns what is decoded, its height and width.
READERS = dict(PNG=png, GIF=first_gif_frame, WEBP=still_webp, BMP=plain_bmp)


def is_plain_jpeg(encoded):
    """Return whether a file is a JPEG that is quickly seen to be upright.

    Most are: the tables follow JFIF's segment, or EXIF does, whose first bytes
    state no other orientation. A search would take as long as decoding.
    """
    tf = tensorflow()
    # Padded: TensorFlow's error for a position beyond the end contains the
    # bytes, which Python cannot decode.
    start = tf.strings.join([tf.strings.substr(encoded, 0, 1000), bytes(1000)])
    is_jfif = tf.strings.substr(start, 0, 6) == b"\xff\xd8\xff\xe0\0\x10"
    segment = tf.strings.substr(start, tf.where(is_jfif, 20, 2), 980)
    marker = tf.strings.substr(segment, 0, 2)
    matches = tf.strings.regex_full_match
    is_exif = is_kind(start, "JPEG") & (marker == b"\xff\xe1")
    is_upright = matches(segment, _SHORT_EXIF) & ~matches(segment, _TURNED)
    return is_jfif & (marker == b"\xff\xdb") | is_exif & is_upright


def orientation(encoded, kind: str = "JPEG"):
    """Return what EXIF of one of `KINDS` states, 1 without: a scalar int64."""
    upright = tensorflow().constant(1, "int64")
    if kind not in _BLOCKS:
        return upright
    search = functools.partial(_search, encoded, kind)
    if kind != "JPEG":
        return search()
    return tensorflow().cond(is_plain_jpeg(encoded), lambda: upright, search)


@apart
def _search(encoded, kind):
    """Do what `orientation` does, block by block."""
    tf = tensorflow()
    begin, read = _BLOCKS[kind]
    data = tf.io.decode_raw(encoded, tf.uint8)
    at = _seek(
        begin,
        lambda at: read(data, at)[0] | read(data, at)[1],
        lambda at: read(data, at)[3],
    )
    is_exif, _, start, end = read(data, at)
    # "Exif" and two zeros come first in a JPEG, and by some writers of WebP.
    start += 6 * tf.cast(_has(data, start, b"Exif"), tf.int64)
    return _of_tiff(data[start : tf.where(is_exif, end, start)])


def _segment(data, at):
    marker, size = (number(data, at + n, 2, big=True) for n in (0, 2))
    is_exif = (marker == 0xFFE1) & _has(data, at + 4, b"Exif")
    is_comment = (marker // 16 == 0xFFE) | (marker == 0xFFFE)
    return is_exif, ~is_comment, at + 4, at + 2 + size


def _png_chunk(data, at):
    size, names = number(data, at, 4, big=True), (b"eXIf", b"IDAT", bytes(4))
    is_exif, is_pixels, is_end = (_has(data, at + 4, name) for name in names)
    return is_exif, is_pixels | is_end, at + 8, at + 12 + size


def _webp_chunk(data, at):
    size, names = number(data, at + 4, 4), (b"EXIF", bytes(4))
    is_exif, is_end = (_has(data, at, name) for name in names)
    return is_exif, is_end, at + 8, at + 8 + size + size % 2


# Kind of file -> position of the first block, and a function that returns of
# each whether it is EXIF, whether EXIF cannot follow, where its content begins
# and where the next block does.
_BLOCKS = dict(JPEG=(2, _segment), PNG=(8, _png_chunk), WEBP=(12, _webp_chunk))


def _of_tiff(tiff):
    """Return the orientation of the first image of TIFF data, or 1."""
    tf = tensorflow()
    big = _has(tiff, 0, b"MM")
    begin = number(tiff, 4, 4, big) + 2
    # Twelve bytes each: tag, type, count, value. No offset is followed. If the
    # data end in an entry, it does not count.
    entries = tiff[begin : begin + 12 * number(tiff, begin - 2, 2, big)]
    entries = tf.cast(entries[: tf.size(entries) // 12 * 12], tf.int64)
    entries = tf.reshape(entries, [-1, 6, 2])
    places = tf.where(big, tf.constant([256, 1], tf.int64), [1, 256])
    halves = tf.reduce_sum(entries * places, -1)
    tag, kind, _, _, value, _ = tf.unstack(halves, axis=1)
    # The tag of the orientation, and the type of two bytes.
    is_valid = (tag == 0x0112) & (kind == 3) & (value >= 1) & (value <= 8)
    return tf.reduce_max(tf.concat([[1], value[is_valid]], 0))


def upright(image, orientation):
    """Transpose, then flip stored pixels, as an orientation of EXIF asks."""
    return tensorflow().cond(
        orientation == 1, lambda: image, lambda: _turn(image, orientation)
    )


@apart
def _turn(image, orientation):
    tf = tensorflow()
    image = tf.transpose(image, tf.concat([swap([0, 1], orientation), [2]], 0))
    return tf.reverse(image, tf.boolean_mask([0, 1], _flips(orientation)))


def stored_window(begin, size, shape, orientation):
    """Return the begin and size of a window of the upright image as stored.

    Each is (row, column); `shape` is (height, width) of the upright image.
    """
    begin = tensorflow().where(_flips(orientation), shape - begin - size, begin)
    return swap(begin, orientation), swap(size, orientation)


def swap(pair, orientation):
    """Swap (rows, columns) if the orientation is 5 or more."""
    return tensorflow().where(orientation >= 5, pair[::-1], pair)


def _flips(orientation):
    """Return whether rows and whether columns are flipped, bool `[2]`."""
    tf = tensorflow()
    flipped = tf.constant([[3, 4, 7, 8], [2, 3, 6, 7]], orientation.dtype)
    return tf.reduce_any(flipped == orientation, 1)
