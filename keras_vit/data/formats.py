"""What TensorFlow's decoder needs to read GIF, WebP and BMP right.

It decodes every frame of a GIF to return the first, places it wrongly unless it
fills the screen, and reads palettes of BMP as grey. All functions run in a
graph, on the bytes of one file. They raise `tf.errors.InvalidArgumentError` if
a file is malformed, or of a rare kind that would be read wrongly.
"""

import functools

from keras_vit.data.optional_imports import tensorflow

# More blocks than any writer places before an image.
_MAX_BLOCKS = 1000
# The data of a GIF are blocks of up to 255 bytes, nearly all of one size. This
# many blocks of one size are skipped in one step.
_BLOCKS_A_STEP, _MAX_STEPS = 256, 4096
# Chunks of a WebP file.
_LOSSY, _LOSSLESS, _EXTENDED, _ANIMATION_FRAME = (
    int.from_bytes(tag, "little")
    for tag in (b"VP8 ", b"VP8L", b"VP8X", b"ANMF")
)


def apart(function):
    """Decorates a function of the graph, which is built when it first runs.

    The graph that reads images is built for each served request. Functions that
    only few images need would cost time for all others.
    """

    @functools.cache
    def of_graph():
        return tensorflow().function(
            function,
            reduce_retracing=True,  # for images of all sizes
            experimental_attributes={"_noinline": True},
        )

    @functools.wraps(function)
    def call(*arguments):
        return of_graph()(*arguments)

    return call


def bytes_of(encoded):
    """Returns a scalar string as uint8 `[length]`."""
    tf = tensorflow()
    return tf.io.decode_raw(encoded, tf.uint8)


def part(encoded, position, count):
    """Returns some bytes of a file; beyond its end there are none.

    Args:
        encoded: Scalar string tensor, the bytes of a file.
        position: Index of the first, at least 0.
        count: Their number; none if it is below 0.

    Returns:
        Scalar string tensor.
    """
    tf = tensorflow()
    # TensorFlow's error for a position beyond the end contains the bytes,
    # which Python cannot decode.
    length = tf.cast(tf.strings.length(encoded), tf.int64)
    position = tf.minimum(tf.cast(position, tf.int64), length)
    count = tf.maximum(tf.cast(count, tf.int64), 0)
    return tf.strings.substr(encoded, position, count)


def number(data, position, count: int, big_endian=False):
    """Reads an unsigned integer; bytes beyond the end count as zero.

    Args:
        data: uint8 `[length]`.
        position: Index of its first byte.
        count: Number of bytes, at most 4.
        big_endian: Whether the first byte is the highest: a bool, or a scalar
            bool tensor.

    Returns:
        Scalar int64 tensor.
    """
    tf = tensorflow()
    found = tf.cast(data[position : position + count], tf.int64)
    found = tf.concat([found, tf.zeros(count, tf.int64)], 0)[:count]
    places = tf.constant([256**i for i in range(count)], tf.int64)
    return tf.reduce_sum(found * tf.where(big_endian, places[::-1], places))


def is_gif(encoded):
    """Returns whether the bytes of a file begin as a GIF's."""
    return tensorflow().strings.substr(encoded, 0, 4) == b"GIF8"


def is_bmp(encoded):
    """Returns whether the bytes of a file begin as a BMP's."""
    return tensorflow().strings.substr(encoded, 0, 2) == b"BM"


def is_jpeg(encoded):
    """Returns whether the bytes of a file begin as a JPEG's."""
    return tensorflow().strings.substr(encoded, 0, 3) == b"\xff\xd8\xff"


def is_png(encoded):
    """Returns whether the bytes of a file begin as a PNG's."""
    return tensorflow().strings.substr(encoded, 0, 8) == b"\x89PNG\r\n\x1a\n"


def is_webp(encoded):
    """Returns whether the bytes of a file begin as a WebP's."""
    tf = tensorflow()
    return tf.strings.regex_full_match(
        tf.strings.substr(encoded, 0, 12), r"RIFF\C{4}WEBP"
    )


def require(condition, message: str, *values):
    """Returns a context whose operations fail unless a condition holds.

    Args:
        condition: Scalar bool tensor.
        message: What was expected.
        *values: Tensors to show after it.
    """
    tf = tensorflow()
    return tf.control_dependencies(
        [tf.debugging.Assert(condition, [message, *values])]
    )


def first_gif_frame(encoded):
    """Reduces a GIF to its first frame.

    Extensions are removed too: with that of transparency TensorFlow would paint
    pixels black, while other formats just drop alpha.

    Args:
        encoded: Scalar string tensor, the bytes of a GIF.

    Returns:
        The bytes of a GIF of one frame, its height and its width.
    """
    tf = tensorflow()
    data = bytes_of(encoded)
    length = tf.size(data, tf.int64)

    def colours(packed):
        return tf.where(packed >= 128, 3 * 2 ** (packed % 8 + 1), 0)

    def end_of_blocks(position):
        """Skips sub-blocks, up to the empty one that ends them."""

        def step(position):
            size = number(data, position, 1)
            stride = size + 1
            sizes = data[position : position + _BLOCKS_A_STEP * stride : stride]
            other = tf.ensure_shape(tf.cast(sizes, tf.int64) != size, [None])
            same = tf.cond(
                tf.reduce_any(other),
                lambda: tf.argmax(tf.cast(other, tf.int32)),
                lambda: tf.size(sizes, tf.int64),
            )
            return (position + same * stride,)

        (position,) = tf.while_loop(
            lambda position: number(data, position, 1) > 0,
            step,
            (position,),
            maximum_iterations=_MAX_STEPS,
        )
        return position + 1

    begin = 13 + colours(number(data, 10, 1))
    (frame,) = tf.while_loop(
        lambda position: number(data, position, 1) == 0x21,  # an extension
        lambda position: (end_of_blocks(position + 2),),
        (begin,),
        maximum_iterations=_MAX_BLOCKS,
    )
    # Ten bytes of description, the colours, and the size of a code.
    end = end_of_blocks(frame + 11 + colours(number(data, frame + 9, 1)))
    complete = (
        (number(data, frame, 1) == 0x2C)
        & (end <= length)
        & (number(data, end - 1, 1) == 0)
    )
    with require(complete, "The first frame of a GIF is missing or cut short."):
        end = tf.identity(end)
    # Left and top of the frame, then its width and height.
    box = part(encoded, frame + 1, 8)
    fills = box == tf.strings.join([bytes(4), part(encoded, 6, 4)])
    with require(fills, "The first frame of a GIF must fill its screen."):
        width, height = number(data, 6, 2), number(data, 8, 2)
    parts = [
        tf.strings.substr(encoded, tf.zeros_like(begin), begin),
        tf.strings.substr(encoded, frame, end - frame),
        b";",
    ]
    return tf.strings.join(parts), height, width


def first_webp_frame(encoded):
    """Extracts the image, or the first frame of an animation, of a WebP file.

    TensorFlow 2.21 writes beyond its buffer when it decodes some animations.
    The result is never an animation.

    Args:
        encoded: Scalar string tensor, the bytes of a WebP file.

    Returns:
        The bytes of a WebP file with only this frame, without the transparency
        chunk of a lossy one; its height and its width.
    """
    tf = tensorflow()
    data = bytes_of(encoded)
    position, offset = _webp_image(data)
    tag = number(data, position, 4)
    size = 8 + _even(number(data, position + 4, 4))
    # A lossy frame has 14 bits a side; a lossless one 14 of each side less 1.
    packed = number(data, position + 9, 4)
    sides = tf.where(
        tag == _LOSSLESS,
        [packed % 2**14 + 1, packed // 2**14 % 2**14 + 1],
        [number(data, position + i, 2) % 2**14 for i in (14, 16)],
    )
    complete = ((tag == _LOSSLESS) | (tag == _LOSSY)) & (
        # Some writers omit the last padding byte.
        position + size <= tf.size(data, tf.int64) + size % 2
    )
    with require(complete, "The image of a WebP file is missing or cut short."):
        size = tf.identity(size)
    canvas = [number(data, 24, 3) + 1, number(data, 27, 3) + 1]
    fills = (number(data, 12, 4) != _EXTENDED) | (
        tf.reduce_all(sides == canvas) & (offset == 0)
    )
    with require(fills, "The first frame of a WebP must fill its canvas."):
        width, height = tf.unstack(sides)
    chunk = tf.strings.substr(encoded, position, size)
    header = [b"RIFF", _four_bytes(4 + size), b"WEBP"]
    return tf.strings.join([*header, chunk]), height, width


def _webp_image(data):
    """Returns where the first image of a WebP begins, and left plus top."""
    tf = tensorflow()

    def step(position, offset):
        # Chunks of a frame follow its 16 bytes of description, which begin with
        # left and top.
        inside = number(data, position, 4) == _ANIMATION_FRAME
        size = _even(number(data, position + 4, 4))
        place = number(data, position + 8, 3) + number(data, position + 11, 3)
        return (
            position + 8 + tf.where(~inside, size, 16),
            tf.where(inside, place, offset),
        )

    def going(position, offset):
        tag = number(data, position, 4)
        return (tag > 0) & (tag != _LOSSY) & (tag != _LOSSLESS)

    return tf.while_loop(
        going,
        step,
        (tf.constant(12, tf.int64), tf.constant(0, tf.int64)),
        maximum_iterations=_MAX_BLOCKS,
    )


def _even(size):
    return size + size % 2


def _four_bytes(number):
    """Returns a scalar as a little-endian string of four bytes."""
    tf = tensorflow()
    table = tf.constant([bytes([i]) for i in range(256)])
    digits = number // tf.constant([256**i for i in range(4)], tf.int64) % 256
    return tf.strings.reduce_join(tf.gather(table, digits))


def plain_bmp(encoded):
    """Reduces a BMP to what TensorFlow reads, if it reads it right.

    These have 24 or 32 bits a pixel, or 8 that are levels of grey, and are not
    compressed. All others (palettes of colours, 1, 4 or 16 bits, run lengths,
    the first version of OS/2) are refused.

    Args:
        encoded: Scalar string tensor, the bytes of a BMP.

    Returns:
        The bytes of the BMP without what follows its pixels, its height and its
        width.
    """
    tf = tensorflow()
    data = bytes_of(encoded)
    length = tf.size(data, tf.int64)
    offset, header, width, height, bits, packing = (
        number(data, place, count)
        for place, count in (
            (10, 4),
            (14, 4),
            (18, 4),
            (22, 4),
            (28, 2),
            (30, 4),
        )
    )
    # Rows stored from the top have a negative height.
    height = tf.where(height >= 2**31, 2**32 - height, height)
    row = (width * bits + 31) // 32 * 4
    ramp = b"".join(bytes([i, i, i, 0]) for i in range(256))
    masks = b"\0\0\xff\0\0\xff\0\0\xff\0\0\0"
    is_grey = (bits == 8) & (part(encoded, 14 + header, 1024) == ramp)
    is_colour = (bits == 24) | (bits == 32)
    is_masked = (packing == 3) & (bits == 32) & (part(encoded, 54, 12) == masks)
    before = 14 + header + 1024 * tf.cast(bits == 8, tf.int64)
    readable = (
        (header >= 40)
        & (is_grey | is_colour)
        & ((packing == 0) | is_masked)
        & (offset >= before)
        & (width > 0)
        & (height > 0)
        # Separately first: their product may be too large for 64 bits.
        & (row <= length)
        & (height <= length)
        & (offset + row * height <= length)
    )
    message = (
        "A BMP must be complete, uncompressed, and of 24 or 32 bits a pixel, "
        "or of 256 levels of grey."
    )
    with require(readable, message):
        pixels = part(encoded, 0, offset + row * height)
    return pixels, height, width
