"""Random crops and flips for training, a pure function of image and seed."""

from keras_vit.data.decode import cmyk_to_grey, decode_image, resize
from keras_vit.data.lazy import tensorflow


def inception_crop(image, image_size: tuple[int, int], channels: int, seed):
    """Crops 5 to 100 % of the area at an aspect of 3/4 to 4/3, and resizes.

    Of a JPEG, only the crop is decoded, but for CMYK in grey.

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
    tf = tensorflow()

    def window(shape):
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

    def crop_pixels(pixels):
        begin, size = window(tf.shape(pixels))
        return tf.slice(pixels, begin, size)

    def decode_window():
        begin, size = window(tf.io.extract_jpeg_shape(image))
        return tf.io.decode_and_crop_jpeg(
            image, tf.concat([begin[:2], size[:2]], 0), channels=channels
        )

    if image.dtype == tf.string:
        image = tf.cond(
            tf.io.is_jpeg(image) & ~cmyk_to_grey(image, channels),
            decode_window,
            lambda: crop_pixels(decode_image(image, channels)),
        )
    else:
        image = crop_pixels(image)
    image.set_shape((None, None, channels))
    return tf.image.resize(image, image_size)


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
