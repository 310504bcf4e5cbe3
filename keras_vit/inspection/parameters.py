"""Learned parameters: filters, position embeddings, token mixing."""

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, checked
from keras_vit.models import ImageModel, raft_mlp_embedding, videomae


@checked
def filter_components(
    model: keras.Model, num_components: Count = 28
) -> np.ndarray:
    """Return the principal components of the first layer's filters.

    The components of the D filters applied to pixels, after subtracting their
    mean: the filters of the patch embedding; in hybrids and ResNets of the root
    convolution, standardised as in the forward pass; with embeddings of several
    scales their sum. The sign of a component is arbitrary; here its largest
    value is positive.

    Args:
        model: A model of this package, or one that contains it.
        num_components: Number of components, strongest first; the paper shows
            28. At most the number of filters or of pixels.

    Returns:
        `[K, height, width, C]`, of a video `[K, frames, height, width, C]`,
        each of length 1.

    Reference:
        Dosovitskiy et al. 2021, Figure 7 (left).
    """
    kernel = _filters(ImageModel.find(model))  # [..., C, D]
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # [D, pixels]
    filters = filters - filters.mean(axis=0)
    *_, components = np.linalg.svd(filters, full_matrices=False)
    # D centred filters span at most D - 1 directions.
    count = min(num_components, len(filters) - 1, filters.shape[1])
    components = components[:count]
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(count), largest])
    return (components * signs[:, None]).reshape(count, *kernel.shape[:-1])


def position_similarity(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the similarity of position embeddings, for each table.

    The cosine similarity of the embeddings of each pair of positions, without
    the class token. Embeddings of rows and columns are compared together, as
    they are added.

    Args:
        model: A model with position embeddings, or one that contains it.

    Returns:
        Name of the layer -> `[rows, columns, rows, columns]` in [-1, 1]; with
        separate tables of space and time also "temporal", `[T, T]`; for a joint
        table of videos `[T, rows, columns, T, rows, columns]`.

    Raises:
        ValueError: If the model has no position embeddings that are added to
            tokens.

    Reference:
        Dosovitskiy et al. 2021, Figure 7 (centre) and appendix D.4.
    """
    inner = ImageModel.find(model)
    found = {}
    for layer in inner.layers:
        if hasattr(layer, "position_tables"):
            tables = layer.position_tables()
            for name, (table, grid) in tables.items():
                key = name or layer.name
                found[key] = _cosines(_array(table), grid)
    if not found:
        raise ValueError(
            "`model` must add embeddings of positions. Received: "
            f"{inner.name!r}, a {inner.family!r}, which adds none"
        )
    return found


def token_mixing(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the weights of the hidden units of MLPs over tokens.

    Args:
        model: An MLP-Mixer, RaftMLP, ResMLP, gMLP or feed-forward-only ViT, or
            a model that contains it.

    Returns:
        Path of each MLP -> the weights of its hidden units on the tokens,
        `[units, rows, columns]`; for MLPs along an axis of rafts
        `[units, rafts, tokens]`. A ResMLP and a gMLP have a single layer, whose
        outputs are the units.

    Raises:
        ValueError: If the model has no MLP over tokens.

    Reference:
        Tolstikhin et al. 2021, Figure 5.
    """
    inner = ImageModel.find(model)
    found = {
        f"{block.name}/{name}": _array(kernel).T.reshape(
            -1, *(shape or inner.metadata["grid"])
        )
        for block in inner.blocks
        if hasattr(block, "token_kernels")
        for name, (kernel, shape) in block.token_kernels().items()
    }
    if not found:
        raise ValueError(
            "`model` must have MLPs over tokens. Received: "
            f"{inner.name!r}, a {inner.family!r}, with none"
        )
    return found


def _filters(inner):
    """Return the kernel that is applied to pixels, `[..., C, D]`."""
    for layer in inner.layers:
        if isinstance(layer, layers.ResNetV2Stem):
            layer = layer.conv_root
        if isinstance(layer, raft_mlp_embedding.MultiScaleEmbedding):
            return _summed(layer)
        if hasattr(layer, "kernel"):
            kernel = _array(layer.kernel)
            if kernel.ndim < 4:
                break  # it sees tokens
            if isinstance(layer, layers.StdConv2D):
                axes = (0, 1, 2)
                kernel = kernel - kernel.mean(axis=axes)
                kernel = kernel / (kernel.std(axis=axes) + 1e-10)
            if isinstance(layer, videomae.TubeletEmbedding):
                return layer.by_frame(kernel)
            is_frame = kernel.ndim == 5 and len(kernel) == 1
            return kernel[0] if is_frame else kernel
    raise ValueError(
        "`model` must have a layer whose filters see the pixels. Received: "
        f"{inner.name!r}, a {inner.family!r}, with none"
    )


def _summed(layer):
    """Return the single kernel that equals the sum of all scales."""
    kernel = _array(layer.kernel)
    side, start = max(layer.kernel_sizes), 0
    total = np.zeros((side, side, *kernel.shape[1:]), kernel.dtype)
    for k in layer.kernel_sizes:
        edge = (side - k) // 2
        part = kernel[start : start + k * k]
        total[edge : edge + k, edge : edge + k] += part.reshape(
            k, k, *kernel.shape[1:]
        )
        start += k * k
    return total


def _array(values):
    """Return float32, in which half precision is exact."""
    return ops.convert_to_numpy(values).astype("float32")


def _cosines(table, grid):
    length = np.linalg.norm(table, axis=-1, keepdims=True)
    table = table / np.maximum(length, 1e-12)
    return (table @ table.T).reshape(*grid, *grid)
