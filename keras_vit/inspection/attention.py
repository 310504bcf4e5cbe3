"""Attention weights of a model, recomputed on demand.

They are available for the families whose blocks attend to all tokens: ViT, its
relatives and hybrids, MViT with its pooled queries and keys, and Axial-ViT,
whose blocks have one attention along columns and one along rows.
"""

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.models import ImageModel, attention, tokens


def attention_weights(model: keras.Model, images) -> list[np.ndarray]:
    """Return the attention of every block on a batch of images.

    The forward pass does not store attention. It is recomputed here from the
    input of each block.

    Args:
        model: A model of this package with any grid and classifier, or a model
            that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        For each block the softmax weights `[B, A, T, T]` in float32: head,
        query token, key token; with pooled tokens `[B, A, T', T'']`. An axial
        block has two arrays, along columns and along rows.

    Raises:
        ValueError: If the model has no Transformer block, or `images` are of
            another shape.
    """
    found = _attentions(ImageModel.find(model), model, images)
    return [ops.convert_to_numpy(weights) for _, weights in found]


@checked
def attended_distances(
    model: keras.Model, images, batch_size: Count = 8
) -> list[np.ndarray]:
    """Return how far each head attends, in pixels ("attended area").

    This is the mean over images and query positions of the distance between
    the centres of query and key, weighted by attention. A class token has no
    position: it is left out of queries and keys, and the remaining attention
    is scaled to a sum of 1. The patches of a hybrid are as far apart as its
    stride. Pooled tokens lie at the centres of their windows. For a video,
    distances are measured within a frame.

    Args:
        model: A model with attention, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them; the paper uses 128.
        batch_size: Images per batch.

    Returns:
        For each attention layer, `[A]`.

    Raises:
        ValueError: If the model has no Transformer block, or `images` are of
            another shape.

    Reference:
        Dosovitskiy et al. 2021, Figure 7 (right) and appendix D.8.
    """
    inner = ImageModel.find(model)
    images = _batch(model, images)
    found = []
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        found.append(
            [
                _distances(inner, places, ops.convert_to_numpy(weights)).sum(
                    axis=0
                )
                for places, weights in _attentions(inner, model, batch)
            ]
        )
    return [sum(each) / len(images) for each in zip(*found, strict=True)]


def uniform_distances(model: keras.Model) -> list[float]:
    """Return how far a head attends that attends to all patches alike.

    `attended_distances` close to these show a head that has no preference.
    Along a column or a row, only its patches count.

    Args:
        model: A model with attention, or one that contains it.

    Returns:
        For each attention layer, the distance in pixels.

    Raises:
        ValueError: If the model has no Transformer block.
    """
    inner = ImageModel.find(model)
    _check(inner, model)
    before = tokens.of_patches(inner.metadata["grid"])
    found = []
    for block in attention.attending(inner):
        places = tokens.of_block(block, before)
        before = places[0]
        steps = _steps(inner, places)
        reach = [np.ones(steps.shape[:2], bool)]
        if hasattr(block, "col"):  # of Axial-ViT: along columns, then rows
            reach = [steps[..., 1] == 0, steps[..., 0] == 0]
        apart = np.linalg.norm(steps, axis=-1)
        # Every query reaches as many keys.
        found += [float(apart[mask].mean()) for mask in reach]
    return found


def attention_by_head(model: keras.Model, images) -> list[np.ndarray]:
    """Return each head's attention from the classifier's input to patches.

    The queries are the class token, or the mean of all patches if the
    classifier reads that. A class token among the keys is left out, and the
    remaining weights are scaled to a sum of 1.

    Args:
        model: A model with attention, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        For each attention layer `[B, A, rows, columns]` of its keys; for a
        video `[B, A, frames, rows, columns]`.

    Raises:
        ValueError: If the model has no Transformer block, or `images` are of
            another shape.
    """
    inner = ImageModel.find(model)
    found = attention.by_head(inner, _attentions(inner, model, images))
    return [ops.convert_to_numpy(each) for each in found]


def attention_rollout(model: keras.Model, images) -> np.ndarray:
    """Return how much each patch contributes to the model's output.

    Attention is averaged over heads, mixed in equal parts with the identity for
    the residual, and multiplied through all blocks. The result is read where
    the classifier reads: at the class token, or as the mean of all patches. A
    pooled token receives equal parts from the tokens of its window.

    Args:
        model: A model of this package, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        `[B, rows, columns]`, for a video `[B, frames, rows, columns]`, one
        value per patch; the sum for each image is 1.

    Raises:
        ValueError: If the model has no Transformer block, or `images` are of
            another shape.

    Reference:
        Abnar & Zuidema 2020 (2005.00928), as in Figure 6 and appendix D.8.
    """
    inner = ImageModel.find(model)
    found = attention.rollout(inner, _attentions(inner, model, images))
    return ops.convert_to_numpy(found)


def attention_maps(
    model: keras.Model, images
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return `attention_rollout` and `attention_by_head` from one pass.

    Args:
        model: A model with attention, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Raises:
        ValueError: If the model has no Transformer block, or `images` are of
            another shape.
    """
    inner = ImageModel.find(model)
    found = _attentions(inner, model, images)
    rollout = ops.convert_to_numpy(attention.rollout(inner, found))
    heads = attention.by_head(inner, found)
    return rollout, [ops.convert_to_numpy(each) for each in heads]


def rollout_by_layer(model: keras.Model, images) -> np.ndarray:
    """Return `attention_rollout` of the first block, the first two, and so on.

    Args:
        model: A model of this package, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        `[L, B, rows, columns]`, for a video `[L, B, frames, rows, columns]`;
        the sum for each image is 1.

    Raises:
        ValueError: If the model has no Transformer block, or `images` are of
            another shape.
    """
    inner = ImageModel.find(model)
    found = _attentions(inner, model, images)
    depths = range(1, len(found) + 1)
    return np.stack(
        [
            ops.convert_to_numpy(attention.rollout(inner, found[:depth]))
            for depth in depths
        ]
    )


def has_rollout(model: keras.Model) -> bool:
    """Return whether `attention_rollout` is defined for a model.

    It is defined for models whose blocks attend to all tokens.

    Args:
        model: A model of this package, or one that contains it.

    Raises:
        ValueError: If the model contains no model of this package, or several.
    """
    return bool(attention.attending(ImageModel.find(model)))


def _distances(inner, geometry, weights):
    """Return the mean attended distance in pixels, `[B, A]`."""
    apart = np.linalg.norm(_steps(inner, geometry), axis=-1)
    weights = weights[..., -apart.shape[0] :, -apart.shape[1] :]
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("baqk,qk->ba", weights, apart) / len(apart)


def _steps(inner, geometry):
    """Return the pixels between queries and keys, `[T', T'', 2]`."""
    patch = [
        pixels / patches
        for pixels, patches in zip(
            inner.image_shape[:2], inner.metadata["grid"][-2:], strict=True
        )
    ]
    queries, keys = (each.points() * patch for each in geometry)
    return queries[:, None] - keys[None]


def _attentions(inner, model, images):
    """Return ((queries, keys), weights) of each attention."""
    _check(inner, model)
    images = attention.reaching(inner, model, _batch(model, images))
    return attention.attentions(inner, images)


def _batch(model, images):
    """Return images as an array, or a tensor, that the model takes."""
    if not hasattr(images, "shape"):
        images = np.asarray(images)
    shape, given = getattr(model, "input_shape", None), tuple(images.shape)
    if isinstance(shape, tuple) and (
        len(given) != len(shape)
        or not given[0]
        or any(n not in (None, m) for n, m in zip(shape, given, strict=True))
    ):
        raise ValueError(
            f"`images` must be a batch of {shape[1:]}, as {model.name!r} "
            f"takes. Received: shape {given}"
        )
    return images


def _check(inner, model):
    if not attention.attending(inner):
        raise ValueError(
            "`model` must have blocks with attention among all tokens. "
            f"Received: {model.name!r}, a {inner.family!r}, with none"
        )
