"""The arguments that all constructors share, and their checks."""

import os
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

import keras

from keras_vit import _arguments
from keras_vit._arguments import (
    Count,
    KerasActivation,
    Natural,
    Policy,
    Positive,
    check,
)
from keras_vit.weights import checkpoint


class ModelArguments(TypedDict, total=False):
    """The arguments of every constructor, beside the fields of its family.

    An argument that is None is taken from the weights. Without weights it has
    the default stated below.

    Attributes:
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
            weights, the head is replaced by zeros and `pre_logits` is dropped,
            as in the paper's fine-tuning.
        input_shape: (height, width, channels) in pixels; (224, 224, 3), or
            that of a published model, such as (518, 518, 3) of DINOv2. For
            videos (frames, height, width, channels). Weights are fitted to
            another size or number of channels.
        classifier_activation: Activation of the head; None gives logits.
        include_preprocessing: Whether the model takes pixels in [0, 255] and
            scales them; otherwise it takes scaled values.
        name: Name of the model; the constructor's.
        feature_maps: Whether the outputs are feature maps, `[B, H, W, D]`, of a
            video `[B, T, H, W, D]`: of a pyramid those of every level, finest
            first, of other models that of the last block
            (`keras_vit.feature_maps`); only with include_top=False.
        representation_size: Width of the tanh layer `pre_logits` before the
            head; none.
        remat: Whether blocks recompute their activations in the backward
            pass: less memory, a third more work.
        pixel_mean, pixel_std: Mean and divisor of pixels in [0, 255], one
            number or one for each channel; 127.5, which scales them to [-1, 1].
        head_bias_init: The head's first bias, such as -10 for a sigmoid loss
            over many classes; 0.
        class_names: Class names, `model.class_names`; none. A head of weights
            with the same names in another order is put into this order.
        position_grid: (height, width) of the weights' grid of patches, needed
            if it is not square and the file does not specify it, or if as many
            positions are also the grid of `input_shape`; for videos (frames,
            height, width).
        resize_patches: Whether to resize the weights to another `patch_size`
            (FlexiViT) instead of refusing them.
        dtype: Policy of the layers, such as "mixed_bfloat16"; the global one.
            Pixels and the head are float32, or float64 in a model of "float64".
            Of that, only TensorFlow computes all in 64 bits: Keras rounds
            products to float32 under JAX, which needs `jax_enable_x64`, and
            PyTorch.
    """

    weights: str | os.PathLike | keras.Model | checkpoint.Checkpoint | None
    include_top: bool
    classes: Count | None
    input_shape: tuple[int | None, ...] | None
    classifier_activation: KerasActivation | None
    include_preprocessing: bool
    name: str | None
    feature_maps: bool
    representation_size: Natural | None
    remat: bool
    pixel_mean: float | Sequence[float] | None
    pixel_std: Positive | Sequence[Positive] | None
    head_bias_init: float
    class_names: tuple[str, ...] | None
    position_grid: tuple[Count, ...] | None
    resize_patches: bool
    dtype: Policy | None


KINDS = typing.get_type_hints(ModelArguments, include_extras=True)
# None for the others.
DEFAULTS = dict(
    include_top=True,
    include_preprocessing=True,
    feature_maps=False,
    remat=False,
    head_bias_init=0.0,
    resize_patches=False,
)


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all common arguments, each of its kind.

    Args:
        given: Those that the caller gives, and fields of the architecture.

    Raises:
        ValueError: If an argument has no possible value.
    """
    complete = {}
    for name, kind in KINDS.items():
        complete[name] = given.get(name, DEFAULTS.get(name))
        check(complete[name], name, kind)
    return complete


def refuse_unknown(
    constructor: str, given: Collection[str], known: Collection[str]
) -> None:
    """Refuse arguments that a constructor does not have."""
    if "data_format" in given:
        raise ValueError(
            f"{constructor} has no argument `data_format`: images are always "
            "channels-last, [B, H, W, C]. Transpose channels-first images with "
            "keras.ops.transpose(images, (0, 2, 3, 1))."
        )
    _arguments.refuse_unknown(constructor, given, known)


def check_feature_maps(feature_maps, include_top) -> None:
    """Check the output of a model without a head."""
    if feature_maps and include_top:
        raise ValueError(
            "`feature_maps` must be False, or True with include_top=False. "
            f"Received: feature_maps={feature_maps}, include_top={include_top}"
        )


def check_input_shape(input_shape, takes_video: bool = False) -> None:
    """Check that a shape is (height, width, channels), or of a video."""
    shape = input_shape
    names = ("frames", "height", "width", "channels")
    if isinstance(shape, (list, tuple)) and len(shape) in (3, 3 + takes_video):
        names = names[-len(shape) :]
        for length, argument in zip(shape, names, strict=True):
            # The patch embedding refuses unknown sizes.
            if length is not None or argument == "channels":
                check(length, f"{argument} of input_shape", Count)
        return
    expected = "(height, width, channels), such as (224, 224, 3)"
    if takes_video:
        expected += (
            ", or (frames, height, width, channels), such as (16, 224, 224, 3)"
        )
    raise ValueError(
        f"`input_shape` must be {expected}. Received: input_shape={shape!r}"
    )
