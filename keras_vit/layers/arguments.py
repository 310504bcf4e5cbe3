"""Checks of the arguments of layers and models."""

import math
import numbers


def as_pair(size: int | tuple[int, int], argument: str) -> tuple[int, int]:
    """Returns `size` as (height, width).

    Args:
        size: One integer for a square, or a pair (height, width).
        argument: The name that an error message gives to `size`.

    Raises:
        ValueError: If `size` is neither a positive integer nor a pair of them.
    """
    pair = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    if len(pair) != 2 or not all(_is_integer(n) and n > 0 for n in pair):
        raise ValueError(
            f"`{argument}` must be a positive integer or a pair of them "
            f"(height, width). Received: {argument}={size!r}"
        )
    return int(pair[0]), int(pair[1])


def as_triple(
    size: tuple[int, int, int], argument: str
) -> tuple[int, int, int]:
    """Returns `size` as (frames, height, width), as `as_pair` does."""
    triple = tuple(size) if isinstance(size, (list, tuple)) else ()
    if len(triple) != 3 or not all(_is_integer(n) and n > 0 for n in triple):
        raise ValueError(
            f"`{argument}` must be three positive integers (frames, height, "
            f"width). Received: {argument}={size!r}"
        )
    frames, height, width = map(int, triple)
    return frames, height, width


def check_count(value: int, argument: str, minimum: int = 1) -> None:
    """Checks that a value is an integer of at least `minimum`."""
    if not _is_integer(value) or value < minimum:
        raise ValueError(
            f"`{argument}` must be an integer, at least {minimum}. "
            f"Received: {argument}={value!r}"
        )


def check_rate(value: float, argument: str) -> None:
    """Checks that a value is a fraction: at least 0 and below 1."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(
            f"`{argument}` must be a number from 0 up to, but not, 1. "
            f"Received: {argument}={value!r}"
        )


def check_epsilon(value: float, argument: str) -> None:
    """Checks that a value is a number between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise ValueError(
            f"`{argument}` must be a number between 0 and 1, such as 1e-6. "
            f"Received: {argument}={value!r}"
        )


def check_units(value: tuple[int, ...], argument: str) -> None:
    """Checks that a value is a sequence of counts, one for each stage."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(
            f"`{argument}` must be a tuple with the units of each stage, such "
            f"as (3, 4, 9). Received: {argument}={value!r}"
        )
    for units in value:
        check_count(units, argument)


def check_levels(values: tuple, argument: str, depths: tuple) -> None:
    """Checks that there is a value for each level of a pyramid."""
    if not values or len(values) != len(depths):
        raise ValueError(
            f"`{argument}` must have a value for each level, as `depths`. "
            f"Received: {argument}={values}, depths={depths}"
        )


def check_pyramid(config) -> None:
    """Checks the fields that pyramids of MLPs share."""
    check_units(config.depths, "depths")
    check_units(config.hidden_sizes, "hidden_sizes")
    check_levels(config.hidden_sizes, "hidden_sizes", config.depths)
    check_width(config.mlp_ratio, "mlp_ratio")
    check_rate(config.drop_path_rate, "drop_path_rate")


def check_width(value: float, argument: str) -> None:
    """Checks that a value is a positive number."""
    if not is_number(value) or value <= 0:
        raise ValueError(
            f"`{argument}` must be a positive number. "
            f"Received: {argument}={value!r}"
        )


def check_choice(value: str, argument: str, choices: tuple[str, ...]) -> None:
    """Checks that a value is one of `choices`."""
    if value not in choices:
        raise ValueError(
            f"`{argument}` must be one of {choices}. "
            f"Received: {argument}={value!r}"
        )


def check_flag(value: bool, argument: str) -> None:
    """Checks that a value is True or False."""
    if value not in (True, False):
        raise ValueError(
            f"`{argument}` must be True or False. "
            f"Received: {argument}={value!r}"
        )


def pooled_size(size, kernel_size, strides, padding) -> tuple[int, ...]:
    """Returns how many windows fit into each padded axis."""
    axes = zip(size, kernel_size, strides, padding, strict=True)
    return tuple((n + 2 * pad - k) // stride + 1 for n, k, stride, pad in axes)


def check_shape(layer, inputs, expected: tuple[int | None, ...]) -> None:
    """Checks that a layer is called on inputs of the shape it was built for.

    Not every backend checks this: a reshape would move the excess pixels of an
    image into the batch.

    Args:
        layer: The layer.
        inputs: Its input, a tensor.
        expected: Its shape without the batch; None where any size is allowed.
    """
    found = tuple(inputs.shape)
    if len(found) == len(expected) + 1 and all(
        None in pair or pair[0] == pair[1]
        for pair in zip(found[1:], expected, strict=True)
    ):
        return
    expected_text = ", ".join("any" if n is None else str(n) for n in expected)
    remedy = ""
    if len(found) == 4 and len(expected) == 3:
        remedy = " Resize the images, or build the model with another "
        remedy += "`input_shape`."
        if found[1] == expected[2] != found[3]:
            remedy = " These seem to be channels-first: transpose them to "
            remedy += "[B, H, W, C]."
    raise ValueError(
        f"{type(layer).__name__} `{layer.name}` was built for inputs of shape "
        f"[B, {expected_text}]. Received: shape {found}.{remedy}"
    )


def is_number(value) -> bool:
    """Returns whether a value is a finite number, not a truth value."""
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _is_integer(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
