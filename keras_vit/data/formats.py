"""Parts of GIF, WebP and BMP decoding that TensorFlow's decoder lacks.

It decodes every frame of a GIF to return the first, refuses to decode WebP
files with transparency to three channels, and reads palettes of BMP as grey.
All functions run in a graph, on the bytes of one file. They raise
`tf.errors.InvalidArgumentError` if a file is malformed.
"""

import functools

from keras_vit.data.optional_imports import tensorflow

# More blocks than any writer places before an image.
_MAX_BLOCKS = 1000
# The data of a GIF are blocks of up to 255 bytes, nearly all of one size. This
# many blocks of one size are skipped in one step.
_BLOCKS_A_STEP, _MAX_STEPS = 256, 4096


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
        The bytes of a GIF of one frame, and the height and the width that its
        decoder allocates: the larger of the frame's and the screen's.
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
    width = tf.maximum(number(data, 6, 2), number(data, frame + 5, 2))
    height = tf.maximum(number(data, 8, 2), number(data, frame + 7, 2))
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
    lossy, lossless, animation_frame = (
        int.from_bytes(tag, "little") for tag in (b"VP8 ", b"VP8L", b"ANMF")
    )

    def step(position):
        # Chunks of the frame follow its 16 bytes of description.
        inside = number(data, position, 4) == animation_frame
        size = _even(number(data, position + 4, 4))
        return (position + 8 + tf.where(~inside, size, 16),)

    def going(position):
        tag = number(data, position, 4)
        return (tag > 0) & (tag != lossy) & (tag != lossless)

    (position,) = tf.while_loop(
        going,
        step,
        (tf.constant(12, tf.int64),),
        maximum_iterations=_MAX_BLOCKS,
    )
    is_lossless = number(data, position, 4) == lossless
    size = 8 + _even(number(data, position + 4, 4))
    # A lossy frame has 14 bits a side; a lossless one 14 of each side less 1.
    packed = number(data, position + 9, 4)
    width = tf.where(
        is_lossless, packed % 2**14 + 1, number(data, position + 14, 2) % 2**14
    )
    height = tf.where(
        is_lossless,
        packed // 2**14 % 2**14 + 1,
        number(data, position + 16, 2) % 2**14,
    )
    complete = (is_lossless | (number(data, position, 4) == lossy)) & (
        # Some writers omit the last padding byte.
        position + size <= tf.size(data, tf.int64) + size % 2
    )
    with require(complete, "The image of a WebP file is missing or cut short."):
        size = tf.identity(size)
    chunk = tf.strings.substr(encoded, position, size)
    header = [b"RIFF", _four_bytes(4 + size), b"WEBP"]
    return tf.strings.join([*header, chunk]), height, width


def _even(size):
    return size + size % 2


def _four_bytes(number):
    """Returns a scalar as a little-endian string of four bytes."""
    tf = tensorflow()
    table = tf.constant([bytes([i]) for i in range(256)])
    digits = number // tf.constant([256**i for i in range(4)], tf.int64) % 256
    return tf.strings.reduce_join(tf.gather(table, digits))


def bmp_size(data):
    """Returns height, width and bits a pixel of a BMP, from its header.

    Args:
        data: Its bytes, uint8 `[length]`.
    """
    tf = tensorflow()
    height = number(data, 22, 4)
    # Rows stored from the top have a negative height.
    height = tf.where(height >= 2**31, 2**32 - height, height)
    return height, number(data, 18, 4), number(data, 28, 2)


def decode_bmp(encoded):
    """Decodes a BMP of 1, 4 or 8 bits with a palette, or of 24 or 32 bits.

    Alpha is dropped. Compressed files (run lengths, JPEG, PNG), those of 16
    bits and those of the first version of OS/2 are refused.

    Args:
        encoded: Scalar string tensor, the bytes of a BMP.

    Returns:
        uint8 `[H, W, 3]`.
    """
    tf = tensorflow()
    data = bytes_of(encoded)
    offset, header = number(data, 10, 4), number(data, 14, 4)
    height, width, bits = bmp_size(data)
    row = (width * bits + 31) // 32 * 4
    palette = bits <= 8
    packing = number(data, 30, 4)
    # Compression 3 has bit masks; these are the ones for blue, green and red.
    masks = [number(data, 54 + 4 * i, 4) for i in range(3)]
    plain = (packing == 0) | (
        (packing == 3)
        & (bits == 32)
        & tf.reduce_all(tf.stack(masks) == [0xFF0000, 0xFF00, 0xFF])
    )
    complete = (
        (header >= 40)
        & plain
        & tf.reduce_any(bits == tf.constant([1, 4, 8, 24, 32], tf.int64))
        # Checked separately: their product may be too large for 64 bits.
        & (width > 0)
        & (height > 0)
        & (width < 2**28)
        & (height < 2**28)
        & (offset + row * height <= tf.size(data, tf.int64))
    )
    message = (
        "A BMP must be complete, uncompressed, and of 1, 4, 8, 24 or 32 bits "
        "per pixel."
    )
    with require(complete, message):
        rows = data[offset : offset + row * height]
    rows = tf.reshape(rows, [height, row])

    def of_palette():
        # The pixels of a byte, the highest bits first.
        shifts = tf.cast(tf.range(8 - bits, -1, -bits), tf.uint8)
        indices = tf.bitwise.right_shift(rows[..., None], shifts)
        indices &= tf.cast(2**bits - 1, tf.uint8)
        indices = tf.reshape(indices, [height, -1])[:, :width]
        begin = 14 + header
        colours = tf.reshape(data[begin : begin + 4 * 2**bits], [-1, 4])
        return tf.gather(colours, tf.cast(indices, tf.int32))

    def of_colours():
        channels = bits // 8
        return tf.reshape(
            rows[:, : width * channels], [height, width, channels]
        )

    pixels = tf.cond(palette, of_palette, of_colours)[..., 2::-1]
    pixels = tf.cond(
        number(data, 22, 4) >= 2**31, lambda: pixels, lambda: pixels[::-1]
    )
    return tf.ensure_shape(pixels, (None, None, 3))
