"""Checks of the arguments of constructors."""

import difflib

from keras_vit._arguments import Count, check


def refuse_unknown(constructor: str, unknown, known) -> None:
    """Refuses keywords that a constructor does not have.

    Args:
        constructor: Its name.
        unknown: The keywords that it was called with, by name or not.
        known: The keywords that it has.

    Raises:
        ValueError: If one of them asks for channels-first images.
        TypeError: If there are any others.
    """
    for keyword in unknown:
        if keyword == "data_format":
            raise ValueError(
                f"{constructor} has no argument `data_format`: images are "
                "always channels-last, [B, H, W, C]. Transpose channels-first "
                "images with keras.ops.transpose(images, (0, 2, 3, 1))."
            )
        nearest = difflib.get_close_matches(keyword, known, n=1)
        raise TypeError(
            f"{constructor}() has no argument {keyword!r}."
            + (f" Did you mean {nearest[0]!r}?" if nearest else "")
        )


def check_pooling(pooling, include_top, family) -> None:
    """Checks the output of a model without a head."""
    if pooling is None:
        return
    if include_top:
        raise ValueError(
            "`pooling` must be None, or 'levels' with include_top=False. "
            f"Received: pooling={pooling!r}, include_top={include_top}"
        )
    if family.levels is None:
        raise ValueError(
            "`pooling` must be None for a family without levels of feature "
            f"maps. Received: pooling='levels' of the family {family.name!r}"
        )


def check_input_shape(input_shape, takes_video: bool = False) -> None:
    """Checks that a shape is (height, width, channels), or of a video."""
    shape = input_shape
    names = ("frames", "height", "width", "channels")
    if isinstance(shape, (list, tuple)) and len(shape) in (3, 3 + takes_video):
        names = names[-len(shape) :]
        for length, argument in zip(shape, names, strict=True):
            # The patch embedding refuses unknown sizes.
            if length is not None or argument == "channels":
                check(length, f"{argument} of input_shape", Count)
        return
    expected = "(height, width, channels), such as (224, 224, 3)"
    if takes_video:
        expected += (
            ", or (frames, height, width, channels), such as (16, 224, 224, 3)"
        )
    raise ValueError(
        f"`input_shape` must be {expected}. Received: input_shape={shape!r}"
    )
