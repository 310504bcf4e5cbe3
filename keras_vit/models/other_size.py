"""The same model, with the same variables, on images of another size."""

import dataclasses
from collections.abc import Callable

import numpy as np
from keras import ops

from keras_vit.models.construct import construct
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import constant
from keras_vit.weights import rules
from keras_vit.weights.rules import table


def rebuild(model: ImageModel, input_shape: tuple[int, ...]) -> ImageModel:
    """Return a new model of the same architecture, without a head.

    Its weights are random; its pixels are scaled as those of `model`.

    Args:
        model: A model of this package.
        input_shape: (height, width, channels) of its images.

    Raises:
        ValueError: If the architecture does not take images of this size.
    """
    block = model.blocks[0]
    made = construct(
        model._family,
        model._family.title,
        dict(
            dataclasses.asdict(model.architecture),
            input_shape=input_shape,
            include_top=False,
            include_preprocessing=model.includes_preprocessing,
            pixel_mean=model.pixel_mean,
            pixel_std=model.pixel_std,
            remat=getattr(block, "remat", False),
            dtype=block.dtype_policy.name,
            name=model.name,
        ),
    )
    if model.includes_preprocessing:
        # Weights may scale pixels in a way of their own.
        own, theirs = (x.get_layer("preprocessing") for x in (made, model))
        own.scale, own.offset = theirs.scale, theirs.offset
    return made


def at_size(model: ImageModel, image_size: tuple[int, int]) -> Callable:
    """Return a function that applies a model to images of another size.

    The variables are those of the model, and so are their gradients. Tables of
    positions are resampled to the other grid of patches in each call, in the
    way of the model's weights, or bicubically.

    Args:
        model: A model of this package, without a head.
        image_size: (height, width) of the images.

    Returns:
        A function of images, `[B, H, W, C]`, and `training`, which returns
        what the model does.

    Raises:
        ValueError: If the architecture does not take images of this size.
    """
    twin = rebuild(model, (*image_size, model.image_shape[-1]))
    of_path = {v.path: v for v in model.weights}  # frozen ones, too
    resampling = {
        v.path: _matrix(model, twin, of_path[v.path], v)
        for v in twin.trainable_variables
        if tuple(v.shape) != tuple(of_path[v.path].shape)
    }

    def value_of(variable):
        value = of_path[variable.path].value
        if variable.path not in resampling:
            return value
        matrix = constant(resampling[variable.path], value.dtype)
        return ops.matmul(matrix, value)

    given = {v.path for v in twin.trainable_variables}
    states = [v for v in model.non_trainable_variables if v.path not in given]

    # Of the twin only the graph is used: each call has the model's values.
    def call(images, training=False):
        trainable = [value_of(v) for v in twin.trainable_variables]
        outputs, updated = twin.stateless_call(
            trainable, [v.value for v in states], images, training=training
        )
        for state, value in zip(states, updated, strict=True):
            if training:  # the random states
                state.assign(value)
        return outputs

    return call


def _matrix(model, twin, source, target):
    """Return the matrix that resamples a variable, `[..., T', T]`."""
    rows = source.shape[-2] if len(source.shape) > 1 else 0
    identity = np.eye(rows, dtype="float32")
    identity = identity.reshape(*[1] * (len(source.shape) - 2), rows, rows)
    for pattern, resize in rules.FAMILIES[model.family].RESIZES.items():
        if rows and table.matching(pattern, [source.path]):
            fit = table.Fit(
                shape=(*target.shape[:-1], rows),
                source_grid=model.metadata["grid"],
                grid=twin.metadata["grid"],
                method=model.resampling or "bicubic",
            )
            return resize(identity, fit).astype("float32")
    raise ValueError(
        f"The {model.family!r} model {model.name!r} must have weights that fit "
        f"images of both {model.image_shape[:2]} and {twin.image_shape[:2]} "
        f"pixels. Received: {source.path} of {tuple(source.shape)} and "
        f"{tuple(target.shape)}, which cannot be resampled"
    )
