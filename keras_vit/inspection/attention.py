"""Where a model looked: attention weights, computed again on demand."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.models import ImageModel


def attention_weights(model: keras.Model, images) -> list[np.ndarray]:
    """Returns the attention of every block on a batch of images.

    The forward pass keeps no attention; here each block's is computed again
    from the block's input.

    Args:
        model: A model of this package, whatever its grid and classifier, or
            one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        For each block the softmax weights `[B, A, T, T]` in float32: head,
        query token, key token.

    Raises:
        ValueError: If the model has no Transformer block.
    """
    inner = ImageModel.find(model)
    blocks = _blocks(inner)
    images = _reaching(inner, model, images)
    inputs = keras.Model(inner.input, [block.input for block in blocks])(
        images, training=False
    )
    return [
        ops.convert_to_numpy(block.attention_weights(x))
        for block, x in zip(blocks, _as_list(inputs), strict=True)
    ]


def attention_rollout(model: keras.Model, images) -> np.ndarray:
    """Returns how much each patch reaches the model's output.

    Attention is averaged over heads, mixed half and half with the identity
    for the residual, and multiplied through all blocks. Read as the classifier
    reads: from the class token, or from the mean of all patches.

    Args:
        model: A model of this package, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        `[B, rows, columns]`, of a video `[B, frames, rows, columns]`, one
        value for each patch; each image's sum is 1.

    Raises:
        ValueError: If the model has no Transformer block.

    Reference:
        Abnar & Zuidema 2020 (2005.00928), as in Figure 6 and appendix D.8.
    """
    if not has_rollout(model):
        raise ValueError(
            "`model` must have blocks with attention, among tokens that are "
            f"not pooled. Received: {model.name!r}"
        )
    weights = attention_weights(model, images)
    tokens = weights[0].shape[-1]
    rollout = np.eye(tokens)
    for attention in weights:
        mixed = (attention.mean(axis=1) + np.eye(tokens)) / 2  # [B, T, T]
        rollout = mixed @ rollout
    inner = ImageModel.find(model)
    grid = inner.metadata["grid"]
    first = tokens - math.prod(grid)
    # A class token that is not read counts as little as any other token.
    classifier = getattr(inner.architecture, "classifier", "token")
    if first and classifier == "token":
        reached = rollout[:, 0]  # [B, T]
    else:
        reached = rollout[:, first:].mean(axis=1)
    patches = reached[:, first:]
    patches = patches / patches.sum(axis=-1, keepdims=True)
    return patches.reshape(-1, *grid)


def has_rollout(model: keras.Model) -> bool:
    """Returns whether `attention_rollout` is defined for a model.

    It is where blocks have attention among all tokens: pooled tokens have
    attention weights, but no rollout.

    Args:
        model: A model of this package, or one that contains it.

    Raises:
        ValueError: If it contains none, or several.
    """
    blocks = _attending(ImageModel.find(model))
    return bool(blocks) and not any(
        getattr(block, "pools_tokens", False) for block in blocks
    )


def _attending(model):
    return [x for x in model.blocks if hasattr(x, "attention_weights")]


def _blocks(model):
    blocks = _attending(model)
    if not blocks:
        raise ValueError(
            "`model` must have blocks with attention. Received: "
            f"{model.name!r}, a {model.family!r}, with none"
        )
    return blocks


def _reaching(inner, model, images):
    """Returns what reaches a model within another one."""
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


def _as_list(inputs):
    return inputs if isinstance(inputs, (list, tuple)) else [inputs]
