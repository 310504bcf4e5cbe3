"""Reads values of a checkpoint's config, which may contain anything.

Each function returns the value of a key, or None if the key is absent or null.
An impossible value raises a ValueError that names the key.
"""

import math

# Epsilons of released models are at most 1e-3, sizes at most some thousands.
MAX_EPSILON = 0.1
MAX_SIZE = 10**6


def section(config: dict, key: str) -> dict:
    """Return an object, empty if it is absent."""
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refused(key, "an object", value)
    return value


def integer(config: dict, key: str, low: int = 1) -> int | None:
    """Return an integer of at least `low`."""
    value = config.get(key)
    if value is None:
        return None
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not low <= value <= MAX_SIZE:
        raise _refused(key, f"an integer from {low} to {MAX_SIZE}", value)
    return value


def number(config: dict, key: str, low: float, high: float) -> float | None:
    """Return a number above `low` and up to `high`."""
    value = config.get(key)
    if value is None:
        return None
    if not is_number(value) or not low < value <= high:
        raise _refused(key, f"a number above {low} and up to {high}", value)
    return float(value)


def epsilon(config: dict, key: str) -> float | None:
    """Return the epsilon of a normalisation."""
    return number(config, key, 0.0, MAX_EPSILON)


def numbers(config: dict, key: str) -> tuple[float, ...] | None:
    """Return one number, or one for each channel, as a tuple."""
    value = config.get(key)
    if value is None:
        return None
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or not all(map(is_number, values)):
        raise _refused(key, "a number, or one for each channel", value)
    return tuple(map(float, values))


def pixels(config: dict, key: str) -> tuple[float, ...] | None:
    """Return numbers about pixels in [0, 1] as those of [0, 255]."""
    values = numbers(config, key)
    return values and tuple(255 * n for n in values)


def pair(config: dict, key: str) -> tuple[int, int] | None:
    """Return (height, width); the config may have one number for both."""
    value = config.get(key)
    if value is None:
        return None
    values = value if isinstance(value, (list, tuple)) else [value] * 2
    if len(values) != 2 or not all(
        type(n) is int and 0 < n <= MAX_SIZE for n in values
    ):
        raise _refused(key, "one positive integer, or two", value)
    return tuple(values)


def choice(config: dict, key: str, choices) -> str | None:
    """Return a string, which must be one of `choices`."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        raise _refused(key, f"one of {tuple(choices)}", value)
    return value


def flag(config: dict, key: str) -> bool | None:
    """Return a boolean."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise _refused(key, "true or false", value)
    return value


def names(config: dict, key: str) -> tuple[str, ...] | None:
    """Return names by index, from a list or an object {"0": name, ...}."""
    value = config.get(key)
    if not value:
        return None
    if isinstance(value, dict):
        indices = {str(key): name for key, name in value.items()}
        value = [indices.get(str(i)) for i in range(len(indices))]
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(name, (str, int)) for name in value
    ):
        raise _refused(key, "a name for each class", config[key])
    return tuple(map(str, value))


def is_number(value) -> bool:
    """Whether a value is a finite number, not a boolean."""
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def known(**metadata) -> dict:
    """Return the metadata without the values that are None."""
    return {
        name: value for name, value in metadata.items() if value is not None
    }


def _refused(key, expected, value):
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return ValueError(f"expected `{key}` to be {expected}; found {shown}")
