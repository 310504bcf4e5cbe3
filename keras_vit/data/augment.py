"""Augmentation with layers of Keras, given by name and arguments."""

import difflib
import inspect

import keras

from keras_vit._keras import Equalization, draw_from, nested_layers
from keras_vit.data import named
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold

# Layers that mix the images of a batch, and its labels.
MIXING = (keras.layers.CutMix, keras.layers.MixUp)
# Image augmentation layers have one of these methods.
METHODS = ("transform_images", "augment_image", "augment_images")
# Settings of "How to train your ViT", section 3: operations and magnitude of
# RandAugment, alpha of MixUp; names as in the file names of the release (the
# paper's light1 and light2 are light0 and light1 there).
AUGREG = {
    "none": (0, 0, 0.0),
    "light0": (2, 0, 0.0),
    "light1": (2, 10, 0.2),
    "medium1": (2, 15, 0.2),
    "medium2": (2, 15, 0.5),
    "strong1": (2, 20, 0.5),
    "strong2": (2, 20, 0.8),
}


def find_layers(augment: tuple[str, ...], classes: int) -> tuple[list, list]:
    """Make layers from their names and arguments.

    Each text is one of:

    - `"RandomErasing(factor=0.5)"`, an image augmentation layer of
      `keras.layers`, except AugMix, with literal arguments, applied to each
      image separately. Those that mix images, such as `"MixUp(alpha=0.2)"`, are
      applied to the batch, and mix the labels as well;
    - `"batch:RandomErasing(factor=0.5)"`, applied to the batch;
    - `"my_module:MyLayer(factor=0.5)"`, a layer of your own, a subclass
      of such a layer;
    - a setting of the augreg models: none, light0, light1, medium1, medium2,
      strong1 or strong2, (operations, magnitude) of RandAugment and alpha of
      MixUp. The authors' magnitude m, of 10 or more, becomes Keras' factor
      0.03 m, which gives the authors' largest shear and translation (0.3 at m =
      10). Keras draws each strength between 0 and the largest, rotates further
      and changes colours less; its MixUp draws a weight for each image, the
      authors' for each batch.

    Layers that have these arguments get the range of pixels, 0 to 255, the seed
    and the number of classes.

    Args:
        augment: The texts; layers of one image are applied first, in any order.
        classes: Number of classes.

    Returns:
        Layers for one image and layers for a batch, in the order given.

    Raises:
        ValueError: If a text is none of these (with the nearest names), or
            the layer refuses its arguments.

    Reference:
        Steiner et al. 2021 (arXiv 2106.10270), section 3.
    """
    of_image, of_batch = [], []
    for text in augment:
        for layer_text in _expand(text):
            bare = layer_text.removeprefix("batch:")
            layer = _make(bare, classes)
            mixes = bare != layer_text or isinstance(layer, MIXING)
            (of_batch if mixes else of_image).append(_Seeded(layer, bare))
    return of_image, of_batch


def augment_image(layers: list, image, seed):
    """Apply the first result of `find_layers` to an image or a clip.

    All frames of a clip are augmented in the same way. The result, float32
    unless there are no layers, depends only on the arguments.

    Args:
        image: `[H, W, C]` or `[T, H, W, C]`, in [0, 255].
        seed: Two integers.
    """
    tf = tensorflow()

    def augment_frame(frame):
        for i, layer in enumerate(layers):
            found = layer(frame, fold(seed, i))
            frame = tf.ensure_shape(found, frame.shape)
        return frame

    if not layers:
        return image
    image = tf.cast(image, "float32")
    if image.shape.rank == 3:
        return augment_frame(image)
    return tf.map_fn(augment_frame, image)


def augment_batch(layers: list, batch: dict, seed) -> dict:
    """Apply the second result of `find_layers` to a batch.

    Args:
        batch: {"images": `[B, H, W, C]` or `[B, T, H, W, C]`, "labels":
            one-hot `[B, K]`}; images become float32.
        seed: Two integers.
    """
    tf = tensorflow()
    if not layers:
        return batch
    images = tf.cast(batch["images"], "float32")
    if images.shape.rank == 4:
        return _augment_frames(layers, {**batch, "images": images}, seed)
    # The frames of a clip one after the other, with the same seed: each is
    # mixed with the same example at the same position, and has the same label.
    frames = tf.transpose(images, (1, 0, 2, 3, 4))
    mixed = tf.map_fn(
        lambda frame: _augment_frames(layers, {**batch, "images": frame}, seed),
        frames,
        fn_output_signature={
            key: tf.TensorSpec(
                frames.shape[1:] if key == "images" else value.shape, "float32"
            )
            for key, value in batch.items()
        },
    )
    return {
        key: tf.transpose(value, (1, 0, 2, 3, 4))
        if key == "images"
        else value[0]
        for key, value in mixed.items()
    }


def _augment_frames(layers, batch, seed):
    """Apply layers to a batch of images."""
    tf = tensorflow()
    for i, layer in enumerate(layers):
        layer_seed = fold(seed, i)
        if isinstance(layer.layer, MIXING):
            found = layer(dict(batch), layer_seed)
        else:
            found = {**batch, "images": layer(batch["images"], layer_seed)}
        batch = {
            key: tf.ensure_shape(found[key], value.shape)
            for key, value in batch.items()
        }
    return batch


class RandAugment(keras.layers.RandAugment):
    """Keras' RandAugment, which computes only the operations that were drawn.

    Keras computes all eleven operations for every image and then selects.
    """

    def build(self, input_shape):
        self.equalization = Equalization(
            value_range=self.value_range, dtype=self.dtype_policy
        )
        super().build(input_shape)

    def transform_images(self, images, transformation, training=True):
        tf = tensorflow()
        images = self.backend.cast(images, self.compute_dtype)
        for drawn in tf.unstack(transformation["layer_idxes"], self.num_ops):
            images = tf.switch_case(
                drawn,
                [
                    lambda name=name, how=how, images=images: getattr(
                        self, name
                    ).transform_images(images, how)
                    for name, how in transformation["transforms"].items()
                ],
            )
        return images


class _Draws(keras.random.SeedGenerator):
    """A sequence of seeds derived from one; Keras would count in a variable.

    Parallel calls would increment a variable in any order, and it would start
    from the beginning at any step.
    """

    def __init__(self):  # without that of Keras, which makes the variable
        self.begin(None)

    def begin(self, seed):
        self.seed, self.count = seed, 0

    def next(self, ordered=True):
        self.count += 1
        return fold(self.seed, self.count)


class _Seeded:
    """A layer that draws from the seed it is called with."""

    def __init__(self, layer, text):
        self.layer, self.text, self.draws = layer, text, _Draws()
        for part in [layer, *nested_layers(layer)]:
            draw_from(part, self.draws)

    def __call__(self, data, seed):
        # The draws are counted while the function of the data set is traced.
        self.draws.begin(seed)
        try:
            # Keras' code has no Python that AutoGraph needs to convert.
            unconverted = tensorflow().autograph.experimental.do_not_convert
            return unconverted(self.layer)(data)
        except (
            AttributeError,
            NotImplementedError,
            TypeError,
            ValueError,
        ) as error:
            images = data["images"] if isinstance(data, dict) else data
            raise ValueError(
                f"`augment` must have layers that take images of "
                f"{images.shape}. Received: {self.text!r}: {error}"
            ) from error


def _expand(text):
    """Return the layers of a named setting."""
    if text not in AUGREG:
        return (text,)
    num_ops, magnitude, alpha = AUGREG[text]
    factor = round(0.03 * magnitude, 2)
    texts = (f"RandAugment(num_ops={num_ops}, factor={factor})",) * bool(
        num_ops
    )
    return texts + (f"MixUp(alpha={alpha})",) * bool(alpha)


def _make(text, classes):
    name, positional, keywords = _parse(text)
    kind = _find(name, text)
    parameters = inspect.signature(kind).parameters
    known = [name for name in parameters if name != "kwargs"]
    for argument in keywords:
        if argument not in known or argument == "seed":
            nearest = difflib.get_close_matches(argument, known, n=3)
            raise ValueError(
                f"`augment` must give {name} arguments of its own but `seed`: "
                f"{known}. Received: {argument!r} in {text!r}. "
                f"Nearest names: {nearest or 'none'}"
            )
    # Pipelines use float32, whatever the dtype policy of the model.
    given = {"value_range": (0, 255), "seed": 0, "num_classes": classes}
    given = {key: given[key] for key in given if key in parameters}
    # Positional arguments are the first parameters.
    for key in list(parameters)[: len(positional)]:
        given.pop(key, None)
    # Images end in their channels, also within layers that make others.
    data_format = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_last")
    try:
        return kind(*positional, **{**given, **keywords}, dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`augment` must give {name} arguments that it takes. "
            f"Received: {text!r}: {error}"
        ) from error
    finally:
        keras.config.set_image_data_format(data_format)


def _parse(text):
    """Return name, positional and keyword arguments of a call, unevaluated."""
    try:
        return named.parse(text)
    except ValueError as error:
        raise ValueError(
            "`augment` must hold texts such as 'RandomErasing(factor=0.5)', "
            f"with literal arguments, or names of {list(AUGREG)}. "
            f"Received: {text!r}"
        ) from error


def _is_augmentation(value):
    return (
        isinstance(value, type)
        and issubclass(value, keras.layers.Layer)
        and any(hasattr(value, method) for method in METHODS)
    )


def _find(name, text):
    """Return the class of a layer."""
    if ":" in name:
        kind = named.imported(name, "augment")
        if not _is_augmentation(kind):
            raise ValueError(
                "`augment` must name a Keras layer with one of the methods "
                f"{METHODS}. Received: {text!r}"
            )
        return kind
    if "." in name:
        raise ValueError(
            "`augment` must name layers of Keras, such as 'MixUp()', or yours "
            f"as 'module:Layer'. Received: {text!r}. (Layers of KerasCV draw "
            "from the state of TensorFlow: a run could not be resumed.)"
        )
    layers = {**vars(keras.layers), "RandAugment": RandAugment}
    layers["Equalization"] = Equalization
    # It chooses its operations in Python, so only once, when tf.data traces it.
    del layers["AugMix"]
    names = [name for name in layers if _is_augmentation(layers[name])]
    if name not in names:
        nearest = difflib.get_close_matches(name, [*names, *AUGREG], n=5)
        raise ValueError(
            f"`augment` must hold names of {list(AUGREG)} or of the image "
            f"augmentation layers of keras.layers. Received: {text!r}. "
            f"Nearest names: {nearest or sorted(names)}"
        )
    return layers[name]
