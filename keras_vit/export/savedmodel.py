"""A model as a SavedModel: bytes of an image in, names of classes out."""

import datetime
import importlib.metadata
import json
import os
import re
import shutil
import tempfile

import keras

from keras_vit import layers
from keras_vit.data import decode
from keras_vit.data.lazy import tensorflow
from keras_vit.export import furniture, sound

ACTIVATIONS = ("softmax", "sigmoid", "none")


def export_savedmodel(
    model: keras.Model,
    path: str | os.PathLike,
    labels: tuple[str, ...] | None = None,
    top_k: int = 5,
    activation: str | None = None,
    warmup_images: tuple[bytes, ...] = (),
    facts: dict | None = None,
    overwrite: bool = False,
) -> str:
    """Writes a SavedModel for TF Serving, with all that stands before it.

    Images are decoded, resized and scaled as evaluation does it, in the
    graph. Signatures, all with a free number N of images:

    - `serving_default`: `image_bytes` string [N] (JPEG, PNG, GIF, BMP; grey,
      colour, with alpha, CMYK; of any sizes) -> `scores` float32 [N, k],
      `classes` string [N, k], `indices` int32 [N, k], `valid` bool [N]
    - `pixels`: `pixels` uint8 [N, H, W, C] of any size -> the same
    - `pixels_float`: `pixels` float32 in [0, 255], else as `pixels`
    - `features`: `image_bytes` -> `features` float32 [N, D], `valid`
    - `predict`: `image_bytes` -> `probabilities` float32 [N, K], `valid`
    - `logits`: `images` float32 of the model's own size -> `features`,
      `logits`: the model as it is

    Where `valid` is false, the bytes are no image or a part of one; numbers
    are NaN, classes "" and indices -1.

    Args:
        model: A classifier of this package, on the TensorFlow or the JAX
            backend.
        path: Directory of a version, such as "serving/vit/1"; its last part
            is a number. It appears only when it is complete.
        labels: Names of the classes; None takes the model's own, or numbers.
        top_k: Number of classes k to answer with, at most all.
        activation: "softmax", "sigmoid" or "none" over the outputs; None
            tells by the model's loss: sigmoid for a binary cross-entropy, and
            none where the head has an activation of its own.
        warmup_images: Bytes of images, for requests that TF Serving runs
            before it serves a version.
        facts: More for the model card: weights, licence, metrics, commit.
        overwrite: Whether to replace a version that exists.

    Returns:
        `path`, absolute.

    Raises:
        ValueError: If the model is no image classifier, an argument is
            wrong, the backend cannot export, the version exists, or a
            warm-up image is not one.

    Example:
        keras_vit.export_savedmodel(model, "serving/vit/1")
    """
    path = os.path.abspath(os.fspath(path))
    _check(model, path, top_k, activation, overwrite)
    head = model.get_layer("head")
    labels = _labels(labels, head)
    activation = activation or activation_of(model)
    base, version = os.path.split(path)
    os.makedirs(base, exist_ok=True)
    # TF Serving looks at directories whose names are numbers, and no others.
    part = tempfile.mkdtemp(prefix=f"incomplete-{version}-", dir=base)
    try:
        _write(model, part, labels, min(top_k, head.units), activation)
        name = os.path.basename(base)
        furniture.write_labels(part, labels)
        if warmup_images:
            _try(part, warmup_images)
            furniture.write_warmup(part, list(warmup_images), name)
        card = describe(model, labels) | dict(activation=activation)
        furniture.write_model_card(part, card | dict(name=name) | (facts or {}))
        os.chmod(part, 0o755)
        _move(part, path, overwrite)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    furniture.write_serving_configs(base, os.path.basename(base))
    return path


def _labels(labels, head):
    """Returns a name for each class."""
    if labels is None:
        labels = head.labels or [str(i) for i in range(head.units)]
    if isinstance(labels, str) or len(labels) != head.units:
        raise ValueError(
            f"`labels` must be a name for each of the {head.units} classes. "
            f"Received: {labels!r}"
        )
    labels = [str(label) for label in labels]
    if any(len(label.splitlines()) > 1 for label in labels):
        raise ValueError("`labels` must be names without line breaks.")
    return labels


def _check(model, path, top_k, activation, overwrite):
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise ValueError(
            "A SavedModel is written on the TensorFlow or the JAX backend. "
            f"Received: {backend}. Save the model as .keras and export it "
            "with KERAS_BACKEND=tensorflow."
        )
    if not any(layer.name == "head" for layer in model.layers) or (
        len(model.output_shape) != 2
    ):
        raise ValueError(
            "`model` must be a classifier of keras_vit, with a layer `head`. "
            f"Received: {model.name!r}, with output {model.output_shape}"
        )
    if not isinstance(model.get_layer("head"), layers.ClassificationHead):
        raise ValueError(
            "`model` must have a head of keras_vit. Received: "
            f"{type(model.get_layer('head')).__name__}"
        )
    if not any(layer.name == "preprocessing" for layer in model.layers):
        raise ValueError(
            "`model` must scale its pixels itself, since it is served with "
            "those of files. Received: one without `preprocessing`; build it "
            "with include_preprocessing=True"
        )
    if model.input_shape[-1] not in (1, 3):
        raise ValueError(
            "`model` must take images of 1 or 3 channels, as files have. "
            f"Received: input_shape={model.input_shape}"
        )
    if not re.fullmatch("0|[1-9][0-9]{0,17}", os.path.basename(path)):
        raise ValueError(
            "`path` must end in the number of a version, such as "
            f"'serving/vit/1'. Received: path={path!r}"
        )
    furniture.check_model_name(os.path.basename(os.path.dirname(path)))
    if os.path.exists(path) and not overwrite:
        raise ValueError(
            f"`path` must be a new version: {path!r} exists. Take the next "
            "number, or pass overwrite=True."
        )
    if not isinstance(top_k, int) or top_k < 1:
        raise ValueError(f"`top_k` must be at least 1. Received: {top_k!r}")
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {ACTIVATIONS} or None. Received: "
            f"activation={activation!r}"
        )


def activation_of(model: keras.Model) -> str:
    """Returns what makes probabilities of a model's outputs, by its loss."""
    own = model.get_layer("head").activation
    if own is not None and own is not keras.activations.linear:
        return "none"
    loss = next(iter(keras.tree.flatten(getattr(model, "loss", None))), None)
    name = (
        loss
        if isinstance(loss, str)
        else getattr(loss, "__name__", type(loss).__name__)
    )
    binary = "binary" in name.lower() or "sigmoid" in name.lower()
    return "sigmoid" if binary else "softmax"


def describe(model: keras.Model, labels) -> dict:
    """Returns the facts of a model that its card can tell by itself."""
    height, width, channels = model.input_shape[1:]
    return dict(
        architecture=model.name,
        classes=len(labels),
        labels=list(labels[:10]),
        input=dict(
            height=height,
            width=width,
            channels=channels,
            scaling="in the model, from pixels in [0, 255]",
        ),
        num_parameters=model.count_params(),
        precision=model.get_layer("encoder_norm").dtype_policy.name,
        keras=keras.__version__,
        keras_vit=_own_version(),
        backend=keras.backend.backend(),
        exported_at=datetime.datetime.now(datetime.UTC).isoformat(
            "T", "seconds"
        ),
    )


def _own_version():
    try:
        return importlib.metadata.version("keras-vision-transformer")
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path
        return None


def _try(directory, images):
    """Asks about each warm-up image: one that fails would keep TF Serving
    from loading the version."""
    tf = tensorflow()
    loaded = tf.saved_model.load(directory)
    function = loaded.signatures["serving_default"]
    for i, image in enumerate(images):
        try:
            valid = bool(function(image_bytes=tf.constant([image]))["valid"][0])
        except tf.errors.OpError:
            valid = False
        if not valid:
            raise ValueError(
                "`warmup_images` must be whole JPEG, PNG, GIF or BMP files. "
                f"Received: warmup_images[{i}] of {len(image)} bytes, which "
                "does not decode"
            )


def _write(model, directory, labels, top_k, activation):
    tf = tensorflow()
    height, width, channels = model.input_shape[1:]
    names = [layer.name for layer in model.layers]
    first = "pre_logits" if "pre_logits" in names else "head"
    both = keras.Model(
        model.input, [model.get_layer(first).input, model.output]
    )
    images = tf.TensorSpec((None, height, width, channels), "float32")

    def signatures(forward):
        return _signatures(
            forward, (height, width), channels, labels, top_k, activation
        )

    if keras.backend.backend() == "jax":
        archive = keras.export.ExportArchive()
        of_some = archive.track_and_add_endpoint(
            "forward",
            both,
            input_signature=[images],
            # Made on one kind of machine, served on another.
            jax2tf_kwargs={
                "with_gradient": False,
                "native_serialization_platforms": ("cpu", "cuda"),
            },
        )

        def forward(images):
            # JAX compiles for any number of images but none.
            number = tf.shape(images)[0]
            one = tf.cast(number == 0, "int32")
            images = tf.pad(images, [[0, one], [0, 0], [0, 0], [0, 0]])
            return [output[:number] for output in of_some(images)]

        for name, function in signatures(forward).items():
            archive.add_endpoint(name, function)
        archive.write_out(directory, verbose=False)
        return

    # Keras' archive would save each variable twice on TensorFlow.
    @tf.function(input_signature=[images])
    def forward(images):
        return both(images, training=False)

    module = tf.Module()
    module.weights_of_the_model = [v.value for v in both.variables]
    module.functions = signatures(forward)
    tf.saved_model.save(module, directory, signatures=module.functions)


def _signatures(forward, image_size, channels, labels, top_k, activation):
    """Returns the functions that are served, by name."""
    tf = tensorflow()
    labels = tf.constant(list(labels))
    size = (*image_size, channels)

    def read(encoded):
        valid = sound.is_sound(encoded)

        def pixels():
            image = decode.decode_image(encoded, channels)
            return tf.cast(decode.resize(image, image_size), "float32")

        image = tf.cond(valid, pixels, lambda: tf.zeros(size))
        return tf.ensure_shape(image, size), valid

    image_bytes = tf.TensorSpec((None,), tf.string, name="image_bytes")
    any_size = (None, None, None, channels)
    of_bytes = {"input_signature": [image_bytes]}

    @tf.function(**of_bytes)  # one graph for all signatures that read bytes
    def from_bytes(image_bytes):
        images, valid = tf.map_fn(
            read,
            image_bytes,
            fn_output_signature=(tf.TensorSpec(size, "float32"), tf.bool),
        )
        features, logits = forward(images)
        return (*_floats(features, logits), valid)

    def _floats(*tensors):
        return [tf.cast(tensor, "float32") for tensor in tensors]

    def from_pixels(pixels):
        images = tf.image.resize(pixels, image_size)
        _, logits = forward(images)
        return logits, tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])

    def probabilities_of(logits):
        logits = tf.cast(logits, "float32")
        if activation == "none":
            return logits
        return getattr(tf.nn, activation)(logits)

    def hide(values, valid, instead):
        """Puts `instead` where an image is not valid."""
        return tf.where(valid[:, None], values, instead)

    def answer(logits, valid):
        scores, indices = tf.math.top_k(probabilities_of(logits), top_k)
        # Pixels may be no numbers too, and half precision may overflow.
        valid &= tf.reduce_all(tf.math.is_finite(logits), axis=-1)
        return dict(
            scores=hide(scores, valid, float("nan")),
            classes=hide(tf.gather(labels, indices), valid, ""),
            indices=hide(indices, valid, -1),
            valid=valid,
        )

    @tf.function(**of_bytes)
    def serving_default(image_bytes):
        _, logits, valid = from_bytes(image_bytes)
        return answer(logits, valid)

    @tf.function(**of_bytes)
    def features(image_bytes):
        found, _, valid = from_bytes(image_bytes)
        return dict(features=hide(found, valid, float("nan")), valid=valid)

    @tf.function(**of_bytes)
    def predict(image_bytes):
        _, logits, valid = from_bytes(image_bytes)
        found = probabilities_of(logits)
        return dict(probabilities=hide(found, valid, float("nan")), valid=valid)

    @tf.function(
        input_signature=[tf.TensorSpec(any_size, tf.uint8, name="pixels")]
    )
    def pixels(pixels):
        return answer(*from_pixels(pixels))

    @tf.function(
        input_signature=[tf.TensorSpec(any_size, "float32", name="pixels")]
    )
    def pixels_float(pixels):
        return answer(*from_pixels(pixels))

    @tf.function(
        input_signature=[tf.TensorSpec((None, *size), "float32", name="images")]
    )
    def logits(images):
        found = _floats(*forward(images))
        return dict(zip(("features", "logits"), found, strict=True))

    return dict(
        serving_default=serving_default,
        pixels=pixels,
        pixels_float=pixels_float,
        features=features,
        predict=predict,
        logits=logits,
    )


def _move(part, path, overwrite):
    """Puts a complete version in its place, in one step."""
    if not (overwrite and os.path.exists(path)):
        try:
            os.rename(part, path)
        except OSError as error:
            if os.path.exists(path):
                raise ValueError(
                    f"`path` must be a new version: {path!r} has appeared "
                    "meanwhile. Take the next number."
                ) from error
            raise
        return
    if not os.path.isfile(os.path.join(path, "saved_model.pb")):
        raise ValueError(
            f"`path` must be a version to overwrite. Received: {path!r}, "
            "which holds no saved_model.pb"
        )
    old = tempfile.mkdtemp(prefix="replaced-", dir=os.path.dirname(part))
    os.rename(path, os.path.join(old, "version"))
    try:
        os.rename(part, path)
    except OSError:
        os.rename(os.path.join(old, "version"), path)
        raise
    finally:
        shutil.rmtree(old)


def read_labels(path: str | os.PathLike) -> tuple[str, ...]:
    """Reads names of classes: a name a line, or a JSON list."""
    with open(path, encoding="utf-8-sig") as file:
        text = file.read()
    if not os.fspath(path).endswith(".json"):
        return tuple(text.splitlines())
    found = json.loads(text)
    if not isinstance(found, list):
        raise ValueError(
            f"{os.fspath(path)!r} must hold a JSON list of names. Received: "
            f"{type(found).__name__}"
        )
    return tuple(map(str, found))
