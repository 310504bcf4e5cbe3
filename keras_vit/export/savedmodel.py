"""Exports a model as a SavedModel, from image bytes to what it finds."""

import os
import re
import shutil
import tempfile
import typing
from typing import Literal, TypedDict, Unpack

import keras
import numpy as np

from keras_vit._arguments import Count, Positive, checked
from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import (
    description,
    graph,
    limits,
    serving_assets,
    task_signatures,
)
from keras_vit.export.precision import warn_of_slow_int8
from keras_vit.export.scores import activation_of, class_names_of
from keras_vit.heads import TaskModel
from keras_vit.models import ImageModel

Activation = Literal["softmax", "sigmoid", "none"]
ACTIVATIONS = typing.get_args(Activation)
TOP_K = 5  # classes in an answer


class RequestOptions(TypedDict, total=False):
    """The limits of a request, and what segments are.

    Attributes:
        max_images: Largest number of images, or videos, in a request, by
            default 32. A request with more is rejected as a whole. The memory
            of a request grows with it, most of all that of `attention`.
        decoding_budget: Seconds of one core, as estimated, for decoding the
            images of a request, by default 3.3. Photographs and small images
            are free.
        interpret: Of segmentation by queries (EoMT): those of the options
            `kind`, `threshold`, `mask_threshold`, `overlap_threshold` and
            `stuff_classes` of `TaskModel.interpret` that are not the default.
    """

    max_images: Count
    decoding_budget: Positive
    interpret: dict


@checked
def export_savedmodel(
    model: keras.Model,
    path: str | os.PathLike,
    class_names: tuple[str, ...] | None = None,
    top_k: Count | None = None,
    activation: Activation | None = None,
    warmup_images: tuple[bytes, ...] = (),
    warmup_videos: tuple[np.ndarray, ...] = (),
    metadata: dict | None = None,
    overwrite: bool = False,
    **request: Unpack[RequestOptions],
) -> str:
    """Write a SavedModel for TF Serving, with its preprocessing.

    The graph decodes images, stretches them to the model's size (EoMT may pad
    them) and scales them, as evaluation does without a central crop.
    Signatures, each for any number N of images:

    - `serving_default`: `image_bytes` string [N] (JPEG, PNG, GIF, BMP, WebP;
      grey, colour, with alpha, CMYK; of any sizes) -> `scores` float32 [N, k],
      `classes` string [N, k], `indices` int32 [N, k], `valid` bool [N],
      `reason` string [N]
    - `pixels`: `pixels` uint8 [N, H, W, C] of any size -> the same
    - `pixels_float`: `pixels` float32 in [0, 255], else as `pixels`
    - `features`: `image_bytes` -> `features` float32 [N, D], `valid`
    - `predict`: `image_bytes` -> `probabilities` float32 [N, K], `valid`
    - `logits`: `images` float32 of the model's own size -> `features`,
      `logits`, `valid`: the model alone, without decoding and resizing

    - `attention`, for a model with attention: `image_bytes` -> `rollout`
      float32 [N, rows, columns], and `layer_1` and so on, float32
      [N, A, rows, columns] for A heads, as in `keras_vit.inspection`; `valid`

    The signatures of a video model take N tensors of frames, because the
    client decodes video files:

    - `serving_default`, also named `video`: `video` uint8 [N, T, H, W, C], of
      the model's number of frames T and of any size -> `scores`, `classes`,
      `indices`, `valid`
    - `video_float`: `video` float32 in [0, 255] -> the same
    - `features`, `predict`, `attention`: `video` uint8 -> as for images; maps
      have an axis of frames before that of rows
    - `logits`: `videos` float32 of the model's own size -> as for images

    A model with a head of `keras_vit.heads` has `serving_default`, `pixels` and
    `pixels_float`, which answer what `TaskModel.interpret` returns, each for N
    images of sizes H x W, `image_size` int32 [N, 2], and no thresholds:

    - Detection: `boxes` float32 [N, k, 4], left, top, right and bottom in
      pixels of the image in its file; `scores`, `classes`, `indices` [N, k],
      the best first
    - Segmentation: `mask_bytes` string [N], a grey PNG of the class of each
      pixel; `shares` float32, `classes`, `indices` [N, K], the largest first
    - Segments of queries, "panoptic" or "instance": `mask_bytes`, a PNG of the
      number of the segment, from 1, or 0; `scores`, `classes`, `indices`
      [N, Q] of the segments 1, 2, and so on
    - Depth: `depth_bytes` string [N], a grey PNG of 16 bits, from `least` to
      `largest`, float32 [N]
    - Pose: `keypoints` float32 [N, K, 2], x and y; `scores`, `classes`,
      `indices` [N, K]

    A PNG has the size of its image, divided by the least whole number with
    which it has no more than 2 million pixels. Another signature, `outputs`,
    takes `images` as `logits` does, and answers the model's own outputs.

    Every signature answers `valid` and `reason`, why an image is not valid:
    "undecodable"; "too large", with more pixels or a higher cost of decoding
    than one image may have (`keras_vit.export.limits`); "over the request's
    budget", if it may be valid in a request without the others; "not finite",
    of the model's outputs or of pixels. Such an image gets zeros, classes ""
    and indices -1; the other images of the request are answered.

    Args:
        model: A classifier of this package, or one that contains a model of
            it and does not scale pixels before that; or a model with a head,
            such as `keras_vit.heads.yolos`; on the TensorFlow or the JAX
            backend.
        path: Directory of a version, such as "serving/vit/1"; its last part
            is a number. It appears only when it is complete.
        class_names: Class names; None takes the model's, or else numbers.
        top_k: Number k of classes in an answer, by default 5, or of boxes, by
            default all; at most all.
        activation: "softmax", "sigmoid" or "none", applied to the outputs.
            None selects it by the model's loss: sigmoid for a binary
            cross-entropy, and none if the head gives probabilities. If "none"
            makes the scores logits, answers have `probabilities` float32
            [N, k] too; those of `predict` are never logits.
        warmup_images: Bytes of images, for requests that TF Serving runs
            before it serves a version of an image model.
        warmup_videos: The same for a video model: uint8 clips `[T, H, W, C]`
            with the model's number of frames, all of one size.
        metadata: Further entries of the model card: weights, licence, metrics,
            commit.
        overwrite: Whether to replace an existing version.
        **request: `max_images`, `decoding_budget` and `interpret`, see
            `RequestOptions`.

    Returns:
        `path`, absolute.

    Raises:
        ValueError: If the model is neither a classifier nor one with a head, an
            argument is invalid, the backend cannot export, TensorFlow does not
            run what this JAX writes, the version exists, or a warm-up image or
            video is invalid.

    Example:
        keras_vit.export_savedmodel(model, "serving/vit/1")
    """
    path = os.path.abspath(os.fspath(path))
    of_loss = activation_of(model)
    model = _functional(model)
    _check(model, path, overwrite)
    _check_warmup(model, warmup_images, warmup_videos)
    warn_of_slow_int8(model, stacklevel=3)
    class_names = _class_names(class_names, model)
    max_images = request.get("max_images", serving_assets.BATCH_SIZES[-1])
    interpret = request.get("interpret")
    if isinstance(model, TaskModel):
        plan = task_signatures.plan(model, top_k, activation, interpret or {})
    else:
        plan = _plan(activation, of_loss, interpret)
        plan["top_k"] = min(top_k or TOP_K, len(class_names))
    base, version = os.path.split(path)
    name = os.path.basename(base)
    os.makedirs(base, exist_ok=True)
    # TF Serving only looks at directories whose names are numbers.
    part = tempfile.mkdtemp(prefix=f"incomplete-{version}-", dir=base)
    try:
        graph.write(
            model,
            part,
            decoding_budget=request.get(
                "decoding_budget", limits.DECODING_BUDGET
            ),
            class_names=class_names,
            max_images=max_images,
            **plan,
        )
        if class_names:
            serving_assets.write_class_names(part, class_names)
        if warmup_images:
            _try(part, warmup_images)
        if requests := warmup_images or warmup_videos:
            serving_assets.write_warmup(part, requests, name, max_images)
        card = description.model_card(model, class_names)
        card |= dict(activation=plan.get("activation"), name=name) | (
            metadata or {}
        )
        serving_assets.write_model_card(part, card)
        os.chmod(part, 0o755)
        _move(part, path, overwrite)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    serving_assets.write_serving_configs(base, name, max_images)
    return path


def _plan(activation, of_loss, interpret):
    """Return what is done with the logits of a classifier."""
    if interpret is not None:
        raise ValueError(
            "`interpret` must be left out for a classifier. Received: "
            f"interpret={interpret!r}"
        )
    activation = activation or of_loss
    return dict(
        activation=activation,
        probabilities=of_loss if activation == "none" else activation,
    )


def _functional(model):
    """Return a model with a symbolic input and output."""
    if isinstance(getattr(model, "input", None), keras.KerasTensor):
        return model
    images = keras.Input(ImageModel.find(model).input_shape[1:])
    return keras.Model(images, model(images), name=model.name)


def _class_names(class_names, model):
    """Return a name for each class, or keypoint; none of depth."""
    own = class_names_of(model)
    if isinstance(model, TaskModel):
        classes = model.options.get("classes") or 0
    else:
        classes = model.output_shape[-1]
    if class_names is None and own is not None and len(own) == classes:
        class_names = own
    if class_names is None:
        class_names = [str(i) for i in range(classes)]
    if len(class_names) != classes:
        raise ValueError(
            f"`class_names` must be a name for each of the {classes} classes. "
            f"Received: {class_names!r}"
        )
    class_names = [str(name) for name in class_names]
    serving_assets.check_class_names(class_names)
    return class_names


def _check(model, path, overwrite):
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise ValueError(
            "A SavedModel is written on the TensorFlow or the JAX backend. "
            f"Received: {backend}. Save the model as .keras and export it "
            "with KERAS_BACKEND=tensorflow."
        )
    if backend == "jax":
        graph.check_jax()
    task_signatures.check_inputs(model)
    inner = ImageModel.find(model)
    if not isinstance(model, TaskModel) and not _is_classifier(model, inner):
        raise ValueError(
            "`model` must be a classifier, with one score for each class, or a "
            "model with a head of keras_vit.heads. "
            f"Received: {model.name!r}, with output "
            f"{getattr(model, 'output_shape', 'unknown')}. Without a head of "
            "its own, build it with `classes=1`; the signature `features` "
            "answers with what the head reads"
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


def _is_classifier(model, inner):
    has_head = getattr(model, "output", None) is not inner.representation
    return has_head and len(getattr(model, "output_shape", ())) == 2


def _check_warmup(model, warmup_images, warmup_videos):
    *frames, _, _, channels = model.input_shape[1:]
    if warmup_images and frames:
        raise ValueError(
            "`warmup_images` must be empty for a model of video; pass its "
            f"clips as `warmup_videos`. Received: {len(warmup_images)} images"
        )
    if warmup_videos and not frames:
        raise ValueError(
            "`warmup_videos` must be empty for a model of images. Received: "
            f"{len(warmup_videos)} videos"
        )
    shapes = [np.shape(video) for video in warmup_videos]
    for video, shape in zip(warmup_videos, shapes, strict=True):
        if (
            getattr(video, "dtype", None) != np.uint8
            or len(shape) != 4
            or 0 in shape
            or (shape[0], shape[-1]) != (*frames, channels)
            or shape != shapes[0]
        ):
            raise ValueError(
                f"`warmup_videos` must be uint8 arrays [{frames[0]}, H, W, "
                f"{channels}] of one size. Received: shapes {shapes}, one of "
                f"dtype {getattr(video, 'dtype', type(video).__name__)}"
            )


def _try(directory, images):
    """Run each warm-up image, and raises ValueError for an invalid one."""
    tf = tensorflow()
    loaded = tf.saved_model.load(directory)
    function = loaded.signatures["serving_default"]
    for i, image in enumerate(images):
        reason = function(image_bytes=tf.constant([image]))["reason"][0]
        if reason != b"":
            raise ValueError(
                "`warmup_images` must be JPEG, PNG, GIF, BMP or WebP files. "
                f"Received: warmup_images[{i}] of {len(image)} bytes, which is "
                f"{reason.numpy().decode()}"
            )


def _move(part, path, overwrite):
    """Move a complete version to its path, in one step."""
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
    except BaseException:
        os.rename(os.path.join(old, "version"), path)
        os.rmdir(old)
        raise
    shutil.rmtree(old)
