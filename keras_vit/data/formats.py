"""Headers of image files, and what TensorFlow needs to decode them right.

TensorFlow decodes every frame of a GIF to return the first, and places it
wrongly unless it fills the screen; writes beyond its buffer for some animations
of WebP (2.21); and reads palettes of BMP as grey. All functions run in a graph,
on the bytes of a file. They raise `tf.errors.InvalidArgumentError` for a
malformed file, and for a rare kind that would be read wrongly.

EXIF is read from its first segment (APP1) in a JPEG, if only APP and COM
segments precede it, from a chunk before the pixels of a PNG, and from a chunk
of a WebP. XMP and text chunks are not read.
"""

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


def number(data, position, count: int, big_endian=False):
    """Read an unsigned integer of up to 4 bytes; beyond the end are zeros.

    `data` is uint8 `[length]`, `big_endian` also a scalar bool tensor.
    """
    tf = tensorflow()
    found = tf.cast(data[position : position + count], tf.int64)
    found = tf.concat([found, tf.zeros(count, tf.int64)], 0)[:count]
    places = tf.constant([256**i for i in range(count)], tf.int64)
    return tf.reduce_sum(found * tf.where(big_endian, places[::-1], places))


def seek(position, found, following, most: int = _MAX_BLOCKS):
    """Return the position of the first block for which `found` holds.

    `following` returns the position of the next one. At most so many are tried.
    """
    tf = tensorflow()
    (position,) = tf.while_loop(
        lambda position: ~found(position),
        lambda position: (following(position),),
        (tf.cast(position, tf.int64),),
        maximum_iterations=most,
    )
    return position


def require(condition, message: str, tensor):
    """Return a tensor, which raises unless a condition holds."""
    tf = tensorflow()
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(tensor)


def png(encoded):
    """Return a PNG as it is, its height and its width."""
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)
    height, width = (number(data, at, 4, big_endian=True) for at in (20, 16))
    return encoded, height, width


def first_gif_frame(encoded):
    """Return a GIF of only the first frame, its height and its width.

    Extensions are removed too: with that of transparency TensorFlow would paint
    pixels black, while other formats just drop alpha.
    """
    tf = tensorflow()
    data = tf.io.decode_raw(encoded, tf.uint8)

    def colours(place):
        packed = number(data, place, 1)
        return tf.where(packed >= 128, 3 * 2 ** (packed % 8 + 1), 0)

    def after_equal_blocks(position):
        stride = number(data, position, 1) + 1
        sizes = data[position : position + _BLOCKS_A_STEP * stride : stride]
        other = tf.cast(sizes, tf.int64) != stride - 1
        # The first of another size, or their number.
        same = tf.argmax(tf.concat([other, [True]], 0))
        return position + same * stride

    def end_of_blocks(position):
        last = seek(
            position,
            lambda position: number(data, position, 1) == 0,
            after_equal_blocks,
            _MAX_STEPS,
        )
        return last + 1

    begin = 13 + colours(10)
    frame = seek(
        begin,
        lambda position: number(data, position, 1) != 0x21,  # an extension
        lambda position: end_of_blocks(position + 2),
    )
    # Ten bytes of description, the colours, and the size of a code.
    end = end_of_blocks(frame + 11 + colours(frame + 9))
    valid = (
        (number(data, frame, 1) == 0x2C)
        & (end <= tf.size(data, tf.int64))
        & (number(data, end - 1, 1) == 0)
        # Left and top, then width and height.
        & (number(data, frame + 1, 4) == 0)
        & (number(data, frame + 5, 4) == number(data, 6, 4))
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
    extended, lossless, lossy = (
        number(data, 12, 4) == int.from_bytes(tag, "little")
        for tag in (b"VP8X", b"VP8L", b"VP8 ")
    )
    is_still = lossless | lossy | extended & (number(data, 20, 1) & 2 == 0)
    message = "A WebP must have an image and no animation."
    # Some writers omit the last padding byte.
    padded = tf.strings.join([require(is_still, message, encoded), b"\0"])
    packed = number(data, 21, 4)
    canvas = [number(data, place, 3) + 1 for place in (27, 24)]
    of_lossless = [packed // 2**14 % 2**14 + 1, packed % 2**14 + 1]
    of_lossy = [number(data, place, 2) % 2**14 for place in (28, 26)]
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

    def equals(position, content):
        # An error of `substr` would contain the bytes, which Python cannot
        # decode.
        position = tf.minimum(tf.cast(position, tf.int64), length)
        return tf.strings.substr(encoded, position, len(content)) == content

    offset, header, width, height, packing = (
        number(data, place, 4) for place in (10, 14, 18, 22, 30)
    )
    bits = number(data, 28, 2)
    # Rows stored from the top have a negative height.
    height = tf.where(height >= 2**31, 2**32 - height, height)
    row = (width * bits + 31) // 32 * 4
    # Limited first: their product may be too large for 64 bits.
    end = offset + tf.minimum(row, length + 1) * tf.minimum(height, length + 1)
    ramp = b"".join(bytes([i, i, i, 0]) for i in range(256))
    is_grey = (bits == 8) & equals(14 + header, ramp)
    masks = b"\0\0\xff\0\0\xff\0\0\xff\0\0\0"
    is_masked = (packing == 3) & (bits == 32) & equals(54, masks)
    readable = (
        (header >= 40)
        & (is_grey | (bits == 24) | (bits == 32))
        & ((packing == 0) | is_masked)
        & (offset >= 14 + header + len(ramp) * tf.cast(bits == 8, tf.int64))
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

    def has_upright_exif():
        matches = tf.strings.regex_full_match
        is_exif = is_kind(start, "JPEG") & (marker == b"\xff\xe1")
        is_short = matches(segment, _SHORT_EXIF)
        return is_exif & is_short & ~matches(segment, _TURNED)

    is_plain = is_jfif & (marker == b"\xff\xdb")
    return tf.cond(is_plain, lambda: True, has_upright_exif)


def orientation_of_jpeg(encoded):
    """Return the orientation that EXIF states, scalar int64; 1 without EXIF."""
    tf = tensorflow()
    return tf.cond(
        is_plain_jpeg(encoded),
        lambda: tf.constant(1, tf.int64),
        lambda: orientation(encoded, "JPEG"),
    )


@apart
def orientation(encoded, kind: str):
    """Do what `orientation_of_jpeg` does, for one of `KINDS`."""
    tf = tensorflow()
    upright = tf.constant(1, tf.int64)
    if kind not in _BLOCKS:  # without EXIF
        return upright
    begin, read = _BLOCKS[kind]
    data = tf.io.decode_raw(encoded, tf.uint8)
    position = seek(
        begin,
        lambda position: read(data, position)[0] | read(data, position)[1],
        lambda position: read(data, position)[3],
    )
    is_exif, _, start, end = read(data, position)
    return tf.cond(is_exif, lambda: _of_tiff(data[start:end]), lambda: upright)


def _segment(data, position):
    marker, size, name = (
        number(data, position + at, count, big_endian=True)
        for at, count in ((0, 2), (2, 2), (4, 4))
    )
    is_comment = (marker // 16 == 0xFFE) | (marker == 0xFFFE)
    is_exif = (marker == 0xFFE1) & (name == int.from_bytes(b"Exif"))
    # Two zeros follow the name.
    return is_exif, ~is_comment, position + 10, position + 2 + size


def _png_chunk(data, position):
    size = number(data, position, 4, big_endian=True)
    name = number(data, position + 4, 4, big_endian=True)
    is_last = (name == 0) | (name == int.from_bytes(b"IDAT"))
    is_exif = name == int.from_bytes(b"eXIf")
    return is_exif, is_last, position + 8, position + 12 + size


def _webp_chunk(data, position):
    name = number(data, position, 4, big_endian=True)
    # Some writers begin with the name, as in a JPEG.
    first = number(data, position + 8, 4, big_endian=True)
    named = tensorflow().cast(first == int.from_bytes(b"Exif"), "int64")
    size = number(data, position + 4, 4)
    is_exif = name == int.from_bytes(b"EXIF")
    position += 8
    return is_exif, name == 0, position + 6 * named, position + size + size % 2


# Kind of file -> position of the first block, and a function that returns of
# each whether it is EXIF, whether EXIF cannot follow, where its content begins
# and where the next block does.
_BLOCKS = dict(JPEG=(2, _segment), PNG=(8, _png_chunk), WEBP=(12, _webp_chunk))


def _of_tiff(tiff):
    """Return the orientation of the first image of TIFF data, or 1."""
    tf = tensorflow()
    big = number(tiff, 0, 2) == int.from_bytes(b"MM")
    begin = number(tiff, 4, 4, big) + 2
    # Twelve bytes each: tag, type, count, value. No offset is followed. If the
    # data end in an entry, it does not count.
    entries = tiff[begin : begin + 12 * number(tiff, begin - 2, 2, big)]
    entries = tf.cast(entries[: tf.size(entries) // 12 * 12], tf.int64)
    entries = tf.reshape(entries, [-1, 6, 2])
    places = tf.where(big, tf.constant([256, 1], tf.int64), [1, 256])
    halves = tf.reduce_sum(entries * places, -1)
    value = halves[:, 4]
    # The tag of the orientation, and the type of two bytes.
    is_stated = (halves[:, 0] == 0x0112) & (halves[:, 1] == 3)
    is_valid = is_stated & (value >= 1) & (value <= 8)
    return tf.reduce_max(tf.concat([[1], value[is_valid]], 0))
