"""Weights of a block's branches, for each channel."""

from keras import ops

from keras_vit.ops.activations import gelu


def weighted_sum(branches, fc1, fc2):
    """Returns `sum(a * x for x in branches)`, `[B, H, W, C]`.

    The weights a are, for each image and channel, a softmax over the branches
    of an MLP of the mean of their sum.

    Args:
        branches: n maps, `[B, H, W, C]`.
        fc1: First layer of the MLP.
        fc2: Its second layer, of n C units, those of a channel side by side.

    Reference:
        Chen et al. 2021 (2107.10224) and Guo et al. 2021 (2108.13341), after
        the split attention of ViP, Hou et al. 2021 (2106.12368).
    """
    width, count = branches[0].shape[-1], len(branches)
    a = ops.mean(sum(branches), axis=(1, 2), keepdims=True)  # [B, 1, 1, C]
    a = ops.reshape(fc2(gelu(fc1(a))), (-1, 1, 1, width, count))
    a = ops.softmax(a, axis=-1)
    return sum(x * a[..., i] for i, x in enumerate(branches))
