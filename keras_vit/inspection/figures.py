"""Figures of training runs and of attention."""

import csv
import importlib
import math
import os
import textwrap

import numpy as np

from keras_vit._installation import pip_install

_TRAIN, _EVAL, _RATE = "#8a8a8a", "#1f5fbf", "#c26a00"
_LIT = (1.0, 0.45, 0.0)
# Title of a panel -> columns, and column -> colour and name of its line.
_PANELS = {
    "loss": ("loss", "val_loss"),
    "accuracy": ("accuracy", "val_accuracy"),
    "learning rate": ("learning_rate",),
}
_LINES = {
    "loss": (_TRAIN, "training"),
    "accuracy": (_TRAIN, "training"),
    "val_loss": (_EVAL, "evaluation"),
    "val_accuracy": (_EVAL, "evaluation"),
}
_RIGHT, _WRONG, _PLAIN = "#1b7f3b", "#c62828", "#222222"


def plot_curves(csv_path: str | os.PathLike, out_path: str | os.PathLike):
    """Draw loss, accuracy and learning rate of a run.

    Args:
        csv_path: A file of `keras.callbacks.CSVLogger`, with the columns loss,
            accuracy, val_loss, val_accuracy and, optionally, step and
            learning_rate.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there is no finished epoch.
    """
    with open(csv_path, newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(
            "`csv_path` must hold at least one epoch. "
            f"Received: {os.fspath(csv_path)!r}, which holds none"
        )
    columns = {
        name: np.array([_number(row[name]) for row in rows]) for name in rows[0]
    }
    x, x_label = (
        (columns["step"], "step")
        if "step" in columns
        else (columns["epoch"] + 1, "epoch")
    )
    panels = {
        title: [name for name in names if name in columns]
        for title, names in _PANELS.items()
    }
    panels = {title: names for title, names in panels.items() if names}
    figure = new_figure(4.2 * len(panels), 3.4)
    for i, (title, names) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), i + 1)
        for name in names:
            color, label = _LINES.get(name, (_RATE, None))
            axes.plot(
                x,
                columns[name],
                color=color,
                label=label,
                linewidth=1.6,
                marker="o" if len(rows) == 1 else None,
            )
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel(x_label)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if title != "learning rate":
            axes.legend(frameon=False)
        if "val_accuracy" in names:
            _mark_last(axes, x, columns["val_accuracy"])
    figure.savefig(out_path)


def _mark_last(axes, x, values):
    """Mark the last value; the best one is selected on the same images."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known):
        last = x[known[-1]], values[known[-1]]
        axes.plot(*last, "o", color=_EVAL, markersize=5)
        axes.annotate(
            f"{last[1]:.2%}",
            last,
            xytext=(0, -14),
            textcoords="offset points",
            ha="right",
            color=_EVAL,
        )


def plot_shots(
    shots: list[int],
    accuracies: list[tuple[float, ...]],
    out_path: str | os.PathLike,
):
    """Draw few-shot accuracy against the number of labels.

    Args:
        shots: Numbers of labelled images of each class.
        accuracies: For each, the accuracies of several draws.
        out_path: The picture to write; its ending says the format.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = new_figure(5.2, 3.6)
    axes = figure.add_subplot()
    for count, draws in zip(shots, accuracies, strict=True):
        axes.plot([count] * len(draws), draws, ".", color=_TRAIN)
    means = [float(np.mean(draws)) for draws in accuracies]
    axes.plot(shots, means, "o-", color=_EVAL, linewidth=1.6)
    for count, mean in zip(shots, means, strict=True):
        axes.annotate(
            f"{mean:.1%}",
            (count, mean),
            xytext=(9, -12),
            textcoords="offset points",
            color=_EVAL,
        )
    axes.set_xscale("log")
    axes.set_xticks(shots, labels=list(map(str, shots)))
    axes.minorticks_off()
    axes.set_xlabel("labelled images of each class")
    axes.set_title(
        "accuracy: the mean, and each draw of labels", loc="left", fontsize=11
    )
    axes.margins(0.15)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out_path)


def plot_attention(
    images: np.ndarray,
    attention: np.ndarray | None,
    titles: list[str],
    out_path: str | os.PathLike,
    *,
    right: np.ndarray | None = None,
):
    """Draw each image and, beside it, its attention.

    Attention is shown as a multiple of the uniform share, 1 / (rows *
    columns): orange where a patch has more than that, on one logarithmic scale
    for all images, shown by the colour bar. Full orange is the largest
    multiple, but at least 1.5, so that nearly uniform attention looks uniform.

    Args:
        images: `[B, H, W, C]`, pixels in [0, 255], C 1 or 3.
        attention: `[B, rows, columns]`, each image's sum 1, as of
            `attention_rollout`; None draws the images alone.
        titles: A line over each image.
        out_path: The picture to write; its ending says the format.
        right: Whether each prediction is right, to colour the titles by.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the arguments differ in length.
    """
    shown = images if attention is None else attention
    _check_lengths("images", images, shown, titles)
    relative = [None] * len(images)
    if attention is not None:
        relative = np.asarray(attention) * np.size(attention[0])
        highest = max(float(relative.max()), 1.5)
    per_row = min(len(images), 4)
    num_rows = math.ceil(len(images) / per_row)
    ratio = images.shape[1] / images.shape[2]
    side = 1.6 if len(images) > 2 else 2.8
    bar = 0.85  # inches
    width, height = 2 * side * per_row, num_rows * (side * ratio + 0.45)
    figure = new_figure(width, height + bar)
    cells, bottom = figure.subfigures(2, 1, height_ratios=(height, bar))
    grid = cells.add_gridspec(num_rows, per_row)
    for i, (image, multiples, title) in enumerate(
        zip(images, relative, titles, strict=True)
    ):
        cell = cells.add_subfigure(grid[i // per_row, i % per_row])
        title = "\n".join(textwrap.wrap(title, 40, max_lines=2))
        cell.suptitle(
            title, fontsize=9, color=_title_color(right, i), parse_math=False
        )
        if multiples is None:
            _show(cell.subplots(), as_colours(image))
        else:
            _draw_overlay(cell, image, multiples, highest)
    if attention is not None:
        _draw_scale(bottom, highest, np.size(attention[0]))
    figure.savefig(out_path)


def plot_clips(
    clips: np.ndarray,
    attention: np.ndarray | None,
    titles: list[str],
    out_path: str | os.PathLike,
    *,
    right: np.ndarray | None = None,
    num_frames: int = 8,
):
    """Draw each clip as a strip of frames and, below it, its attention.

    Args:
        clips: `[B, T, H, W, C]`, pixels in [0, 255], C 1 or 3.
        attention: `[B, T', rows, columns]`, each clip's sum 1, as of
            `attention_rollout`; T' divides T into spans of frames. None draws
            the clips alone. The colours are those of `plot_attention`.
        titles: A line over each clip.
        out_path: The picture to write; its ending says the format.
        right: Whether each prediction is right, to colour the titles by.
        num_frames: Frames to draw, spread evenly over the clip.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the arguments differ in length.
    """
    shown = clips if attention is None else attention
    _check_lengths("clips", clips, shown, titles)
    length = clips.shape[1]
    frames = np.linspace(0, length - 1, min(num_frames, length)).round()
    frames = frames.astype(int)
    lines = 1 if attention is None else 2
    side = 1.2
    height = side * lines * clips.shape[2] / clips.shape[3] + 0.35
    bar = 0.85 if lines == 2 else 0.01  # inches
    figure = new_figure(side * len(frames), height * len(clips) + bar)
    cells, bottom = figure.subfigures(
        2, 1, height_ratios=(height * len(clips), bar)
    )
    grid = cells.add_gridspec(len(clips), 1)
    if attention is not None:
        relative = np.asarray(attention) * np.size(attention[0])
        highest = max(float(relative.max()), 1.5)
        spans = frames * attention.shape[1] // length
        _draw_scale(bottom, highest, np.size(attention[0]))
    for i, (clip, title) in enumerate(zip(clips, titles, strict=True)):
        cell = cells.add_subfigure(grid[i, 0])
        cell.suptitle(
            title, fontsize=9, color=_title_color(right, i), parse_math=False
        )
        axes = cell.subplots(lines, len(frames), squeeze=False)
        for j, t in enumerate(frames):
            _show(axes[0, j], as_colours(clip[t]))
            if lines == 2:
                multiples = relative[i, spans[j]]
                _show_overlay(axes[1, j], clip[t], multiples, highest)
    figure.savefig(out_path)


def _check_lengths(name, examples, shown, titles):
    if not len(examples) == len(shown) == len(titles):
        raise ValueError(
            f"`{name}`, `attention` and `titles` must have the same length. "
            f"Received: {len(examples)}, {len(shown)}, {len(titles)}"
        )


def _title_color(right, i):
    if right is None:
        return _PLAIN
    return _RIGHT if right[i] else _WRONG


def as_colours(image: np.ndarray) -> np.ndarray:
    """Return an image in [0, 1] of three channels.

    Args:
        image: `[H, W, C]`, pixels in [0, 255], C 1 or 3.
    """
    pixels = np.clip(np.asarray(image, "float32") / 255, 0, 1)
    return np.repeat(pixels, 3, -1) if pixels.shape[-1] == 1 else pixels


def _draw_overlay(figure, image, multiples, highest):
    """Draw the image on the left; on the right in grey, with attention in
    orange."""
    _show(figure.add_subplot(1, 2, 1), as_colours(image))
    _show_overlay(figure.add_subplot(1, 2, 2), image, multiples, highest)


def _show(axes, pixels):
    extent = (0, pixels.shape[1], pixels.shape[0], 0)
    axes.imshow(pixels, extent=extent, interpolation="nearest")
    axes.set_axis_off()


def _show_overlay(axes, image, multiples, highest):
    pixels = as_colours(image)
    grey = np.repeat(pixels.mean(axis=-1, keepdims=True), 3, axis=-1)
    grey = 0.15 + 0.55 * grey  # orange is visible on black and on white
    _show(axes, grey)
    shares = np.log(np.maximum(multiples, 1)) / np.log(highest)
    extent = (0, pixels.shape[1], pixels.shape[0], 0)
    axes.imshow(_orange(shares), extent=extent, interpolation="nearest")


def _draw_scale(figure, highest, num_patches):
    """Draw a colour bar from the uniform share to its highest multiple."""
    axes = figure.add_subplot()
    axes.set_facecolor("#6c6c6c")
    axes.imshow(
        _orange(np.linspace(0, 1, 256))[np.newaxis],
        extent=(0, 1, 0, 1),
        aspect="auto",
    )
    axes.set_box_aspect(0.05)
    axes.set_yticks([])
    ticks = (0, 0.5, 1)
    axes.set_xticks(ticks, labels=[f"{highest**x:.3g}x" for x in ticks])
    axes.tick_params(labelsize=8)
    axes.set_xlabel(
        "where the model looked: attention on each patch, in multiples of "
        f"the uniform share 1/{num_patches}\n(grey: the uniform share or less)",
        fontsize=8,
    )


def _orange(shares):
    """Orange, from transparent at 0 to nearly opaque at 1."""
    colors = np.empty((*shares.shape, 4))
    colors[..., :3] = _LIT
    colors[..., 3] = 0.85 * shares
    return colors


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        # CSVLogger writes NA for missing values; the last line may be cut off.
        return float("nan")


def new_figure(width: float, height: float):
    """Return a figure without global state, so that no display is needed.

    Args:
        width, height: In inches.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        figure = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise ImportError(
            "Figures need `matplotlib`, which is not installed: "
            + pip_install("figures")
        ) from error
    return figure.Figure(figsize=(width, height), dpi=120, layout="constrained")
