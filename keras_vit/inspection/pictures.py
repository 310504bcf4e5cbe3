"""Draws the results of the other modules of `inspection`."""

import math
import os

import numpy as np
from keras import ops

from keras_vit.inspection.figures import as_colours, new_figure

# Pixels between the tiles of a mosaic, and the smallest side of a tile.
_GAP, _SIDE = 2, 24


def plot_filters(components: np.ndarray, out_path: str | os.PathLike) -> None:
    """Draw principal components of filters, each scaled to its own range.

    Args:
        components: Those of `filter_components`. Frames of a video are placed
            side by side; any number of channels other than three is averaged to
            grey.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    if components.ndim == 5:
        components = np.concatenate(np.moveaxis(components, 1, 0), axis=2)
    if components.shape[-1] != 3:
        components = components.mean(axis=-1, keepdims=True)
        components = np.repeat(components, 3, axis=-1)
    axes = (1, 2, 3)
    low = components.min(axis=axes, keepdims=True)
    high = components.max(axis=axes, keepdims=True)
    tiles = (components - low) / np.maximum(high - low, 1e-12)
    per_row = 7 if len(tiles) > 7 else len(tiles)
    num_rows = math.ceil(len(tiles) / per_row)
    ratio = tiles.shape[1] / tiles.shape[2]
    figure = new_figure(0.8 * per_row + 0.4, 0.8 * num_rows * ratio + 0.6)
    figure.suptitle(
        f"embedding filters\n(first {len(tiles)} principal components)",
        fontsize=10,
    )
    for i, tile in enumerate(tiles):
        cell = figure.add_subplot(num_rows, per_row, i + 1)
        cell.imshow(tile, interpolation="nearest")
        cell.set_axis_off()
    figure.savefig(out_path)


def plot_position_similarity(
    similarity: np.ndarray, title: str, out_path: str | os.PathLike
) -> None:
    """Draw, for each position, its similarity to all others.

    Args:
        similarity: An entry of `position_similarity`. For a joint table of
            videos the first frame is drawn; of more than 16 rows or columns a
            regular subset.
        title: The line over it.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    if similarity.ndim == 6:
        similarity = similarity[0, :, :, 0]
    figure = new_figure(5.6, 5)
    axes = figure.add_subplot()
    if similarity.ndim == 2:
        shown = similarity
        axes.set_xlabel("frame")
        axes.set_ylabel("frame")
    else:
        rows, columns = (
            np.arange(0, n, -(-n // 16)) for n in similarity.shape[:2]
        )
        tiles = similarity[np.ix_(rows, columns)]
        shown, centres = _mosaic(tiles)
        axes.set_yticks(centres[0], labels=[str(row + 1) for row in rows])
        axes.set_xticks(centres[1], labels=[str(n + 1) for n in columns])
        axes.set_xlabel("input patch column")
        axes.set_ylabel("input patch row")
        axes.spines[:].set_visible(False)
    axes.tick_params(labelsize=7, length=0)
    picture = axes.imshow(
        shown, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest"
    )
    axes.set_title(title, fontsize=10)
    figure.colorbar(picture, shrink=0.8, label="cosine similarity")
    figure.savefig(out_path)


def plot_attended_distances(
    distances: list[np.ndarray],
    uniform: list[float],
    title: str,
    out_path: str | os.PathLike,
) -> None:
    """Draw the mean attended distance of every head against depth.

    Args:
        distances: Those of `attended_distances`.
        uniform: Those of `uniform_distances`, a dashed line.
        title: The line over it.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    from matplotlib import colormaps

    figure = new_figure(5, 3.8)
    axes = figure.add_subplot()
    most = max(map(len, distances))
    colors = colormaps["viridis"](np.linspace(0, 0.9, most))
    for head in range(most):
        layers = [i for i, each in enumerate(distances) if head < len(each)]
        axes.plot(
            [layer + 1 for layer in layers],
            [distances[layer][head] for layer in layers],
            "o",
            color=colors[head],
            markersize=4.5,
            alpha=0.85,
            label=f"head {head + 1}" if head < 3 or head == most - 1 else None,
        )
    axes.stairs(
        uniform,
        np.arange(len(uniform) + 1) + 0.5,
        baseline=None,
        color="black",
        linestyle="--",
        label="attention to all patches alike",
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("network depth (layer)")
    axes.set_ylabel("mean attention distance (pixels)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out_path)


def plot_rollouts(
    images: np.ndarray,
    rollouts: np.ndarray,
    out_path: str | os.PathLike,
    *,
    num_layers: int = 6,
) -> None:
    """Draw images lit by their attention rollout, after several layers.

    Attention is resized to the image, divided by its maximum, and multiplied
    onto it, as in the paper.

    Args:
        images: `[B, H, W, C]`, pixels in [0, 255], C 1 or 3.
        rollouts: `[L, B, rows, columns]`, those of `rollout_by_layer`.
        out_path: The picture to write; its ending says the format.
        num_layers: Columns at most: layers at equal distances and the last.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    count = min(num_layers, len(rollouts))
    chosen = np.linspace(len(rollouts) / count, len(rollouts), count)
    chosen = chosen.round().astype(int) - 1
    side = 1.5
    ratio = images.shape[1] / images.shape[2]
    figure = new_figure(side * (count + 1), len(images) * side * ratio + 0.3)
    cells = figure.subplots(len(images), count + 1, squeeze=False)
    for row, image in zip(cells, range(len(images)), strict=True):
        pixels = as_colours(images[image])
        row[0].imshow(pixels)
        for cell, layer in zip(row[1:], chosen, strict=True):
            mask = rollouts[layer, image][..., None]
            mask = ops.image.resize(
                mask, pixels.shape[:2], "bilinear", data_format="channels_last"
            )
            mask = ops.convert_to_numpy(mask)
            cell.imshow(np.clip(pixels * mask / mask.max(), 0, 1))
    cells[0, 0].set_title("input", fontsize=9)
    for cell, layer in zip(cells[0, 1:], chosen, strict=True):
        cell.set_title(f"layer {layer + 1}", fontsize=9)
    for cell in cells.flat:
        cell.set_axis_off()
    figure.savefig(out_path)


def plot_heads(
    image: np.ndarray, heads: list[np.ndarray], out_path: str | os.PathLike
) -> None:
    """Draw an image and the attention of each head of each layer.

    Args:
        image: `[H, W, C]`, pixels in [0, 255], C 1 or 3.
        heads: For each layer `[A, rows, columns]`: those of
            `attention_by_head`, of one image.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    most = max(len(each) for each in heads)
    height, width = np.max([each.shape[1:] for each in heads], axis=0)
    tiles = np.full((len(heads), most, height, width), np.nan)
    for layer, each in enumerate(heads):
        rows = np.arange(height) * each.shape[1] // height
        columns = np.arange(width) * each.shape[2] // width
        own = each / each.max(axis=(1, 2), keepdims=True)
        tiles[layer, : len(each)] = own[:, rows][:, :, columns]
    ratio = height / width
    map_width = max(3.2, min(0.55 * most, 9))
    map_height = map_width * ratio * len(heads) / most
    figure = new_figure(map_width + 3, max(map_height, 2.2) + 0.8)
    left, right = figure.subplots(1, 2, width_ratios=(2.4, map_width))
    left.imshow(as_colours(image))
    left.set_axis_off()
    left.set_title("input", fontsize=9)
    shown, centres = _mosaic(tiles)
    right.imshow(shown, vmin=0, vmax=1, cmap="magma", interpolation="nearest")
    right.set_yticks(centres[0], labels=[str(i + 1) for i in range(len(heads))])
    right.set_xticks(centres[1], labels=[str(i + 1) for i in range(most)])
    right.tick_params(labelsize=7, length=0)
    right.spines[:].set_visible(False)
    right.set_xlabel("head")
    right.set_ylabel("layer")
    right.set_title("attention, each map over its maximum", fontsize=9)
    figure.savefig(out_path)


def plot_token_mixing(
    kernels: dict[str, np.ndarray],
    out_path: str | os.PathLike,
    *,
    num_units: int = 16,
) -> None:
    """Draw the weights of hidden units of the MLPs over tokens.

    A line for each MLP: its units with the largest weights, in descending
    order, each divided by its maximum; red is positive, blue negative.

    Args:
        kernels: Those of `token_mixing`.
        out_path: The picture to write; its ending says the format.
        num_units: Units of a line.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    shapes = [(k.shape[1], k.shape[2]) for k in kernels.values()]
    heights = [
        0.6 * min(2, max(0.3, rows / columns)) for rows, columns in shapes
    ]
    figure = new_figure(
        0.6 * num_units + 2, sum(heights) + 0.25 * len(shapes) + 0.3
    )
    lines = figure.subplots(
        len(kernels), 1, squeeze=False, height_ratios=heights
    )
    for axes, (name, kernel) in zip(lines[:, 0], kernels.items(), strict=True):
        norms = np.linalg.norm(kernel.reshape(len(kernel), -1), axis=1)
        units = kernel[np.argsort(-norms)[:num_units]]
        units = units / np.abs(units).max(axis=(1, 2), keepdims=True)
        absent = np.full((num_units - len(units), *units.shape[1:]), np.nan)
        units = np.concatenate([units, absent])
        axes.imshow(
            _mosaic(units[None])[0],
            vmin=-1,
            vmax=1,
            cmap="RdBu_r",
            interpolation="nearest",
            aspect="auto",
        )
        axes.set_facecolor("0.6")  # contrasts with tiles, which may be white
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=7)
    figure.savefig(out_path)


def _mosaic(tiles):
    """Return tiles `[rows, columns, H, W]` as one picture with gaps.

    Also the positions of the centres of rows and columns in it.
    """
    scale = -(-_SIDE // min(tiles.shape[2:]))
    tiles = tiles.repeat(scale, axis=2).repeat(scale, axis=3)
    rows, columns, height, width = tiles.shape
    picture = np.full(
        (rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP), np.nan
    )
    for i in range(rows):
        for j in range(columns):
            top, left = i * (height + _GAP), j * (width + _GAP)
            picture[top : top + height, left : left + width] = tiles[i, j]
    centres = [
        (side + _GAP) * np.arange(count) + (side - 1) / 2
        for count, side in ((rows, height), (columns, width))
    ]
    return picture, centres
