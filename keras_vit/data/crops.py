"""Random crops and flips for training, a pure function of image and seed."""

from keras_vit.data import orientation
from keras_vit.data.decode import cmyk_to_grey, decode_image, resize
from keras_vit.data.optional_imports import tensorflow


def inception_crop(image, image_size: tuple[int, int], channels: int, seed):
    """Crops 5 to 100 % of the area at an aspect of 3/4 to 4/3, and resizes.

    Args:
        image: Bytes of a file (a scalar string) or pixels `[H, W, C]`.
        image_size: (height, width) in pixels of the result.
        channels: Channels of the result.
        seed: Two integers.

    Returns:
        float32 `[height, width, channels]`.

    Reference:
        Szegedy et al. 2015, as in vit_jax/input_pipeline.py.
    """
    image = decode_window(image, channels, seed)
    return tensorflow().image.resize(image, image_size)


def decode_window(image, channels: int, seed):
    """Cuts the window of `inception_crop` out, before anything is resized.

    Of a JPEG, only the window is decoded, but for CMYK in grey. The window is
    one of the upright image.

    Args:
        image: Bytes of a file (a scalar string) or pixels `[H, W, C]`.
        channels: Channels of the result.
        seed: Two integers.

    Returns:
        `[h, w, channels]`.
    """
    tf = tensorflow()

    def crop_pixels(pixels):
        begin, size = sample_window(tf.shape(pixels), seed)
        return tf.slice(pixels, begin, size)

    def decode_jpeg_window():
        turn = orientation.of_jpeg(image)
        stored = tf.io.extract_jpeg_shape(image)
        shape = orientation.swap(stored[:2], turn)
        begin, size = sample_window(tf.concat([shape, stored[2:]], 0), seed)
        window = orientation.stored_window(begin[:2], size[:2], shape, turn)
        pixels = tf.io.decode_and_crop_jpeg(
            image, tf.concat(window, 0), channels=channels
        )
        return orientation.upright(pixels, turn)

    if image.dtype == tf.string:
        image = tf.cond(
            tf.io.is_jpeg(image) & ~cmyk_to_grey(image, channels),
            decode_jpeg_window,
            lambda: crop_pixels(decode_image(image, channels)),
        )
    else:
        image = crop_pixels(image)
    image.set_shape((None, None, channels))
    return image


def sample_window(shape, seed):
    """Draws the window of `inception_crop`.

    Args:
        shape: (H, W, C) of the image.
        seed: Two integers.

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
        area_range=(0.05, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    return begin, size


def pad_crop(image, image_size: tuple[int, int], pad: int, seed):
    """Resizes, pads with zeros on every side, and crops at random.

    Args:
        image: `[H, W, C]`.
        image_size: (height, width) in pixels of the result.
        pad: Pixels added on each side.
        seed: Two integers.

    Returns:
        `[height, width, C]`.
    """
    tf = tensorflow()
    image = resize(image, image_size)
    padded = tf.pad(image, ((pad, pad), (pad, pad), (0, 0)))
    return tf.image.stateless_random_crop(
        padded, (*image_size, image.shape[-1]), seed
    )


def flip(image, seed):
    """Flips an image left to right with probability one half.

    Args:
        image: `[H, W, C]`.
        seed: Two integers.
    """
    return tensorflow().image.stateless_random_flip_left_right(image, seed)


def resize_crop(image, image_size: tuple[int, int], shorter: int, seed):
    """Resizes directly, shorter side to `shorter`, and crops at random.

    The sides have the proportion of `image_size`, whatever the image's: where
    that is a square, so is what is cropped.

    Args:
        image: `[H, W, C]`.
        image_size: (height, width) in pixels of the result.
        shorter: Pixels of the shorter side before the crop.
        seed: Two integers.

    Returns:
        `[height, width, C]`.

    Reference:
        Kolesnikov et al. 2020 (BiT), section 3.3; Steiner et al. 2021, which
        fine-tunes at 384 of 448 pixels.
    """
    scale = shorter / min(image_size)
    image = resize(image, tuple(round(side * scale) for side in image_size))
    return tensorflow().image.stateless_random_crop(
        image, (*image_size, image.shape[-1]), seed
    )


def central_crop(image, image_size: tuple[int, int], shorter: int):
    """Resizes in proportion, shorter side to `shorter`, and cuts the middle.

    Args:
        image: `[H, W, C]`.
        image_size: (height, width) in pixels of the result.
        shorter: Pixels of the shorter side before the crop, at least those of
            either side of the result.

    Returns:
        `[height, width, C]`.
    """
    tf = tensorflow()
    # Of a very long image only the middle is resized, which would else be
    # thousands of times the size of the file.
    most = 4 * tf.reduce_min(tf.shape(image)[:2])
    image = _middle(image, tf.minimum(tf.shape(image)[:2], most))
    sides = tf.shape(image)[:2]
    scale = shorter / tf.reduce_min(sides)
    sides = tf.cast(tf.round(tf.cast(sides, scale.dtype) * scale), "int32")
    image = _middle(tf.image.resize(image, sides), tf.constant(image_size))
    image.set_shape((*image_size, image.shape[-1]))
    return image


def bit_hyper_rule(
    image_shape: tuple[int, ...] | None,
) -> tuple[int, int]:
    """Returns the sizes of BiT's HyperRule for fine-tuning.

    Args:
        image_shape: (height, width, ...) in pixels of the images of a set;
            None where they have no common one, which counts as large.

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


def _middle(image, sides):
    """Cuts the middle of an image, its two sides given in pixels."""
    tf = tensorflow()
    begin = (tf.shape(image)[:2] - sides) // 2
    return tf.slice(
        image,
        tf.concat([begin, [0]], 0),
        tf.concat([sides, [image.shape[-1]]], 0),
    )
