"""Random crops and flips for training, as pure functions of image and seed.

Functions of pixels take an image, `[H, W, C]`, or the frames of a clip,
`[T, H, W, C]`, which are cropped in the same way.
"""

from keras_vit.data import formats, orientation
from keras_vit.data.decode import cmyk_to_grey, decode_image, resize
from keras_vit.data.optional_imports import tensorflow

# The smallest share of the area of an Inception crop, as in the authors' code.
MIN_AREA = 0.05


def inception_crop(
    image,
    image_size: tuple[int, int],
    channels: int,
    seed,
    min_area: float = MIN_AREA,
):
    """Crops 5 to 100 % of the area at an aspect of 3/4 to 4/3, and resizes.

    Args:
        image: Bytes of a file (a scalar string) or pixels.
        image_size: (height, width) in pixels of the result.
        channels: Channels of the result.
        seed: Two integers.
        min_area: The smallest share of the area.

    Returns:
        float32 `[..., height, width, channels]`.

    Reference:
        Szegedy et al. 2015, as in vit_jax/input_pipeline.py.
    """
    image = decode_window(image, channels, seed, min_area)
    return tensorflow().image.resize(image, image_size)


def decode_window(image, channels: int, seed, min_area: float = MIN_AREA):
    """Cuts out the window of `inception_crop`, before any resizing.

    Only the window of a JPEG is decoded, except from CMYK to grey. The window
    refers to the upright image.

    Args:
        image: Bytes of a file (a scalar string) or pixels.
        channels: Channels of the result.
        seed: Two integers.
        min_area: The least share of the area.

    Returns:
        `[..., h, w, channels]`.
    """
    tf = tensorflow()

    def crop_pixels(pixels):
        begin, size = sample_window(tf.shape(pixels)[-3:], seed, min_area)
        return _slice(pixels, begin[:2], size[:2])

    def decode(begin, size):
        return tf.io.decode_and_crop_jpeg(
            image, tf.concat([begin, size], 0), channels=channels
        )

    def crop_upright_jpeg():
        shape = tf.io.extract_jpeg_shape(image)
        begin, size = sample_window(shape, seed, min_area)
        return decode(begin[:2], size[:2])

    def crop_jpeg():
        turn = orientation.of_jpeg(image)
        stored = tf.io.extract_jpeg_shape(image)
        shape = orientation.swap(stored[:2], turn)
        begin, size = sample_window(
            tf.concat([shape, stored[2:]], 0), seed, min_area
        )
        window = orientation.stored_window(begin[:2], size[:2], shape, turn)
        return orientation.upright(decode(*window), turn)

    @formats.apart
    def crop_file():
        return tf.cond(
            tf.io.is_jpeg(image) & ~cmyk_to_grey(image, channels),
            crop_jpeg,
            lambda: crop_pixels(decode_image(image, channels)),
        )

    if image.dtype != tf.string:
        image = crop_pixels(image)
    elif channels == 3:
        image = orientation.if_upright_jpeg(image, crop_upright_jpeg, crop_file)
    else:
        image = crop_file()
    image.set_shape((*image.shape[:-3], None, None, channels))
    return image


def sample_window(shape, seed, min_area: float = MIN_AREA):
    """Draws the window of `inception_crop`.

    Args:
        shape: (H, W, C) of the image.
        seed: Two integers.
        min_area: The least share of the area.

    Returns:
        Its first (row, column, 0) and its (rows, columns, -1).
    """
    tf = tensorflow()
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros((0, 0, 4)),
        seed,
        min_object_covered=0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(min_area, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    return begin, size


def pad_crop(image, image_size: tuple[int, int], pad: int, seed):
    """Resizes, pads with zeros on every side, and crops at random.

    Args:
        image: Pixels.
        image_size: (height, width) in pixels of the result.
        pad: Pixels added on each side.
        seed: Two integers.

    Returns:
        `[..., height, width, C]`.
    """
    tf = tensorflow()
    image = resize(image, image_size)
    leading = image.shape[:-3]
    padding = [(0, 0)] * len(leading) + [(pad, pad), (pad, pad), (0, 0)]
    return tf.image.stateless_random_crop(
        tf.pad(image, padding),
        (*leading, *image_size, image.shape[-1]),
        seed,
    )


def flip(image, seed):
    """Flips an image left to right with probability one half.

    Args:
        image: Pixels.
        seed: Two integers.
    """
    tf = tensorflow()
    if image.shape.rank == 3:
        return tf.image.stateless_random_flip_left_right(image, seed)
    # All frames or none: the clip is one tall image.
    high = tf.reshape(image, (-1, *image.shape[-2:]))
    flipped = tf.image.stateless_random_flip_left_right(high, seed)
    return tf.reshape(flipped, image.shape)


def resize_crop(image, image_size: tuple[int, int], shorter: int, seed):
    """Resizes directly, shorter side to `shorter`, and crops at random.

    The aspect ratio after resizing is that of `image_size`, whatever that of
    the image: for a square, the resized image is square.

    Args:
        image: Pixels.
        image_size: (height, width) in pixels of the result.
        shorter: Pixels of the shorter side before the crop.
        seed: Two integers.

    Returns:
        `[..., height, width, C]`.

    Reference:
        Kolesnikov et al. 2020 (BiT), section 3.3; Steiner et al. 2021, which
        fine-tunes at 384 of 448 pixels.
    """
    image = resize(image, scaled(image_size, shorter))
    return tensorflow().image.stateless_random_crop(
        image, (*image.shape[:-3], *image_size, image.shape[-1]), seed
    )


def scaled(image_size: tuple[int, int], shorter: int) -> tuple[int, int]:
    """Returns a size of the same aspect ratio.

    Args:
        image_size: (height, width) in pixels.
        shorter: Pixels of the shorter side of the result.
    """
    scale = shorter / min(image_size)
    height, width = image_size
    return round(height * scale), round(width * scale)


def central_crop(image, image_size: tuple[int, int], shorter: int):
    """Resizes in proportion, shorter side to `shorter`, and crops the centre.

    Args:
        image: Pixels.
        image_size: (height, width) in pixels of the result.
        shorter: Pixels of the shorter side before the crop, at least those of
            either side of the result.

    Returns:
        `[..., height, width, C]`.
    """
    tf = tensorflow()
    # Only the centre of a very long image is resized, since the result could be
    # thousands of times larger than the file.
    sides = tf.shape(image)[-3:-1]
    image = _cut(image, tf.minimum(sides, 4 * tf.reduce_min(sides)), 0.5)
    image = resize_shorter(image, shorter)
    return cut(image, image_size, 0.5)


def resize_shorter(image, shorter: int):
    """Resizes in proportion.

    Args:
        image: Pixels.
        shorter: Pixels of the shorter side of the result.

    Returns:
        float32 `[..., H, W, C]`.
    """
    tf = tensorflow()
    sides = tf.shape(image)[-3:-1]
    scale = shorter / tf.reduce_min(sides)
    sides = tf.cast(tf.round(tf.cast(sides, scale.dtype) * scale), "int32")
    return tf.image.resize(image, sides)


def cut(image, image_size: tuple[int, int], place: float):
    """Cuts out a window at a position along the longer side.

    Args:
        image: Pixels.
        image_size: (height, width) in pixels of the result.
        place: Position along the longer side, from 0, the start, to 1; along
            the other side the window is centred.

    Returns:
        `[..., height, width, C]`.
    """
    image = _cut(image, tensorflow().constant(image_size), place)
    image.set_shape((*image.shape[:-3], *image_size, image.shape[-1]))
    return image


def bit_hyper_rule(
    image_shape: tuple[int, ...] | None,
) -> tuple[int, int]:
    """Returns the sizes of BiT's HyperRule for fine-tuning.

    Args:
        image_shape: (height, width, ...) in pixels of the images of a data set;
            None if sizes differ, which counts as large.

    Returns:
        (resize, crop) in pixels: (160, 128) for images of less than 96 x 96
        pixels of area, else (512, 480). Use them as
        `train_batches(..., crop="resize", resize=160, image_size=(128, 128))`.

    Reference:
        Kolesnikov et al. 2020 (arXiv 1912.11370), section 3.3.
    """
    if image_shape is None or image_shape[0] * image_shape[1] >= 96 * 96:
        return 512, 480
    return 160, 128


def _cut(image, sides, place):
    """Cuts out a window whose sides are given as a tensor."""
    tf = tensorflow()
    shape = tf.shape(image)[-3:-1]
    is_longer = [shape[0] > shape[1], shape[0] <= shape[1]]
    room = tf.cast(shape - sides, "float32")
    begin = tf.cast(tf.floor(room * tf.where(is_longer, place, 0.5)), "int32")
    return _slice(image, begin, sides)


def _slice(image, begin, sides):
    """Cuts out a window with a given first row and column, and sides."""
    tf = tensorflow()
    leading = len(image.shape) - 3
    window = tf.slice(
        image,
        tf.concat([[0] * leading, begin, [0]], 0),
        tf.concat([[-1] * leading, sides, [-1]], 0),
    )
    shape = (*image.shape[:-3], None, None, image.shape[-1])
    return tf.ensure_shape(window, shape)
