"""Photographs turned upright: cameras store rotated pixels.

Orientation k of EXIF, 1 to 8, means: transpose the stored pixels if k >= 5,
then flip the rows if k is 3, 4, 7 or 8 and the columns if k is 2, 3, 6 or 7.
"""

from keras_vit.data.optional_imports import apart, tensorflow


def upright(image, orientation):
    """Rotate and flip stored pixels `[H, W, C]`."""
    tf = tensorflow()
    turned = tf.cond(
        orientation == 1, lambda: image, lambda: _turn(image, orientation)
    )
    return tf.ensure_shape(turned, (None, None, image.shape[-1]))


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
