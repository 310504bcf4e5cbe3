"""Scaling of pixels: as the weights were trained, or as given."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# Allows pixels of any bit depth, down to a thousandth of the smallest step.
_LEAST, _MOST = 1e-3, 1e5


def scale_and_offset(
    mean: float | Sequence[float] | None,
    std: float | Sequence[float] | None,
    metadata: dict | None,
    channels: int,
) -> tuple[float, float] | tuple[list[float], list[float]]:
    """Return the scale and the offset of (pixels - mean) / std.

    Args:
        mean: Subtracted from pixels, one number or one for each channel; None
            takes that of the weights, or 127.5 without weights.
        std: Divisor of pixels, given in the same way.
        metadata: Metadata of the weights, or None without weights.
        channels: Number of channels.

    Returns:
        Two numbers, or two lists if the channels differ.

    Raises:
        ValueError: If neither the caller nor the weights specify it, or the
            number of values is not that of the channels.
    """
    absent = [
        argument
        for argument, value in (("pixel_mean", mean), ("pixel_std", std))
        if value is None and metadata is not None and argument not in metadata
    ]
    if absent:
        raise ValueError(
            "`pixel_mean` and `pixel_std` must be given, since the weights do "
            "not specify how their pixels are scaled and a wrong scale costs "
            "accuracy silently: 127.5 and 127.5 for most of timm's and "
            "keras-hub's ViTs, (123.675, 116.28, 103.53) and (58.395, 57.12, "
            "57.375) for DeiT and MAE; or pass include_preprocessing=False "
            f"and scale images yourself. Received: {absent[0]}=None"
        )
    metadata = metadata or {}
    mean = metadata.get("pixel_mean", 127.5) if mean is None else mean
    std = metadata.get("pixel_std", 127.5) if std is None else std
    check(mean, std)
    mean = _each("pixel_mean", mean, channels)
    std = _each("pixel_std", std, channels)
    scale = [1 / s for s in std]
    offset = [-m / s for m, s in zip(mean, std, strict=True)]
    if len(set(scale)) == len(set(offset)) == 1:
        return scale[0], offset[0]
    return scale, offset


def known(mean, std, metadata: dict | None, channels: int) -> tuple:
    """Return the mean and the standard deviation; None if unknown.

    Those of weights for another number of channels are unknown.

    Raises:
        ValueError: If the caller gives another number of values than channels.
    """
    default = 127.5 if metadata is None else None
    found: list[Any] = []
    for name, value in (("pixel_mean", mean), ("pixel_std", std)):
        if value is not None:
            _each(name, value, channels)
        else:
            value = (metadata or {}).get(name, default)
            values = np.ravel([value])
            if len(values) != channels and len(set(values)) > 1:
                value = None
        found.append(value)
    return tuple(found)


def check(mean, std) -> None:
    """Check a mean and a standard deviation of pixels.

    Raises:
        ValueError: If one of them has an impossible value.
    """
    for argument, value, low in (
        ("pixel_mean", mean, -_MOST),
        ("pixel_std", std, _LEAST),
    ):
        values = [value] if np.ndim(value) == 0 else list(value)
        if value is not None and not all(
            isinstance(n, (int, float, np.number))
            and not isinstance(n, bool)
            and low <= n <= _MOST
            for n in values
        ):
            raise ValueError(
                f"`{argument}` must be one number from {low} to {_MOST}, or "
                f"one for each channel. Received: {argument}={value}"
            )


def _each(argument, value, channels):
    """Return a number for each channel."""
    values = [value] if np.ndim(value) == 0 else list(value)
    if len(set(values)) == 1:  # the same for any number of channels
        values = values[:1] * channels
    if len(values) != channels:
        raise ValueError(
            f"`{argument}` must be one number, or one for each of the "
            f"{channels} channels. Received: {argument}={value}"
        )
    return values
