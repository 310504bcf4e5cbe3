"""The functions that a SavedModel serves."""

from keras_vit.data import decode
from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import decoding, limits, requests


class Answers(requests.Requests):
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
        super().__init__(forward, max_images)
        self._class_names = self._tf.constant(list(class_names))
        self._top_k = top_k
        self._activation = activation
        self._probabilities = probabilities or activation

    # Each answer takes what `run` returns.

    def top(self, features, logits, reasons):
        """Answer with the highest scores."""
        tf = self._tf
        logits = self.hide(logits, reasons)
        scores, indices = tf.math.top_k(
            self._activate(logits, self._activation), self._top_k
        )
        names = tf.gather(self._class_names, indices)
        answer = dict(
            scores=self.hide(scores, reasons),
            classes=self.hide(names, reasons, ""),
            indices=self.hide(indices, reasons, -1),
            **self.validity(reasons),
        )
        if self._probabilities != self._activation:
            found = self._activate(logits, self._probabilities)
            found = tf.gather(found, indices, batch_dims=1)
            answer["probabilities"] = self.hide(found, reasons)
        return answer

    def features(self, features, logits, reasons):
        """Answer with the representation."""
        found = dict(features=self.hide(features, reasons))
        return found | self.validity(reasons)

    def probabilities(self, features, logits, reasons):
        """Answer with the probability of each class."""
        logits = self.hide(logits, reasons)
        found = self._activate(logits, self._probabilities)
        found = dict(probabilities=self.hide(found, reasons))
        return found | self.validity(reasons)

    def raw(self, features, logits, reasons):
        """Answer with what the model gives."""
        return dict(
            features=self.hide(features, reasons),
            logits=self.hide(logits, reasons),
            **self.validity(reasons),
        )

    def attention(self, rollout, layers, put_back=None):
        """Answer with rollout and the maps of all heads.

        Args:
            rollout: `[M, rows, columns]`, of a video `[M, T, rows, columns]`.
            layers: For each layer `[M, A, rows, columns]`, of a video
                `[M, A, T, rows, columns]`.
            put_back: Function of these and of codes that returns them for all
                images, also those that did not decode; None of a video.
        """
        tf = self._tf
        maps = [tf.cast(x, "float32") for x in (rollout, *layers)]
        *maps, reasons = (put_back or tuple)((*maps, self.reasons(*maps)))
        rollout, *layers = (self.hide(x, reasons) for x in maps)
        found = {f"layer_{i}": x for i, x in enumerate(layers, 1)}
        return dict(rollout=rollout) | found | self.validity(reasons)

    def _activate(self, logits, activation):
        if activation == "none":
            return logits
        return getattr(self._tf.nn, activation)(logits)


def signatures(
    answers: Answers,
    image_size: tuple[int, int],
    channels: int,
    attend=None,
    budget: float = limits.DECODING_BUDGET,
) -> dict:
    """Return the functions that are served for a model of images, by name.

    Args:
        answers: What they answer.
        image_size: (height, width) in pixels that the model takes.
        channels: Channels that it takes, 1 or 3.
        attend: Function of float32 images `[M, H, W, C]` and of their number
            in the request that returns rollout, and for each layer the maps
            of its heads; None of a model without attention.
        budget: As for `decoding.decode_valid`.
    """
    tf = tensorflow()
    of_bytes = {
        "input_signature": [tf.TensorSpec((None,), tf.string, "image_bytes")],
        "autograph": False,
    }
    any_size = (None, None, None, channels)
    on_bytes = on_bytes_of(answers, image_size, channels, budget)

    @tf.function(**of_bytes)  # one graph for all signatures that read bytes
    def run(image_bytes):
        found, put_back, _ = on_bytes(image_bytes, answers.run)
        return put_back(found)

    def of_files(answer):
        return tf.function(
            lambda image_bytes: answer(*run(image_bytes)), **of_bytes
        )

    def of_pixels(dtype):
        def function(pixels):
            with answers.limited(pixels):
                pixels = tf.ensure_shape(pixels, any_size)
            images = tf.image.resize(pixels, image_size)
            return answers.top(*answers.run_pixels(images))

        return of_tensor(function, any_size, dtype, "pixels")

    @tf.function(**of_bytes)
    def attention(image_bytes):
        (rollout, *layers), put_back, _ = on_bytes(image_bytes, attend)
        return answers.attention(rollout, layers, put_back)

    found = dict(
        serving_default=of_files(answers.top),
        pixels=of_pixels("uint8"),
        pixels_float=of_pixels("float32"),
        features=of_files(answers.features),
        predict=of_files(answers.probabilities),
        logits=of_inputs(answers, (None, *image_size, channels), "images"),
    )
    return found if attend is None else found | dict(attention=attention)


def on_bytes_of(
    answers: requests.Requests,
    image_size: tuple[int, int],
    channels: int,
    budget: float,
    resize=decode.resize,
):
    """Return a function that applies another to the images of a request."""
    tf = tensorflow()
    image_bytes = tf.TensorSpec((None,), tf.string)

    # One graph for all signatures.
    @tf.function(input_signature=[image_bytes], autograph=False)
    def read(image_bytes):
        with answers.limited(image_bytes):
            image_bytes = tf.identity(image_bytes)
        return decoding.decode_valid(
            image_bytes, image_size, channels, budget, resize
        )

    def on_bytes(image_bytes, function):
        """Return what a function gives of images, what puts it back for all
        images of the request, and the (height, width) of each in its file."""
        images, indices, sizes, undecoded = read(image_bytes)
        number = tf.size(image_bytes)
        places = tf.cast(indices[:, None], tf.int32)

        def put_back(found):
            found = [
                tf.scatter_nd(places, x, (number, *x.shape[1:])) for x in found
            ]
            # Of an image that did not decode this is zero, as all others.
            return (*found[:-1], found[-1] + undecoded)

        return function(images, number), put_back, sizes

    return on_bytes


def video_signatures(
    answers: Answers,
    num_frames: int,
    image_size: tuple[int, int],
    channels: int,
    attend=None,
) -> dict:
    """Return the functions that are served for a model of videos, by name.

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
        def function(video):
            return answer(*answers.run_pixels(from_frames(video)))

        return of_tensor(function, any_size, dtype, "video")

    def attention(video):
        videos = from_frames(video)
        rollout, *layers = attend(videos, tf.shape(videos)[0])
        return answers.attention(rollout, layers)

    video = serve(answers.top)
    found = dict(
        serving_default=video,
        video=video,
        video_float=serve(answers.top, "float32"),
        features=serve(answers.features),
        predict=serve(answers.probabilities),
        logits=of_inputs(answers, (None, *size), "videos"),
    )
    if attend is not None:
        found["attention"] = of_tensor(attention, any_size, "uint8", "video")
    return found


def of_inputs(answers, shape: tuple, name: str):
    """Return the function of what the model itself takes.

    Args:
        answers: What the function answers: `answers.raw`.
        shape: Of the inputs, with None for their number.
        name: Of the inputs.
    """
    tf = tensorflow()

    def function(inputs):
        with answers.limited(inputs):
            inputs = tf.ensure_shape(inputs, shape)
        return answers.raw(*answers.run_pixels(inputs))

    return of_tensor(function, shape, "float32", name)


def of_tensor(function, shape: tuple, dtype: str, name: str):
    """Return a signature of one tensor, given its shape, type and name."""
    tf = tensorflow()
    spec = tf.TensorSpec(shape, dtype, name=name)
    return tf.function(function, input_signature=[spec], autograph=False)
