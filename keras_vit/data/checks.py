"""Checks for images that are broken or already scaled."""

import collections
import re
import warnings
from typing import Any

import keras
import numpy as np

from keras_vit._arguments import Natural, checked
from keras_vit.data import arrays, folder, video_files
from keras_vit.data.sources import Source


def check_pixels(images) -> None:
    """Warn if images are evidently not pixels, or have channels first.

    Models take pixels in [0, 255] and scale them. `fit` and `predict` also
    accept images within [0, 1] or [-1, 1], with a loss of accuracy, and NaN. A
    compiled model cannot inspect its input, so call this once before.

    Args:
        images: `[B, H, W, C]`, an array or a tensor, of which the first 1,000
            are checked; or batches, with or without labels, as `fit` takes them
            (`tf.data`, a DataLoader, a PyDataset), or dictionaries with
            "images", of which the first is checked.

    Raises:
        ValueError: If there are no images.

    Example:
        keras_vit.data.check_pixels(images)
        model.compile(
            "adam",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(images, labels)
    """
    sample = _first_images(images)
    arrays.warn_if_channels_first(sample.shape, "The images", stacklevel=3)
    _check_pixels(sample, "The images")


def _first_images(images):
    """Return an array of up to 1,000 images."""
    parts = (list, tuple, dict)
    found: Any = images
    if isinstance(images, keras.utils.PyDataset):
        found = images[0]
    elif not hasattr(images, "shape") and not isinstance(images, parts):
        found = (
            next(iter(images), None) if hasattr(images, "__iter__") else None
        )
    while isinstance(found, parts) and found:  # images and labels
        found = found.get("images") if isinstance(found, dict) else found[0]
    if len(getattr(found, "shape", ())) < 3 or not found.shape[0]:
        raise ValueError(
            "`images` must be [B, H, W, C], or batches with such images. "
            f"Received: {type(images)} with the first {str(found)[:80]}"
        )
    return keras.ops.convert_to_numpy(found[:1000])


def _check_pixels(sample, what):
    if sample.dtype == "uint8":
        return
    low, high = float(sample.min()), float(sample.max())
    if not np.isfinite([low, high]).all():
        problem = "hold NaN or infinity"
    # Divided by 255, or by a standard deviation. All alike, they could be
    # anything.
    elif -10 <= low < high <= (1 if low >= 0 else 10):
        problem = "seem to be scaled already"
    elif low < -64 or high > 320:  # more than resizing overshoots
        problem = "are out of range"
    else:
        return
    warnings.warn(
        f"{what} lie between {low:g} and {high:g}: they {problem}, but the "
        "model takes pixels in [0, 255] and scales them itself. Pass pixels, "
        "or build the model with include_preprocessing=False.",
        stacklevel=3,
    )


def warn_if_scaled(source: Source) -> None:
    """Do what `check_pixels` does, for the arrays of a source."""
    if source.images is not None:
        _check_pixels(source.images[:1000], f"The images of {source.name!r}")


@checked
def explain_broken(
    source: Source, limit: Natural = 10, error: Exception | None = None
) -> str | None:
    """Return a message of the files that do not decode, or None.

    Args:
        source: A source of `load`.
        limit: Largest number of files to name.
        error: The error of TensorFlow. It names a video, so that not all videos
            must be decoded to find it.
    """
    if source.is_video and error is not None:
        named = re.search(f"(.* {video_files.BROKEN}: .*)", str(error))
        return named and named[1].removeprefix("ValueError: ")
    broken = folder.find_broken(source.paths or (), source.is_video)
    if not broken:
        return None
    shown = "\n".join(
        f"  {path}: {reason}" for path, reason in list(broken.items())[:limit]
    )
    if len(broken) > limit:
        shown += f"\n  ... and {len(broken) - limit} more"
    kind = "video" if source.is_video else "image"
    return (
        f"{len(broken)} of {source.num_examples} {kind} files of "
        f"{source.name!r} do not decode:\n{shown}\nRepair or remove them; "
        "`load` skips them with broken='skip'."
    )


def describe_ignored(*sources: Source) -> str:
    """Return how many files of the sources' folders were not read, and why."""
    ignored = sum(
        (collections.Counter(source.ignored) for source in sources),
        collections.Counter(),
    )
    return folder.describe(ignored)
