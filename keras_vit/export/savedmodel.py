"""A model as a SavedModel: bytes of an image in, class names out."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import re
import shutil
import tempfile

import keras

from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import serving_assets, signatures
from keras_vit.models import ImageModel

ACTIVATIONS = ("softmax", "sigmoid", "none")


def export_savedmodel(
    model: keras.Model,
    path: str | os.PathLike,
    class_names: tuple[str, ...] | None = None,
    top_k: int = 5,
    activation: str | None = None,
    warmup_images: tuple[bytes, ...] = (),
    metadata: dict | None = None,
    overwrite: bool = False,
    max_images: int = 1024,
) -> str:
    """Writes a SavedModel for TF Serving, with its preprocessing.

    Images are decoded, resized and scaled as evaluation does it, in the
    graph. Signatures, all with a free number N of images:

    - `serving_default`: `image_bytes` string [N] (JPEG, PNG, GIF, BMP, WebP;
      grey, colour, with alpha, CMYK; of any sizes) -> `scores` float32 [N, k],
      `classes` string [N, k], `indices` int32 [N, k], `valid` bool [N]
    - `pixels`: `pixels` uint8 [N, H, W, C] of any size -> the same
    - `pixels_float`: `pixels` float32 in [0, 255], else as `pixels`
    - `features`: `image_bytes` -> `features` float32 [N, D], `valid`
    - `predict`: `image_bytes` -> `probabilities` float32 [N, K], `valid`
    - `logits`: `images` float32 of the model's own size -> `features`,
      `logits`, `valid`: the model as it is

    The signatures of a model of video take N tensors of frames, since the
    client decodes video files:

    - `serving_default`, also named `video`: `video` uint8 [N, T, H, W, C], of
      the model's number of frames T and of any size -> `scores`, `classes`,
      `indices`, `valid`
    - `video_float`: `video` float32 in [0, 255] -> the same
    - `features`, `predict`: `video` uint8 -> as of images
    - `logits`: `videos` float32 of the model's own size -> as of images

    Where `valid` is false, the bytes do not decode, or decoding them would
    cost too much (`keras_vit.export.limits`), or the model's outputs are no
    finite numbers. Such an image gets zeros, classes "" and indices -1; the
    others of the request get their answers.

    Args:
        model: A classifier of this package, or one that contains a model of
            it and scales no pixels before that, on the TensorFlow or the JAX
            backend.
        path: Directory of a version, such as "serving/vit/1"; its last part
            is a number. It appears only when it is complete.
        class_names: Class names; None takes the model's, or
            numbers.
        top_k: Number of classes k to answer with, at most all.
        activation: "softmax", "sigmoid" or "none" over the outputs; None
            chooses by the model's loss: sigmoid for a binary cross-entropy, and
            none where the head has an activation of its own.
        warmup_images: Bytes of images, for requests that TF Serving runs
            before it serves a version of a model of images.
        metadata: More for the model card: weights, licence, metrics, commit.
        overwrite: Whether to replace a version that exists.
        max_images: Largest number of images, or videos, in a request. A
            request with more is refused, all of it.

    Returns:
        `path`, absolute.

    Raises:
        ValueError: If the model is no classifier, an argument is
            wrong, the backend cannot export, the version exists, or a
            warm-up image is not one.

    Example:
        keras_vit.export_savedmodel(model, "serving/vit/1")
    """
    path = os.path.abspath(os.fspath(path))
    activation = activation or activation_of(model)
    model = _functional(model)
    _check(model, path, top_k, activation, overwrite, warmup_images)
    if not isinstance(max_images, int) or max_images < 1:
        raise ValueError(
            f"`max_images` must be at least 1. Received: {max_images!r}"
        )
    inner = ImageModel.find(model)
    classes = model.output_shape[-1]
    class_names = _class_names(class_names, inner.class_names, classes)
    base, version = os.path.split(path)
    os.makedirs(base, exist_ok=True)
    # TF Serving looks at directories whose names are numbers, and no others.
    part = tempfile.mkdtemp(prefix=f"incomplete-{version}-", dir=base)
    try:
        _write(
            model,
            part,
            class_names=class_names,
            top_k=min(top_k, classes),
            activation=activation,
            max_images=max_images,
        )
        name = os.path.basename(base)
        serving_assets.write_class_names(part, class_names)
        if warmup_images:
            _try(part, warmup_images)
            serving_assets.write_warmup(
                part, list(warmup_images), name, max_images
            )
        card = describe(model, class_names) | dict(activation=activation)
        serving_assets.write_model_card(
            part, card | dict(name=name) | (metadata or {})
        )
        os.chmod(part, 0o755)
        _move(part, path, overwrite)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    serving_assets.write_serving_configs(
        base, os.path.basename(base), max_images
    )
    return path


def _functional(model):
    """Returns a model with a symbolic input and output."""
    if isinstance(getattr(model, "input", None), keras.KerasTensor):
        return model
    images = keras.Input(ImageModel.find(model).input_shape[1:])
    return keras.Model(images, model(images), name=model.name)


def _class_names(class_names, own, classes):
    """Returns a name for each class."""
    if class_names is None and own is not None and len(own) == classes:
        class_names = own
    if class_names is None:
        class_names = [str(i) for i in range(classes)]
    if isinstance(class_names, str) or len(class_names) != classes:
        raise ValueError(
            f"`class_names` must be a name for each of the {classes} classes. "
            f"Received: {class_names!r}"
        )
    class_names = [str(name) for name in class_names]
    if any(len(name.splitlines()) > 1 for name in class_names):
        raise ValueError("`class_names` must be names without line breaks.")
    return class_names


def _check(model, path, top_k, activation, overwrite, warmup_images):
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise ValueError(
            "A SavedModel is written on the TensorFlow or the JAX backend. "
            f"Received: {backend}. Save the model as .keras and export it "
            "with KERAS_BACKEND=tensorflow."
        )
    inner = ImageModel.find(model)
    has_head = getattr(model, "output", None) is not inner.representation
    if not has_head or len(getattr(model, "output_shape", ())) != 2:
        raise ValueError(
            "`model` must be a classifier, with one score for each class. "
            f"Received: {model.name!r}, with output "
            f"{getattr(model, 'output_shape', 'unknown')}"
        )
    if not inner.includes_preprocessing:
        raise ValueError(
            "`model` must scale its pixels itself, since it is served with "
            "those of files. Received: one without `preprocessing`; build it "
            "with include_preprocessing=True"
        )
    if model.input_shape[-1] not in (1, 3):
        raise ValueError(
            "`model` must take 1 or 3 channels, as files have. "
            f"Received: input_shape={model.input_shape}"
        )
    if warmup_images and inner.num_frames is not None:
        raise ValueError(
            "`warmup_images` must be empty for a model of video, whose "
            "requests contain frames, not image files. Received: "
            f"{len(warmup_images)} images"
        )
    if not re.fullmatch("0|[1-9][0-9]{0,17}", os.path.basename(path)):
        raise ValueError(
            "`path` must end in the number of a version, such as "
            f"'serving/vit/1'. Received: path={path!r}"
        )
    serving_assets.check_model_name(os.path.basename(os.path.dirname(path)))
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
    """Returns what makes probabilities of a model's outputs, by its loss.

    "none" where its last layer does so itself.
    """
    last = _last_layer(model)
    own = getattr(last, "activation", keras.activations.linear)
    if isinstance(last, keras.layers.Softmax) or (
        own is not None and own is not keras.activations.linear
    ):
        return "none"
    loss = next(iter(keras.tree.flatten(getattr(model, "loss", None))), None)
    name = (
        loss
        if isinstance(loss, str)
        else getattr(loss, "__name__", type(loss).__name__)
    )
    binary = "binary" in name.lower() or "sigmoid" in name.lower()
    return "sigmoid" if binary else "softmax"


def _last_layer(model):
    """Returns the layer that makes the output, within however many models."""
    history = getattr(getattr(model, "output", None), "_keras_history", None)
    last = history.operation if history else model.layers[-1]
    return _last_layer(last) if getattr(last, "layers", None) else last


def describe(model: keras.Model, class_names) -> dict:
    """Returns the metadata of a model's card that the model specifies."""
    *frames, height, width, channels = model.input_shape[1:]
    return dict(
        architecture=model.name,
        classes=len(class_names),
        class_names=list(class_names[:10]),
        input=dict(
            **({"frames": frames[0]} if frames else {}),
            height=height,
            width=width,
            channels=channels,
            scaling="in the model, from pixels in [0, 255]",
        ),
        num_parameters=model.count_params(),
        precision=ImageModel.find(model).blocks[0].dtype_policy.name,
        keras=keras.__version__,
        keras_vit=_package_version(),
        backend=keras.backend.backend(),
        exported_at=datetime.datetime.now(datetime.UTC).isoformat(
            "T", "seconds"
        ),
    )


def _package_version():
    try:
        return importlib.metadata.version("keras-vision-transformer")
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path
        return None


def _try(directory, images):
    """Asks about each warm-up image: one that is not valid warms nothing."""
    tf = tensorflow()
    loaded = tf.saved_model.load(directory)
    function = loaded.signatures["serving_default"]
    for i, image in enumerate(images):
        if not function(image_bytes=tf.constant([image]))["valid"][0]:
            raise ValueError(
                "`warmup_images` must be JPEG, PNG, GIF, BMP or WebP files. "
                f"Received: warmup_images[{i}] of {len(image)} bytes, which "
                "does not decode"
            )


def _write(model, directory, **arguments):
    tf = tensorflow()
    both = _with_features(model)
    images = tf.TensorSpec((None, *model.input_shape[1:]), "float32")

    def serve(forward):
        answers = signatures.Answers(forward, **arguments)
        *frames, height, width, channels = model.input_shape[1:]
        if frames:
            return signatures.video_signatures(
                answers, *frames, (height, width), channels
            )
        return signatures.signatures(answers, (height, width), channels)

    if keras.backend.backend() == "jax":
        with _without_paths():
            _write_from_jax(both, images, directory, serve)
        return

    # Keras' archive would save each variable twice on TensorFlow.
    @tf.function(input_signature=[images])
    def forward(images):
        return both(images, training=False)

    module = tf.Module()
    module.weights_of_the_model = [v.value for v in both.variables]
    module.functions = serve(lambda images, number: forward(images))
    tf.saved_model.save(module, directory, signatures=module.functions)


def _with_features(model):
    """Returns a model that gives features and scores."""
    inner = ImageModel.find(model)
    if getattr(inner, "input", None) is getattr(model, "input", None):
        return keras.Model(model.input, [inner.representation, model.output])
    return _Watching(model, inner)


class _Watching(keras.Model):
    """Gives the output of a model within another, and the other's."""

    def __init__(self, model, inner):
        super().__init__(name="with_features")
        self.model, self.inner = model, inner
        self.built = True

    def call(self, images, training=None):
        with self.inner.watched() as seen:
            scores = self.model(images, training=False)
        return [seen[-1][1], scores]


@contextlib.contextmanager
def _without_paths():
    """Keeps the paths of this machine's source files out of JAX' programs."""
    import jax

    values = dict(
        jax_hlo_source_file_canonicalization_regex=".*",
        jax_include_full_tracebacks_in_locations=False,
    )
    before = {name: getattr(jax.config, name) for name in values}
    try:
        for name, value in values.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _write_from_jax(model, images, directory, serve):
    tf = tensorflow()
    symbolic = keras.KerasTensor(tuple(images.shape), "float32")
    outputs = keras.tree.flatten(model.compute_output_spec(symbolic))
    archive = keras.export.ExportArchive()
    of_some = archive.track_and_add_endpoint(
        "forward",
        model,
        input_signature=[images],
        # Made on one kind of machine, served on another.
        jax2tf_kwargs={
            "with_gradient": False,
            "native_serialization_platforms": ("cpu", "cuda"),
        },
    )

    def forward(images, number):
        # XLA compiles for each number of images that it meets: the number in
        # the request, or a power of two where some of them are not valid.
        found = tf.shape(images)[0]
        powers = tf.constant([2**i for i in range(31)])
        batch = tf.reduce_min(powers[powers >= found])
        rest = tf.minimum(batch, number) - found

        def run():
            padding = [[0, rest], *[[0, 0]] * (len(images.shape) - 1)]
            return [x[:found] for x in of_some(tf.pad(images, padding))]

        def nothing():
            return [tf.zeros((0, *x.shape[1:]), x.dtype) for x in outputs]

        return tf.cond(found > 0, run, nothing)

    for name, function in serve(forward).items():
        archive.add_endpoint(name, function)
    archive.write_out(directory, verbose=False)


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


def read_class_names(path: str | os.PathLike) -> tuple[str, ...]:
    """Reads class names: one per line, or a JSON list."""
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
