"""What is wrong with the images, told before or after it shows."""

import collections
import warnings

from keras_vit.data import folder
from keras_vit.data.decode import find_broken
from keras_vit.data.sources import Source


def warn_if_scaled(source: Source) -> None:
    """Warns where float images are evidently scaled already.

    Models take pixels in [0, 255]. Files and uint8 arrays always are; floats
    that all lie within [0, 1] or [-1, 1] are not.

    Args:
        source: A part of `load`; its first 1,000 images are looked at.
    """
    if source.images is None or source.images.dtype == "uint8":
        return
    sample = source.images[:1000]
    low, high = float(sample.min()), float(sample.max())
    if -1 <= low and high <= 1:
        warnings.warn(
            f"The images of {source.name!r} lie between {low:g} and {high:g}: "
            "they seem to be scaled already, but the model takes pixels in "
            "[0, 255] and scales them itself. Pass pixels, or build the "
            "model with include_preprocessing=False.",
            stacklevel=2,
        )


def explain_broken(source: Source, limit: int = 10) -> str | None:
    """Looks for the files behind a decoding error.

    Args:
        source: A part of `load`.
        limit: How many files to name.

    Returns:
        A message that names them with the decoder's reasons, or None if
        every file decodes.
    """
    broken = find_broken(source.paths or ())
    if not broken:
        return None
    shown = "\n".join(
        f"  {path}: {reason}" for path, reason in list(broken.items())[:limit]
    )
    if len(broken) > limit:
        shown += f"\n  ... and {len(broken) - limit} more"
    return (
        f"{len(broken)} of {source.num_examples} image files of "
        f"{source.name!r} do not decode:\n{shown}\nMend or remove them, or "
        "leave them out with broken='skip'."
    )


def describe_ignored(*sources: Source) -> str:
    """Says how many files of a folder were not read, and why.

    Args:
        *sources: The parts of `load`.

    Returns:
        Such as "34 files ignored (hidden: 1 .jpg; unsupported: 33 .heic)".
    """
    ignored = sum(
        (collections.Counter(source.ignored) for source in sources),
        collections.Counter(),
    )
    return folder.describe(ignored)
