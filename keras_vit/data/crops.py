"""Random crops and flips for training, as pure functions of image and seed.

Functions of pixels take an image, `[H, W, C]`, or the frames of a clip,
`[T, H, W, C]`, which are cropped in the same way.
"""

from typing import Annotated

from keras_vit._arguments import Count, checked
from keras_vit.data import formats
from keras_vit.data.decode import cmyk_to_grey, decode_image, resize
from keras_vit.data.optional_imports import apart, tensorflow

# The smallest share of the area of an Inception crop, as in the authors' code.
MIN_AREA = 0.05
ImageShape = Annotated[
    tuple[Count, ...],
    "(height, width, ...) in pixels",
    lambda shape: len(shape) > 1,
]


def inception_crop(
    image,
    image_size: tuple[int, int],
    channels: int,
    seed,
    min_area: float = MIN_AREA,
):
    """Crop 5 to 100 % of the area at an aspect of 3/4 to 4/3, and resize.

    `image` is the bytes of a file (a scalar string) or pixels. The result is
    float32 `[..., height, width, channels]`.

    Reference:
        Szegedy et al. 2015, as in vit_jax/input_pipeline.py.
    """
    image = decode_window(image, channels, seed, min_area)
    return tensorflow().image.resize(image, image_size)


def decode_window(image, channels: int, seed, min_area: float = MIN_AREA):
    """Cut out the window of `inception_crop`, before any resizing.

    Only the window of a JPEG is decoded, except from CMYK to grey. The window
    refers to the upright image.
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
        turn = formats.orientation(image)
        stored = tf.io.extract_jpeg_shape(image)
        shape = formats.swap(stored[:2], turn)
        begin, size = sample_window(
            tf.concat([shape, stored[2:]], 0), seed, min_area
        )
        window = formats.stored_window(begin[:2], size[:2], shape, turn)
        return formats.upright(decode(*window), turn)

    @apart
    def crop_file():
        return tf.cond(
            tf.io.is_jpeg(image) & ~cmyk_to_grey(image, channels),
            crop_jpeg,
            lambda: crop_pixels(decode_image(image, channels)),
        )

    if image.dtype != tf.string:
        image = crop_pixels(image)
    elif channels == 3:
        is_upright = formats.is_plain_jpeg(image)
        image = tf.cond(is_upright, crop_upright_jpeg, crop_file)
    else:
        image = crop_file()
    image.set_shape((*image.shape[:-3], None, None, channels))
    return image


def sample_window(shape, seed, min_area: float = MIN_AREA):
    """Draw the window of `inception_crop` in an image of shape (H, W, C).

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
    """Resize, pad with zeros on every side, and crop at random."""
    tf = tensorflow()
    image = resize(image, image_size)
    leading = image.shape[:-3]
    padding = [(0, 0)] * len(leading) + [(pad, pad), (pad, pad), (0, 0)]
    return tf.image.stateless_random_crop(
        tf.pad(image, padding), (*leading, *image_size, image.shape[-1]), seed
    )


def flip(image, seed):
    """Flip an image left to right with probability one half."""
    tf = tensorflow()
    if image.shape.rank == 3:
        return tf.image.stateless_random_flip_left_right(image, seed)
    # All frames or none: the clip is one tall image.
    high = tf.reshape(image, (-1, *image.shape[-2:]))
    flipped = tf.image.stateless_random_flip_left_right(high, seed)
    return tf.reshape(flipped, image.shape)


def resize_crop(image, image_size: tuple[int, int], shorter: int, seed):
    """Resize directly, shorter side to `shorter`, and crop at random.

    The aspect ratio after resizing is that of `image_size`, whatever that of
    the image: for a square, the resized image is square.

    Reference:
        Kolesnikov et al. 2020 (BiT), section 3.3; Steiner et al. 2021, which
        fine-tunes at 384 of 448 pixels.
    """
    image = resize(image, scaled(image_size, shorter))
    return tensorflow().image.stateless_random_crop(
        image, (*image.shape[:-3], *image_size, image.shape[-1]), seed
    )


def scaled(image_size: tuple[int, int], shorter: int) -> tuple[int, int]:
    """Return a size of the same aspect ratio with another shorter side."""
    scale = shorter / min(image_size)
    height, width = image_size
    return round(height * scale), round(width * scale)


def central_crop(image, image_size: tuple[int, int], shorter: int):
    """Resize in proportion, shorter side to `shorter`, and crop the centre."""
    tf = tensorflow()
    # Only the centre of a very long image is resized, since the result could be
    # thousands of times larger than the file.
    sides = tf.shape(image)[-3:-1]
    image = _cut(image, tf.minimum(sides, 4 * tf.reduce_min(sides)), 0.5)
    image = resize_shorter(image, shorter)
    return cut(image, image_size, 0.5)


def resize_shorter(image, shorter: int):
    """Resize in proportion, the shorter side to `shorter`."""
    tf = tensorflow()
    sides = tf.shape(image)[-3:-1]
    scale = shorter / tf.reduce_min(sides)
    sides = tf.cast(tf.round(tf.cast(sides, scale.dtype) * scale), "int32")
    return tf.image.resize(image, sides)


def cut(image, image_size: tuple[int, int], place: float):
    """Cut out a window at a position along the longer side, 0 to 1.

    Along the other side the window is centred.
    """
    image = _cut(image, tensorflow().constant(image_size), place)
    image.set_shape((*image.shape[:-3], *image_size, image.shape[-1]))
    return image


@checked
def bit_hyper_rule(image_shape: ImageShape | None) -> tuple[int, int]:
    """Return the sizes of BiT's HyperRule for fine-tuning.

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
    """Cut out a window whose sides are given as a tensor."""
    tf = tensorflow()
    shape = tf.shape(image)[-3:-1]
    is_longer = [shape[0] > shape[1], shape[0] <= shape[1]]
    room = tf.cast(shape - sides, "float32")
    begin = tf.cast(tf.floor(room * tf.where(is_longer, place, 0.5)), "int32")
    return _slice(image, begin, sides)


def _slice(image, begin, sides):
    """Cut out a window with a given first row and column, and sides."""
    tf = tensorflow()
    leading = len(image.shape) - 3
    window = tf.slice(
        image,
        tf.concat([[0] * leading, begin, [0]], 0),
        tf.concat([[-1] * leading, sides, [-1]], 0),
    )
    shape = (*image.shape[:-3], None, None, image.shape[-1])
    return tf.ensure_shape(window, shape)
