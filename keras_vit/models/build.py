"""The builder of models of any family."""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import Literal

import keras

from keras_vit import layers
from keras_vit._arguments import (
    Count,
    KerasActivation,
    Natural,
    Policy,
    Positive,
    checked,
)
from keras_vit.models import arguments
from keras_vit.models.families import Family
from keras_vit.models.image_model import ImageModel, vector
from keras_vit.ops.precision import wide_dtype
from keras_vit.weights import checkpoint, load, preprocessing, registry

Weights = str | os.PathLike | keras.Model | checkpoint.Checkpoint | None


@checked
def build(
    family: Family,
    architecture: dict,
    *,
    variant: str | None = None,
    weights: Weights = None,
    include_top: bool = True,
    classes: Count | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: KerasActivation | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    pooling: Literal["levels"] | None = None,
    representation_size: Natural | None = None,
    remat: bool = False,
    pixel_mean: float | Sequence[float] | None = None,
    pixel_std: Positive | Sequence[Positive] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[Count, ...] | None = None,
    resize_patches: bool = False,
    dtype: Policy | None = None,
) -> ImageModel:
    """Builds a model of a family: weights, preprocessing, body and head.

    An argument that is None is taken from the weights. Without weights it has
    the default stated below.

    Args:
        family: The family.
        architecture: Fields of the family's configuration; absent or None takes
            the value of the weights, or else the default.
        variant: Name of the constructor, whose released weights `weights` may
            name.
        weights: Name of released weights ("imagenet21k",
            "imagenet21k+imagenet2012", "augreg", ...; see
            `keras_vit.list_weights`), or a checkpoint (see
            `keras_vit.weights.open_checkpoint`): an authors' npz file, a state
            dict of timm, a directory of transformers or "hf://owner/name", a
            model or preset of keras-hub, our own `.weights.h5` or `.keras`.
            None for random weights.
        include_top: Whether the output is class scores; otherwise it is the
            representation.
        classes: Number of classes; 1000. If it differs from that of the
            weights, the head is new and zero and their `pre_logits` is dropped,
            as the paper fine-tunes.
        input_shape: (height, width, channels) in pixels; (224, 224, 3). For
            videos (frames, height, width, channels). Weights are fitted to
            another size or number of channels.
        classifier_activation: Activation of the head; None gives logits.
        include_preprocessing: Whether the model takes pixels in [0, 255] and
            scales them; otherwise it takes scaled values.
        name: Name of the model; the constructor's.
        pooling: The output with include_top=False. "levels" returns the feature
            map of every level, `[B, H, W, D]`, of a video `[B, T, H, W, D]`,
            finest first, as detectors need them; only for families with levels.
            None returns the representation.
        representation_size: Width of the tanh layer `pre_logits` before the
            head; none.
        remat: Whether blocks recompute their activations in the backward
            pass: less memory, a third more work.
        pixel_mean, pixel_std: Mean and divisor of pixels, one number or one for
            each channel; 127.5, which scales them to [-1, 1].
        head_bias_init: The head's first bias; -10 for a sigmoid loss over
            many classes.
        class_names: Class names, `model.class_names`; none.
        position_grid: (height, width) of the weights' grid of patches, needed
            if it is not square and the file does not specify it; for videos
            (frames, height, width).
        resize_patches: Whether to resize the weights to another `patch_size`
            (FlexiViT) instead of refusing them.
        dtype: Policy of the layers, such as "mixed_bfloat16"; the global one.
            Pixels and the head are float32, or float64 in a model of "float64".
            Of that, only TensorFlow computes all in 64 bits: Keras rounds
            products to float32 under JAX, which needs `jax_enable_x64`, and
            PyTorch.

    Raises:
        ValueError: If an argument has no possible value, if arguments
            contradict one another, if the image is not a multiple of the patch,
            or if the weights do not fit the model.
    """
    source, source_metadata = None, None
    if weights is not None:
        source = registry.open_weights(weights, variant, position_grid)
        if source.family != family.name:
            raise ValueError(
                f"`weights` must be of the family {family.name!r}. Received: "
                f"{source.name!r}, of the family {source.family!r}. Open it "
                "with keras_vit.from_pretrained."
            )
        checkpoint.require(source, architecture)
        source = checkpoint.with_image_size(source, architecture)
        source_metadata = source.metadata
    metadata = source_metadata or {}
    config = _resolve(family.config, architecture, metadata)
    arguments.check_pooling(pooling, include_top, family)
    layers.arguments.check_class_names(class_names, classes)
    if classes is None and class_names is not None:
        classes = len(class_names)
    source_classes = metadata.get("classes")
    if source and include_top and source_classes is None and classes is None:
        raise ValueError(
            "`classes` must be given, or include_top=False, since the weights "
            "have no head. Received: classes=None"
        )
    takes_head = (
        include_top
        and source_classes is not None
        and classes in (None, source_classes)
    )
    if takes_head:
        classes = source_classes
        class_names = (
            metadata.get("class_names") if class_names is None else class_names
        )
        if representation_size is None:
            representation_size = metadata.get("representation_size")
    if input_shape is None:
        default = family.input_shapes.get(variant or "", (224, 224, 3))
        stride = family.stride and family.stride(config)
        input_shape = _input_shape(metadata, stride, default)
    arguments.check_input_shape(input_shape, family.takes_video)
    if source is not None:
        config = checkpoint.fit_sizes(source, config, tuple(input_shape[-3:-1]))

    with _policy(dtype):
        name_of_input = "images" if len(input_shape) == 3 else "videos"
        wide = _wide_dtype()
        images = keras.Input(input_shape, name=name_of_input, dtype=wide)
        x = layers.EnsureShape(name="ensure_shape", dtype=wide)(images)
        if include_preprocessing:
            scale, offset = preprocessing.scale_and_offset(
                pixel_mean,
                pixel_std,
                source_metadata,
                input_shape[-1],  # type: ignore[arg-type]
            )
            x = layers.Rescaling(
                scale, offset, name="preprocessing", dtype=wide
            )(x)
        x = family.forward(config, x)
        if not include_top:
            x = vector(x)
        pixel_mean, pixel_std = preprocessing.known(
            pixel_mean, pixel_std, source_metadata
        )
        x = layers.Metadata(
            family.name,
            dataclasses.asdict(config),
            pixel_mean,
            pixel_std,
            provenance=None if source is None else source.provenance,
            resampling=metadata.get("resampling"),
            name="metadata",
        )(x)
        if include_top and representation_size:
            x = keras.layers.Dense(
                representation_size,
                activation="tanh",
                kernel_initializer="lecun_normal",  # Flax' default
                name="pre_logits",
            )(x)
    if include_top:
        head = layers.ClassificationHead
        if len(x.shape) == 3:
            head = layers.DistilledHead
        x = head(
            1000 if classes is None else classes,
            class_names=class_names,
            activation=classifier_activation,
            bias_initializer=keras.initializers.Constant(head_bias_init),
            name="head",
            dtype=wide,
        )(x)
    model = ImageModel(images, x, name=name or variant or family.title)
    for block in model.blocks if remat else ():
        if not hasattr(block, "remat"):
            raise ValueError(
                f"`remat` must be False for the family {family.name!r}, whose "
                "blocks cannot recompute their activations. Received: "
                "remat=True"
            )
        block.remat = True
    if source is not None:
        wanted = model.metadata
        if not takes_head:
            wanted["classes"] = None
        load.fill(model, source, wanted, resize_patches=resize_patches)
        if takes_head:
            load.warn_if_zero_head(model, source)
    return _with_levels(model, family) if pooling else model


def _with_levels(model, family):
    """Returns a model of the same layers whose outputs are all feature maps."""
    maps = family.levels(model)
    # The metadata belongs to the end of the graph.
    mark = layers.Metadata.from_config(model._metadata.get_config())
    maps[-1] = mark(maps[-1])
    return ImageModel(model.input, maps, name=model.name)


def _resolve(config, given, metadata):
    """Returns a configuration from arguments, then weights, then defaults."""
    fields = {}
    for field in dataclasses.fields(config):
        required = field.default is dataclasses.MISSING
        value = given.get(field.name)
        if value is None and (required or field.metadata.get("inherited")):
            value = metadata.get(field.name)
        if value is None and not required:
            value = field.default
        if value is None and required:
            raise ValueError(
                f"`{field.name}` must be given, since there are no weights to "
                f"take it from. Received: {field.name}=None"
            )
        fields[field.name] = value
    return config(**fields)


def _input_shape(metadata, stride, default):
    """Returns the shape of the input that weights were trained with.

    Args:
        metadata: The metadata of the weights.
        stride: Pixels between cells of the grid, if the config has them.
        default: The shape without weights.
    """
    size = default[:-1]
    if "image_size" in metadata:
        frames = metadata.get("num_frames")
        size = (*([] if frames is None else [frames]), *metadata["image_size"])
    grid = metadata.get("grid")
    if grid is not None:
        stride = stride or metadata["stride"]
        pairs = zip(grid, stride[-len(grid) :], strict=True)
        size = [patches * pixels for patches, pixels in pairs]
    if len(size) < len(default) - 1:  # a model of videos from one of images
        size = (default[0], *size)
    return (*size, metadata.get("channels", default[-1]))


def _wide_dtype():
    """Returns the dtype of pixels and scores, never of 16 bits."""
    dtype = wide_dtype(keras.config.dtype_policy().compute_dtype)
    if dtype == "float32":
        return dtype
    with warnings.catch_warnings(action="ignore"):
        found = keras.ops.zeros((), dtype).dtype
    if keras.backend.standardize_dtype(found) != dtype:
        raise ValueError(
            "`dtype` must be at most float32, unless JAX computes in "
            "64 bits: jax.config.update('jax_enable_x64', True). Received: "
            "a policy of float64"
        )
    if keras.backend.result_type(dtype, dtype) != dtype:
        warnings.warn(
            "Under JAX and PyTorch Keras computes products and means of "
            "float64 in float32. In a model of dtype 'float64' only "
            "TensorFlow computes with 64 bits throughout.",
            stacklevel=2,
        )
    return dtype


@contextlib.contextmanager
def _policy(dtype):
    """Sets a dtype policy, if given, for the layers made inside."""
    before = keras.config.dtype_policy()
    if dtype is not None:
        keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
