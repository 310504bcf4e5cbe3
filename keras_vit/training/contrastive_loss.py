"""Losses of images and their texts: softmax (CLIP) and sigmoid (SigLIP).

Both take the pairs of the whole batch: every image with every text, those of
other devices too.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.ops.replicas import (
    gather_over_replicas,
    sum_over_pairs,
    sum_over_replicas,
)
from keras_vit.training import task_loss

# The scale is learned as its logarithm. CLIP's starts here, and is clipped at
# the other (Radford et al. 2021, section 2.5).
SOFTMAX_LOG_SCALE, MOST_LOG_SCALE = math.log(1 / 0.07), math.log(100)
# Zhai et al. 2023 (2303.15343), section 3.2.
SIGMOID_LOG_SCALE, SIGMOID_BIAS = math.log(10), -10.0


def softmax_contrastive_loss(images, texts, scale, valid=None):
    """Return this replica's part of CLIP's loss, a scalar.

        l = 1/2B sum_i (-log p(text_i | image_i) - log p(image_i | text_i)),
        p(text_j | image_i) = softmax_j(scale x_i . y_j)

    Args:
        images: Embeddings x of norm 1, `[B, D]`; on TensorFlow's replicas, the
            part of each.
        texts: Embeddings y of norm 1, `[B, D]`.
        scale: exp(t'), a scalar.
        valid: Which pairs count, `[B]`; None is all.

    Raises:
        ValueError: If the shapes do not fit.

    Reference:
        Radford et al. 2021 (2103.00020), figure 3.
    """
    images, texts, valid, count = _prepared(images, texts, valid)
    scale = ops.cast(scale, images.dtype)
    own = scale * ops.sum(images * texts, axis=-1)
    # -inf would have no gradient where a replica has only padding.
    absent = (gather_over_replicas(valid) - 1.0) * 1e9
    total = 0.0
    for these, others in ((images, texts), (texts, images)):
        others = gather_over_replicas(others)
        logits = scale * ops.matmul(these, ops.transpose(others)) + absent
        total = total + valid * (ops.logsumexp(logits, axis=-1) - own)
    return ops.sum(total) / (2.0 * count)


def sigmoid_contrastive_loss(images, texts, scale, bias, valid=None):
    """Return this replica's part of SigLIP's loss, a scalar.

        l = -1/B sum_ij log sigmoid(z_ij (scale x_i . y_j + bias)),

    with z = 1 for an image and its own text, and -1 for the others. On JAX the
    texts travel between devices, and no device holds the logits of the batch.

    Args:
        images, texts, valid: See `softmax_contrastive_loss`.
        scale: exp(t'), a scalar.
        bias: b, a scalar.

    Raises:
        ValueError: If the shapes do not fit.

    Reference:
        Zhai et al. 2023, algorithm 1 and section 3.3.
    """
    images, texts, valid, count = _prepared(images, texts, valid)
    shared = (ops.cast(scale, images.dtype), ops.cast(bias, images.dtype))

    def as_if_others(x, y, shared):
        (these, weights), (others, other_weights), (scale, bias) = x, y, shared
        logits = scale * ops.matmul(these, ops.transpose(others)) + bias
        losses = ops.softplus(logits) * other_weights
        return ops.sum(weights * ops.sum(losses, axis=-1))

    pairs = sum_over_pairs(
        as_if_others, (images, valid), (texts, valid), shared
    )
    # Of its own text: softplus(-l) = softplus(l) - l.
    own = shared[0] * ops.sum(images * texts, axis=-1) + shared[1]
    return (pairs - ops.sum(valid * own)) / count


def _prepared(images, texts, valid):
    """Return float32 tensors, and the count of all pairs that count."""
    images = ops.cast(ops.convert_to_tensor(images), "float32")
    texts = ops.cast(ops.convert_to_tensor(texts), "float32")
    if len(images.shape) != 2 or tuple(images.shape) != tuple(texts.shape):
        raise ValueError(
            "The embeddings of images and texts must both be [B, D]. Received: "
            f"shapes {tuple(images.shape)} and {tuple(texts.shape)}"
        )
    if valid is None:
        valid = ops.ones_like(images[:, 0])
    valid = ops.cast(ops.convert_to_tensor(valid), "float32")
    if tuple(valid.shape) != tuple(images.shape[:1]):
        raise ValueError(
            "`valid` must be [B], as many as the pairs. Received: shape "
            f"{tuple(valid.shape)} for {tuple(images.shape)}"
        )
    count = sum_over_replicas(ops.sum(valid))
    return images, texts, valid, ops.maximum(count, 1.0)


class ContrastiveLoss(task_loss.TaskLoss):
    """The loss of a model of two towers, for `set_loss`.

    It is SigLIP's where the model has a bias, and else CLIP's, whose learned
    scale it keeps at 100 or less. Accumulating gradients would leave out the
    pairs of different parts of a batch, so `set_loss` refuses it.

    Call arguments:
        targets: "valid", `[B]`, 1 for pairs that count and 0 for padding; or
            anything without it.
        outputs: "image_embeddings" and "text_embeddings", `[B, D]`.

    Raises:
        ValueError: If an output is missing, or the embeddings differ in shape.
    """

    def __init__(self):
        self.similarity: Any = None

    def prepare(self, model: keras.Model) -> None:
        """Take scale and bias of the model's layer "similarity"."""
        parts = getattr(model, "micro_batches", 1)
        if parts > 1:
            raise ValueError(
                "A contrastive loss compares every image with every text of "
                "the batch, and the parts of a batch would leave pairs out: "
                "`micro_batches` must be 1. Received: micro_batches="
                f"{parts}. More devices, `remat` or a smaller batch need less "
                "memory."
            )
        found = [x for x in model.layers if x.name == "similarity"]
        if not found:
            raise ValueError(
                "A contrastive loss needs a model of `keras_vit.two_towers`, "
                "with the layer 'similarity'. Received: "
                f"{model.name!r} with {[x.name for x in model.layers]}"
            )
        (self.similarity,) = found
        if self.similarity.logit_bias is None:
            self.similarity.logit_scale.constraint = _at_most_100

    def terms(self, targets, outputs: dict) -> dict:
        """Return the one term, "contrastive"."""
        names = ("image_embeddings", "text_embeddings")
        images, texts = (task_loss.output(outputs, name) for name in names)
        valid = targets.get("valid") if isinstance(targets, dict) else None
        scale = ops.exp(ops.cast(self.similarity.logit_scale, "float32"))
        bias = self.similarity.logit_bias
        if bias is None:
            loss = softmax_contrastive_loss(images, texts, scale, valid)
        else:
            loss = sigmoid_contrastive_loss(images, texts, scale, bias, valid)
        return {"contrastive": loss}


def _at_most_100(log_scale):
    return ops.minimum(log_scale, MOST_LOG_SCALE)
