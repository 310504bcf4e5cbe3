"""Pictures of what models with heads find: boxes, classes, segments, depth."""

import os
import textwrap
from collections.abc import Sequence
from typing import IO

import numpy as np

from keras_vit.inspection.figures import new_figure

_COLUMNS = 4


def plot_task(
    images: Sequence[np.ndarray],
    found: Sequence[dict],
    out_path: str | os.PathLike | IO[bytes],
    class_names: Sequence[str] | None = None,
    side: float = 2.6,
) -> None:
    """Draw images with what `TaskModel.interpret` returns of them.

    Boxes are drawn with names and scores, classes and segments as colours over
    the image, depth below it, near places bright, and keypoints as dots. Depth
    without "is_relative" is taken for metres.

    Args:
        images: `[H, W, C]` each, in [0, 255], of the sizes that were given to
            `interpret`.
        found: Of each image.
        out_path: The picture to write; its ending says the format. A file gets
            a PNG.
        class_names: Names of the classes, for the legend.
        side: Of an image, in inches of 100 pixels.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    has_depth = "depth" in found[0]
    columns = min(_COLUMNS, len(images))
    rows = -(-len(images) // columns)
    factor = 2 if has_depth else 1
    figure = new_figure(side * columns, side * rows * factor)
    for i, (image, own) in enumerate(zip(images, found, strict=True)):
        row, column = divmod(i, columns)
        place = (row * factor) * columns + column + 1
        axes = figure.add_subplot(rows * factor, columns, place)
        _show(axes, image)
        if has_depth:
            below = figure.add_subplot(rows * factor, columns, place + columns)
            near = own["depth"]  # larger for what is near
            if not own.get("is_relative"):
                near = 1 / np.maximum(near, 1e-6)
            below.imshow(near, cmap="magma")
            below.set_axis_off()
        elif "boxes" in own:
            _boxes(axes, own)
        elif "keypoints" in own:
            axes.scatter(*own["keypoints"].T, c=own["scores"], s=12)
        else:
            _regions(axes, own, class_names)
    figure.savefig(out_path)


def _show(axes, image):
    image = np.clip(np.asarray(image), 0, 255).astype("uint8")
    if image.shape[-1] == 1:
        image = image[..., 0]
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_axis_off()


def _colour(number):
    from matplotlib import colormaps

    return colormaps["tab20"](int(number) % 20)


def _boxes(axes, found):
    from matplotlib.patches import Rectangle

    for (left, top, right, bottom), score, label, name in zip(
        *(found[key] for key in ("boxes", "scores", "labels", "names")),
        strict=True,
    ):
        colour = _colour(label)
        # Pixel 0 is drawn from -0.5 on.
        corner = left - 0.5, top - 0.5
        axes.add_patch(
            Rectangle(
                corner,
                right - left,
                bottom - top,
                fill=False,
                edgecolor=colour,
                linewidth=1.5,
            )
        )
        axes.text(
            left,
            top,
            f"{name} {score:.0%}",
            fontsize=7,
            color="white",
            va="bottom",
            bbox=dict(facecolor=colour, pad=0.8, linewidth=0),
            parse_math=False,
        )


def _regions(axes, found, class_names):
    """Colour the classes of pixels, or the segments by their classes."""
    classes = found.get("classes")
    if classes is None:
        classes = np.full(np.shape(found["segments"]), -1)
        for segment in found["segments_info"]:
            place = found["segments"] == segment["id"]
            classes[place] = segment["label_id"]
    present = np.unique(classes[classes >= 0])
    colours = np.zeros((*classes.shape, 4))
    for number in present:
        colours[classes == number] = (*_colour(number)[:3], 0.55)
    axes.imshow(colours)
    names = [str(n) if class_names is None else class_names[n] for n in present]
    title = textwrap.shorten(", ".join(names), 40)
    axes.set_title(title, fontsize=7, parse_math=False)


def plot_masked(
    images: np.ndarray,
    drawn: np.ndarray,
    mask: np.ndarray,
    patch_size: tuple[int, int, int],
    out_path: str | os.PathLike,
) -> None:
    """Draw images, their visible patches, and what a model drew of the others.

    Args:
        images: Pixels in [0, 255], `[B, H, W, C]`; of videos,
            `[B, T, H, W, C]`, the first frame is drawn.
        drawn: Of `MaskedModel.reconstruct`, of the same shape.
        mask: Which patches were not visible, `[B, N]`.
        patch_size: (frames, height, width) of a patch.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    if images.ndim == 5:
        images, drawn = images[:, 0], drawn[:, 0]
    _, height, width = patch_size
    rows, columns = images.shape[1] // height, images.shape[2] // width
    mask = mask[:, : rows * columns].reshape(-1, rows, columns)
    hidden = mask.repeat(height, axis=1).repeat(width, axis=2)[..., None] > 0
    shown = images, np.where(hidden, 128, images), drawn
    figure = new_figure(1.6 * len(images), 5.2)
    titles = ("image", "visible", "drawn")
    for row, (pictures, title) in enumerate(zip(shown, titles, strict=True)):
        for column, image in enumerate(pictures):
            place = row * len(images) + column + 1
            axes = figure.add_subplot(len(shown), len(images), place)
            _show(axes, image)
            if not column:
                axes.set_title(title, loc="left", fontsize=9)
    figure.savefig(out_path)
