"""What requests of all models have in common."""

from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import limits


class Requests:
    """Runs a model on requests, and says which images it could answer.

    Args:
        forward: Function of float32 images `[M, H, W, C]`, or of videos, and
            of their number in the request that returns one or more outputs.
        max_images: Largest number of images, or videos, in a request.
    """

    def __init__(self, forward, max_images: int):
        self._tf = tensorflow()
        self._forward = forward
        self._max_images = max_images

    def limited(self, images):
        """Return a scope in which there are not too many images, or videos."""
        number = self._tf.shape(images)[0]
        what = "videos" if len(images.shape) == 5 else "images"
        message = f"A request may hold at most {self._max_images} {what}."
        few = self._tf.debugging.Assert(
            number <= self._max_images, [f"{message} Received:", number]
        )
        return self._tf.control_dependencies([few])

    def run(self, images, number):
        """Return the outputs and codes of `limits.REASONS`."""
        tf = self._tf
        outputs = tf.nest.flatten(self._forward(images, number))
        outputs = [tf.cast(x, "float32") for x in outputs]
        # Half precision may overflow.
        return (*outputs, self.reasons(*outputs))

    def run_pixels(self, images):
        """As `run`, and the pixels must be finite too."""
        outputs = self.run(images, self._tf.shape(images)[0])[:-1]
        # A ReLU or a maximum may turn NaN into a number.
        return (*outputs, self.reasons(*outputs, images))

    def reasons(self, *values):
        """Return for each image whether all values are finite."""
        tf = self._tf
        finite = [
            tf.reduce_all(tf.math.is_finite(x), list(range(1, len(x.shape))))
            for x in values
        ]
        finite = tf.reduce_all(tf.stack(finite), axis=0)
        return tf.where(finite, limits.VALID, limits.NOT_FINITE)

    def validity(self, reasons):
        """Return the part of an answer that says which images are valid."""
        texts = self._tf.gather(self._tf.constant(limits.REASONS), reasons)
        return dict(valid=reasons == limits.VALID, reason=texts)

    def hide(self, values, reasons, instead=0):
        """Put `instead` where an image is not valid."""
        shape = (-1, *[1] * (len(values.shape) - 1))
        valid = self._tf.reshape(reasons == limits.VALID, shape)
        return self._tf.where(valid, values, instead)
