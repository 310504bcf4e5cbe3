"""The attention of a model's blocks, in Keras operations.

It is computed eagerly for figures and traced for an export.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.models import tokens
from keras_vit.models.image_model import ImageModel

# The queries and keys of an attention layer, and its weights [B, A, T', T''].
Attention = tuple[tuple[tokens.Tokens, tokens.Tokens], Any]


def attending(model: ImageModel) -> list[keras.layers.Layer]:
    """Return the blocks with global attention, among all tokens."""
    return [x for x in model.blocks if hasattr(x, "attention_weights")]


def attentions(model: ImageModel, images) -> list[Attention]:
    """Return the attention of each block on a batch of images, in order.

    Compare `inspection.attention_weights`.
    """
    blocks = attending(model)
    inputs = keras.Model(model.input, [block.input for block in blocks])(
        images, training=False
    )
    before = tokens.of_patches(model.metadata["grid"])
    found = []
    for block, x in zip(blocks, _as_list(inputs), strict=True):
        places = tokens.of_block(block, before)
        before = places[0]
        for weights in _as_list(block.attention_weights(x)):
            found.append((places, weights))
    return found


def reaching(inner: ImageModel, model: keras.Model, images):
    """Return the input that an inner model receives from an outer model.

    Args:
        inner: The inner model.
        model: The outer model, which may be the same.
        images: Inputs of the outer model.

    Raises:
        ValueError: If the outer model calls the inner one several times, or
            never.
    """
    if inner is model or inner.input is getattr(model, "input", None):
        return images
    with inner.watched() as seen:
        model(images, training=False)
    if len(seen) != 1:
        raise ValueError(
            f"`model` must call {inner.name!r} once. Received: "
            f"{model.name!r}, which calls it {len(seen)} times"
        )
    return seen[0][0]


def by_head(model: ImageModel, found: list[Attention]) -> list:
    """Return `inspection.attention_by_head` of the `attentions` of a model."""
    is_video = model.num_frames is not None
    maps = []
    for (queries, keys), weights in found:
        reading = _reading(model, queries, weights.shape[2])
        seen = ops.einsum("q,baqk->bak", reading, weights)
        seen = seen[..., -math.prod(keys.grid) :]
        seen = seen / ops.sum(seen, axis=-1, keepdims=True)
        grid = keys.grid if is_video else keys.grid[1:]
        maps.append(ops.reshape(seen, (-1, weights.shape[1], *grid)))
    return maps


def rollout(model: ImageModel, found: list[Attention]):
    """Return `inspection.attention_rollout` of the first `attentions`, or all.

    The output is that of the last of them.
    """
    (queries, _), weights = found[-1]
    reading = _reading(model, queries, weights.shape[2])
    # From the output back to the patches: full matrices would be too large for
    # the tokens of a video.
    row = ops.zeros_like(weights[:, 0, :, 0]) + reading  # [B, T']
    for (queries, keys), weights in reversed(found):
        attended = ops.einsum("bq,bqk->bk", row, ops.mean(weights, axis=1))
        row = (keys.spread(attended) + queries.spread(row)) / 2
    grid = model.metadata["grid"]
    patches = row[:, -math.prod(grid) :]
    patches = patches / ops.sum(patches, axis=-1, keepdims=True)
    return ops.reshape(patches, (-1, *grid))


def _reading(model, queries, num_tokens):
    """Return the share of each token in what the classifier reads.

    Tokens that it does not read have none. Attention from a probe is taken to
    read all patches alike.
    """
    kind = getattr(model.architecture, "pooling", "token")
    kind = kind.removesuffix("_unnormed")
    patches = math.prod(queries.grid)
    of_patches = {"token": 0.0, "distilled": 0.0, "token_and_gap": 0.5}
    share = of_patches.get(kind, 1.0)
    num_class_tokens = 2 if kind == "distilled" else 1
    shares = np.zeros(num_tokens, "float32")
    shares[-patches:] = share / patches
    shares[:num_class_tokens] += (1 - share) / num_class_tokens
    return ops.convert_to_tensor(shares)


def _as_list(values):
    return values if isinstance(values, (list, tuple)) else [values]
