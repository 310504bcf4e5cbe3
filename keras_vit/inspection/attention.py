"""Where a model looked: attention weights, computed again on demand.

They are of the families whose blocks have attention among all tokens: ViT and
its hybrids, MViT with its pooled queries and keys, and Axial-ViT, whose blocks
have one attention along columns and one along rows.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.inspection import tokens
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
        query token, key token; of pooled tokens `[B, A, T', T'']`. An axial
        block has two, along columns and along rows.

    Raises:
        ValueError: If the model has no Transformer block.
    """
    inner = ImageModel.find(model)
    return [each for _, each in _weights_and_blocks(inner, model, images)]


def attended_distances(
    model: keras.Model, images, batch_size: int = 8
) -> list[np.ndarray]:
    """Returns how far each head attends, in pixels ("attended area").

    The mean over images and query positions of the distance between the
    centres of query and key, weighed by attention. A class token has no place:
    it is left out of queries and keys, and what attention is left is scaled to
    a sum of 1. A hybrid's patches are as far apart as its stride; pooled
    tokens lie at the centres of their windows; of a video, distances are
    within the picture.

    Args:
        model: A model with attention, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them; the paper has 128.
        batch_size: Images at a time.

    Returns:
        For each attention, `[A]`.

    Raises:
        ValueError: If the model has no Transformer block.

    Reference:
        Dosovitskiy et al. 2021, Figure 7 (right) and appendix D.8.
    """
    inner = ImageModel.find(model)
    found = []
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        found.append(
            [
                _distances(inner, geometry, weights).sum(axis=0)
                for geometry, weights in _attentions(inner, model, batch)
            ]
        )
    return [sum(each) / len(images) for each in zip(*found, strict=True)]


def attention_by_head(model: keras.Model, images) -> list[np.ndarray]:
    """Returns where each head of each block looks for the classifier.

    From the class token, or the mean of all patches where that is read, to
    the patches; a class token among the keys is left out, and the rest scaled
    to a sum of 1.

    Args:
        model: A model with attention, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        For each attention `[B, A, rows, columns]` of its keys, of a video
        `[B, A, frames, rows, columns]`.

    Raises:
        ValueError: If the model has no Transformer block.
    """
    inner = ImageModel.find(model)
    is_video = inner.num_frames is not None
    found = []
    for (queries, keys), weights in _attentions(inner, model, images):
        reading = _reading(inner, queries, weights.shape[2])
        seen = np.einsum("q,baqk->bak", reading, weights)
        seen = seen[..., -math.prod(keys.grid) :]
        seen = seen / seen.sum(axis=-1, keepdims=True)
        grid = keys.grid if is_video else keys.grid[1:]
        found.append(seen.reshape(*seen.shape[:2], *grid))
    return found


def attention_rollout(model: keras.Model, images) -> np.ndarray:
    """Returns how much each patch reaches the model's output.

    Attention is averaged over heads, mixed half and half with the identity
    for the residual, and multiplied through all blocks. Read as the classifier
    reads: from the class token, or from the mean of all patches. What reaches
    a pooled token comes in equal parts from the tokens of its window.

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
    return _rollouts(model, images, last_only=True)[0]


def rollout_by_layer(model: keras.Model, images) -> np.ndarray:
    """Returns `attention_rollout` of the first block, the first two and so on.

    Args:
        model: A model of this package, or one that contains it.
        images: `[B, H, W, C]`, as `model` takes them.

    Returns:
        `[L, B, rows, columns]`, of a video `[L, B, frames, rows, columns]`;
        each image's sum is 1.

    Raises:
        ValueError: If the model has no Transformer block.
    """
    return np.stack(_rollouts(model, images, last_only=False))


def has_rollout(model: keras.Model) -> bool:
    """Returns whether `attention_rollout` is defined for a model.

    It is where blocks have attention among all tokens.

    Args:
        model: A model of this package, or one that contains it.

    Raises:
        ValueError: If it contains none, or several.
    """
    return bool(_attending(ImageModel.find(model)))


def _rollouts(model, images, last_only):
    """Reads the rollout after the last block, or after each of them.

    From the output back to the patches, with one row for each image: the
    matrices themselves would be too large for the tokens of a video.
    """
    inner = ImageModel.find(model)
    layers = [
        (queries, keys, weights.mean(axis=1))  # [B, T', T'']
        for (queries, keys), weights in _attentions(inner, model, images)
    ]
    grid = inner.metadata["grid"]
    found = []
    for depth in [len(layers)] if last_only else range(1, len(layers) + 1):
        queries, _, attention = layers[depth - 1]
        row = _reading(inner, queries, attention.shape[1])
        row = np.tile(row, (len(attention), 1))  # [B, T']
        for queries, keys, attention in reversed(layers[:depth]):
            attended = np.einsum("bq,bqk->bk", row, attention)
            row = (keys.spread(attended) + queries.spread(row)) / 2
        patches = row[:, -math.prod(grid) :]
        patches = patches / patches.sum(axis=-1, keepdims=True)
        found.append(patches.reshape(-1, *grid))
    return found


def _reading(inner, queries, num_tokens):
    """Returns the share of each token in what the classifier reads."""
    patches = math.prod(queries.grid)
    # A class token that is not read counts as little as any other token.
    if getattr(inner.architecture, "classifier", "token") == "token":
        return np.eye(1, num_tokens)[0]
    return np.r_[np.zeros(num_tokens - patches), np.full(patches, 1 / patches)]


def _distances(inner, geometry, weights):
    """Returns the mean attended distance in pixels, `[B, A]`."""
    patch = [
        pixels / patches
        for pixels, patches in zip(
            inner.image_shape[:2], inner.metadata["grid"][-2:], strict=True
        )
    ]
    ends = [(each.points() * patch) for each in geometry]
    apart = ends[0][:, None] - ends[1][None]  # [T', T'', 2]
    apart = np.sqrt((apart**2).sum(axis=-1))
    weights = weights[..., -len(ends[0]) :, -len(ends[1]) :]
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("baqk,qk->ba", weights, apart) / len(apart)


def _attentions(inner, model, images):
    """Returns ((queries, keys), weights) of each attention."""
    found = _weights_and_blocks(inner, model, images)
    before = tokens.of_patches(inner.metadata["grid"])
    geometry, pairs = {}, []
    for block, weights in found:
        if id(block) not in geometry:
            geometry[id(block)] = tokens.of_block(block, before)
            before = geometry[id(block)][0]
        pairs.append((geometry[id(block)], weights))
    return pairs


def _weights_and_blocks(inner, model, images):
    """Returns (block, weights) of each attention, in the order of blocks."""
    blocks = _attending(inner)
    if not blocks:
        raise ValueError(
            "`model` must have blocks with attention among all tokens. "
            f"Received: {model.name!r}, a {inner.family!r}, with none"
        )
    images = _reaching(inner, model, images)
    inputs = keras.Model(inner.input, [block.input for block in blocks])(
        images, training=False
    )
    found = []
    for block, x in zip(blocks, _as_list(inputs), strict=True):
        weights = block.attention_weights(x)
        found += [
            (block, ops.convert_to_numpy(each)) for each in _as_list(weights)
        ]
    return found


def _attending(model):
    return [x for x in model.blocks if hasattr(x, "attention_weights")]


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


def _as_list(values):
    return values if isinstance(values, (list, tuple)) else [values]
