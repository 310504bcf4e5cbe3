"""The functions that a SavedModel serves."""

from keras_vit.data import decode, formats, orientation
from keras_vit.data.formats import require
from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import limits

# Images decoded at the same time, if they are small.
_PARALLEL = 8


def decode_valid(image_bytes, image_size: tuple[int, int], channels: int):
    """Decodes and resizes the images of a request that decode.

    Args:
        image_bytes: string `[N]`.
        image_size: (height, width) in pixels.
        channels: 1 or 3.

    Returns:
        float32 `[M, height, width, channels]`, and the M indices of these
        images in the request, int64, in order.
    """
    tf = tensorflow()
    size = (*image_size, channels)

    def read(i):
        encoded = image_bytes[i]
        with tf.control_dependencies([limits.claimed_pixels(encoded)]):
            encoded = tf.identity(encoded)
        image = decode.decode_image(encoded, channels)
        image = tf.cast(decode.resize(image, image_size), "float32")
        return i, tf.ensure_shape(image, size)

    number = tf.size(image_bytes, tf.int64)

    def one():
        # A single image needs no order by size, and no threads.
        return _gather(tf.data.Dataset.range(number).map(read), number)

    def one_jpeg():
        images, decoded = _decode_one_jpeg(image_bytes[0], image_size, channels)
        return [tf.range(tf.cast(decoded, tf.int64)), images]

    def many():
        indices, parallel = _plan(image_bytes)
        dataset = tf.data.Dataset.from_tensor_slices(indices)
        dataset = dataset.map(read, num_parallel_calls=parallel)
        return _gather(dataset, number)

    indices, images = tf.cond(
        number == 1,
        lambda: tf.cond(formats.is_jpeg(image_bytes[0]), one_jpeg, one),
        many,
    )
    return images, indices


def _decode_one_jpeg(encoded, image_size, channels):
    """Returns float32 `[M, height, width, C]`, and M: 0 if it fails, or 1.

    This is the most frequent request. Only the operations that may fail are in
    a data set, since its graph is built for each request, which takes longer
    than the decoding itself.
    """
    tf = tensorflow()

    def stored_pixels(encoded):
        with tf.control_dependencies([limits.jpeg_pixels(encoded)]):
            encoded = tf.identity(encoded)
        return decode.stored_jpeg(encoded, channels), 1

    nothing = tf.zeros((1, 1, channels), tf.uint8)
    image, decoded = (
        tf.data.Dataset.from_tensors(encoded)
        .map(stored_pixels)
        .ignore_errors(log_warning=False)
        .concatenate(tf.data.Dataset.from_tensors((nothing, 0)))
        .take(1)
        .get_single_element()
    )
    image = orientation.upright(image, orientation.of_jpeg(encoded))
    image = tf.cast(decode.resize(image, image_size), "float32")
    image = tf.ensure_shape(image, (*image_size, channels))
    return image[None][:decoded], decoded


def _plan(image_bytes):
    """Returns the indices of images to decode, and how many at a time."""
    tf = tensorflow()
    number = tf.size(image_bytes, tf.int64)
    indices, pixels = _gather(
        tf.data.Dataset.range(number).map(
            lambda i: (i, limits.claimed_pixels(image_bytes[i]))
        ),
        number,
    )
    lengths = tf.strings.length(tf.gather(image_bytes, indices))
    fitting = limits.fitting(pixels, tf.cast(lengths, tf.int64))
    # Large images are decoded one after the other: each may need hundreds of
    # megabytes.
    largest = tf.reduce_max(tf.concat([pixels, [1]], 0))
    parallel = limits.MAX_PIXELS // 4 // largest
    return (
        tf.boolean_mask(indices, fitting),
        tf.clip_by_value(parallel, 1, _PARALLEL),
    )


def _gather(dataset, most):
    """Stacks the elements of a dataset that are computed without an error."""
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


class Answers:
    """What signatures of images and of videos answer.

    Args:
        forward: Function of float32 images `[M, H, W, C]`, or of videos, and
            of their number in the request that returns features and logits.
        class_names: Class names by index.
        top_k: Number of classes in the answer.
        activation: "softmax", "sigmoid" or "none", applied to the logits.
        max_images: Largest number of images, or videos, in a request.
        probabilities: The activation that gives probabilities, where it is not
            `activation`: answers then hold them as well.
    """

    def __init__(
        self,
        forward,
        class_names: tuple[str, ...],
        top_k: int,
        activation: str,
        max_images: int,
        probabilities: str | None = None,
    ):
        self._tf = tensorflow()
        self._forward = forward
        self._class_names = self._tf.constant(list(class_names))
        self._top_k = top_k
        self._activation = activation
        self._max_images = max_images
        self._probabilities = probabilities or activation

    def limited(self, images):
        """Returns a scope in which there are not too many images, or videos."""
        number = self._tf.shape(images)[0]
        what = "videos" if len(images.shape) == 5 else "images"
        return require(
            number <= self._max_images,
            f"A request may hold at most {self._max_images} {what}. Received:",
            number,
        )

    def run(self, images, number):
        """Returns features, logits and whether they are finite."""
        tf = self._tf
        outputs = [tf.cast(x, "float32") for x in self._forward(images, number)]
        # Half precision may overflow.
        finite = [tf.reduce_all(tf.math.is_finite(x), -1) for x in outputs]
        return (*outputs, finite[0] & finite[1])

    def run_pixels(self, images):
        """As `run`, and the pixels must be finite too."""
        tf = self._tf
        *outputs, valid = self.run(images, tf.shape(images)[0])
        # A ReLU or a maximum may turn NaN into a number.
        axes = list(range(1, len(images.shape)))
        finite = tf.reduce_all(tf.math.is_finite(images), axis=axes)
        return (*outputs, valid & finite)

    def top(self, logits, valid):
        """Answers with the highest scores."""
        tf = self._tf
        logits = self._hide(logits, valid)
        scores, indices = tf.math.top_k(
            self._activate(logits, self._activation), self._top_k
        )
        names = tf.gather(self._class_names, indices)
        answer = dict(
            scores=self._hide(scores, valid),
            classes=self._hide(names, valid, ""),
            indices=self._hide(indices, valid, -1),
            valid=valid,
        )
        if self._probabilities != self._activation:
            found = self._activate(logits, self._probabilities)
            found = tf.gather(found, indices, batch_dims=1)
            answer["probabilities"] = self._hide(found, valid)
        return answer

    def features(self, features, valid):
        """Answers with the representation."""
        return dict(features=self._hide(features, valid), valid=valid)

    def probabilities(self, logits, valid):
        """Answers with the probability of each class."""
        found = self._activate(self._hide(logits, valid), self._probabilities)
        return dict(probabilities=self._hide(found, valid), valid=valid)

    def raw(self, features, logits, valid):
        """Answers with what the model gives."""
        return dict(
            features=self._hide(features, valid),
            logits=self._hide(logits, valid),
            valid=valid,
        )

    def attention(self, rollout, layers, put_back=None):
        """Answers with rollout and the maps of all heads.

        Args:
            rollout: `[M, rows, columns]`, of a video `[M, T, rows, columns]`.
            layers: For each layer `[M, A, rows, columns]`, of a video
                `[M, A, T, rows, columns]`.
            put_back: Returns rows of images that decoded as rows of all; None
                where these are the same.
        """
        tf = self._tf
        maps = {"rollout": rollout}
        maps |= {f"layer_{i}": x for i, x in enumerate(layers, 1)}
        maps = {name: tf.cast(x, "float32") for name, x in maps.items()}
        finite = [
            tf.reduce_all(tf.math.is_finite(x), list(range(1, len(x.shape))))
            for x in maps.values()
        ]
        valid = tf.reduce_all(tf.stack(finite), axis=0)
        if put_back is not None:
            valid = put_back(tf.cast(valid, tf.int32)) > 0
            maps = {name: put_back(x) for name, x in maps.items()}
        for name, x in maps.items():
            shape = (-1, *[1] * (len(x.shape) - 1))
            maps[name] = tf.where(tf.reshape(valid, shape), x, 0)
        return maps | dict(valid=valid)

    def _activate(self, logits, activation):
        if activation == "none":
            return logits
        return getattr(self._tf.nn, activation)(logits)

    def _hide(self, values, valid, instead=0):
        """Puts `instead` where an image is not valid."""
        return self._tf.where(valid[:, None], values, instead)


def signatures(
    answers: Answers, image_size: tuple[int, int], channels: int, attend=None
) -> dict:
    """Returns the functions that are served for a model of images, by name.

    Args:
        answers: What they answer.
        image_size: (height, width) in pixels that the model takes.
        channels: Channels that it takes, 1 or 3.
        attend: Function of float32 images `[M, H, W, C]` and of their number
            in the request that returns rollout, and for each layer the maps
            of its heads; None of a model without attention.
    """
    tf = tensorflow()
    size = (*image_size, channels)
    image_bytes = tf.TensorSpec((None,), tf.string, name="image_bytes")
    any_size = (None, None, None, channels)
    of_bytes = {"input_signature": [image_bytes]}

    @tf.function(**of_bytes)  # one graph for all signatures that read bytes
    def read(image_bytes):
        with answers.limited(image_bytes):
            image_bytes = tf.identity(image_bytes)
        return decode_valid(image_bytes, image_size, channels)

    def from_bytes(image_bytes, function):
        """Returns what a function gives of images, and what puts it back."""
        number = tf.size(image_bytes)
        images, indices = read(image_bytes)
        places = tf.cast(indices[:, None], tf.int32)

        def put_back(rows):
            return tf.scatter_nd(places, rows, (number, *rows.shape[1:]))

        return function(images, number), put_back

    @tf.function(**of_bytes)
    def run(image_bytes):
        (*outputs, valid), put_back = from_bytes(image_bytes, answers.run)
        valid = put_back(tf.cast(valid, tf.int32)) > 0
        return (*map(put_back, outputs), valid)

    def from_pixels(pixels):
        with answers.limited(pixels):
            pixels = tf.ensure_shape(pixels, any_size)
        images = tf.image.resize(pixels, image_size)
        _, logits, valid = answers.run_pixels(images)
        return answers.top(logits, valid)

    @tf.function(**of_bytes)
    def serving_default(image_bytes):
        _, logits, valid = run(image_bytes)
        return answers.top(logits, valid)

    @tf.function(**of_bytes)
    def features(image_bytes):
        found, _, valid = run(image_bytes)
        return answers.features(found, valid)

    @tf.function(**of_bytes)
    def predict(image_bytes):
        _, logits, valid = run(image_bytes)
        return answers.probabilities(logits, valid)

    @tf.function(
        input_signature=[tf.TensorSpec(any_size, tf.uint8, name="pixels")]
    )
    def pixels(pixels):
        return from_pixels(pixels)

    @tf.function(
        input_signature=[tf.TensorSpec(any_size, "float32", name="pixels")]
    )
    def pixels_float(pixels):
        return from_pixels(pixels)

    @tf.function(
        input_signature=[tf.TensorSpec((None, *size), "float32", name="images")]
    )
    def logits(images):
        with answers.limited(images):
            images = tf.ensure_shape(images, (None, *size))
        return answers.raw(*answers.run_pixels(images))

    @tf.function(**of_bytes)
    def attention(image_bytes):
        (rollout, *layers), put_back = from_bytes(image_bytes, attend)
        return answers.attention(rollout, layers, put_back)

    found = dict(
        serving_default=serving_default,
        pixels=pixels,
        pixels_float=pixels_float,
        features=features,
        predict=predict,
        logits=logits,
    )
    return found if attend is None else found | dict(attention=attention)


def video_signatures(
    answers: Answers,
    num_frames: int,
    image_size: tuple[int, int],
    channels: int,
    attend=None,
) -> dict:
    """Returns the functions that are served for a model of videos, by name.

    Args:
        answers: What they answer.
        num_frames, image_size, channels: Of the videos that the model takes.
        attend: As for `signatures`, of videos.
    """
    tf = tensorflow()
    size = (num_frames, *image_size, channels)
    any_size = (None, num_frames, None, None, channels)

    def from_frames(video):
        with answers.limited(video):
            video = tf.ensure_shape(video, any_size)
        number, _, height, width, _ = tf.unstack(tf.shape(video))
        frames = tf.reshape(
            video, (number * num_frames, height, width, channels)
        )
        frames = tf.image.resize(frames, image_size)
        return tf.reshape(frames, (number, *size))

    def serve(answer, dtype="uint8"):
        spec = tf.TensorSpec(any_size, dtype, name="video")

        @tf.function(input_signature=[spec])
        def function(video):
            return answer(*answers.run_pixels(from_frames(video)))

        return function

    @tf.function(
        input_signature=[tf.TensorSpec(any_size, tf.uint8, name="video")]
    )
    def attention(video):
        videos = from_frames(video)
        rollout, *layers = attend(videos, tf.shape(videos)[0])
        return answers.attention(rollout, layers)

    @tf.function(
        input_signature=[tf.TensorSpec((None, *size), "float32", name="videos")]
    )
    def logits(videos):
        with answers.limited(videos):
            videos = tf.ensure_shape(videos, (None, *size))
        return answers.raw(*answers.run_pixels(videos))

    def top(features, logits, valid):
        return answers.top(logits, valid)

    video = serve(top)
    found = dict(
        serving_default=video,
        video=video,
        video_float=serve(top, "float32"),
        features=serve(lambda found, _, valid: answers.features(found, valid)),
        predict=serve(
            lambda _, logits, valid: answers.probabilities(logits, valid)
        ),
        logits=logits,
    )
    return found if attend is None else found | dict(attention=attention)
