"""Decodes the images of a request that are valid and not too expensive."""

from keras_vit.data import decode, formats
from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import limits

# Images decoded at the same time, if they are small.
_PARALLEL = 8


def decode_valid(
    image_bytes,
    image_size: tuple[int, int],
    channels: int,
    budget: float = limits.DECODING_BUDGET,
    resize=decode.resize,
):
    """Decode and resizes the images of a request that decode.

    Args:
        image_bytes: string `[N]`.
        image_size: (height, width) in pixels.
        channels: 1 or 3.
        budget: Seconds of one core for the images; see `limits.reasons`.
        resize: Function of an image and `image_size`.

    Returns:
        float32 `[M, height, width, channels]`; the M indices of these images in
        the request, int64, in order; their (height, width) before, upright,
        int32 `[M, 2]`; and for each image of the request why it did not decode,
        a code of `limits.REASONS`, int32 `[N]`.
    """
    tf = tensorflow()
    number = tf.size(image_bytes, tf.int64)

    def one_jpeg():
        return _decode_one_jpeg(
            image_bytes[0], image_size, channels, budget, resize
        )

    def many():
        def read(i):
            image = decode.decode_image(image_bytes[i], channels)
            size = tf.shape(image)[:2]
            image = tf.cast(resize(image, image_size), "float32")
            return i, tf.ensure_shape(image, (*image_size, channels)), size

        claimed, reasons, parallel = _plan(image_bytes, budget)
        dataset = tf.data.Dataset.from_tensor_slices(
            tf.boolean_mask(claimed, reasons == limits.VALID)
        )
        dataset = dataset.map(read, num_parallel_calls=parallel)
        decoded, images, sizes = _gather(dataset, number)
        # An image is undecodable until it is seen to be otherwise.
        found = tf.fill(number[None], limits.UNDECODABLE)
        reasons = tf.maximum(reasons, limits.UNDECODABLE)
        found = tf.tensor_scatter_nd_update(found, claimed[:, None], reasons)
        valid = tf.fill(tf.shape(decoded), limits.VALID)
        found = tf.tensor_scatter_nd_update(found, decoded[:, None], valid)
        return images, decoded, sizes, found

    # Joined, since a request may be empty.
    first = tf.strings.reduce_join(image_bytes[:1])
    one = (number == 1) & formats.is_kind(first, "JPEG")
    return tf.cond(one, one_jpeg, many)


def _decode_one_jpeg(encoded, image_size, channels, budget, resize):
    """Do what `decode_valid` does for the most frequent request, one JPEG.

    Only the operations that may fail are in a data set, since its graph is
    built for each request, which takes longer than the decoding itself.
    """
    tf = tensorflow()
    turn = formats.orientation(encoded)
    nothing = tf.zeros((1, 1, channels), tf.uint8)

    def stored_pixels(encoded):
        pixels, seconds = limits.claim_of_jpeg(encoded, turn)
        length = tf.strings.length(encoded)
        (reason,) = tf.unstack(
            limits.reasons(pixels[None], seconds[None], length[None], budget)
        )
        image = tf.cond(
            reason == limits.VALID,
            lambda: decode.stored_jpeg(encoded, channels),
            lambda: nothing,
        )
        return image, reason

    image, reason = (
        tf.data.Dataset.from_tensors(encoded)
        .map(stored_pixels)
        .ignore_errors(log_warning=False)
        .concatenate(
            tf.data.Dataset.from_tensors((nothing, limits.UNDECODABLE))
        )
        .take(1)
        .get_single_element()
    )
    image = formats.upright(image, turn)
    size = tf.shape(image)[:2]
    image = tf.cast(resize(image, image_size), "float32")
    image = tf.ensure_shape(image, (*image_size, channels))
    number = tf.cast(reason == limits.VALID, tf.int64)
    some = slice(0, number)
    return image[None][some], tf.range(number), size[None][some], reason[None]


def _plan(image_bytes, budget):
    """Return the indices of images with a readable header, whether they are
    too expensive, and how many to decode at a time."""
    tf = tensorflow()
    number = tf.size(image_bytes, tf.int64)
    indices, pixels, seconds = _gather(
        tf.data.Dataset.range(number).map(
            lambda i: (i, *limits.claim(image_bytes[i]))
        ),
        number,
    )
    lengths = tf.strings.length(tf.gather(image_bytes, indices))
    reasons = limits.reasons(pixels, seconds, lengths, budget)
    # Large images are decoded one after the other: each may need hundreds of
    # megabytes.
    pixels = tf.where(reasons == limits.VALID, pixels, 0)
    largest = tf.reduce_max(tf.concat([pixels, [1]], 0))
    parallel = tf.cast(limits.MAX_PIXELS / 4 / largest, tf.int64)
    return indices, reasons, tf.clip_by_value(parallel, 1, _PARALLEL)


def _gather(dataset, most):
    """Stack the elements of a dataset that are computed without an error."""
    tf = tensorflow()
    # One image more, since a batch must not be empty.
    last = tf.data.Dataset.from_tensors(
        tuple(tf.zeros(x.shape, x.dtype) for x in dataset.element_spec)
    )
    batch = (
        dataset.ignore_errors(log_warning=False)
        .concatenate(last)
        .batch(most + 1)
        .get_single_element()
    )
    return [x[:-1] for x in batch]
