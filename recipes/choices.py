"""Optimizers and schedules by name: the recipes', those of Keras, and yours."""

import difflib

import keras

from keras_vit.data import named

OPTIMIZERS = ("sgd", "adam", "lamb")
SCHEDULES = ("cosine", "linear", "step")
# Arguments of optimizers -> the fields that set them.
OF_FIELDS = {
    "learning_rate": "optim.base_lr",
    "weight_decay": "optim.weight_decay",
    "global_clipnorm": "optim.clip_norm",
    "use_ema": "optim.ema_momentum",
    "ema_momentum": "optim.ema_momentum",
}


def find_optimizer(text: str) -> tuple:
    """Return the class of an optimizer, and arguments besides the fields'.

    Args:
        text: A class of `keras.optimizers` or "module:Class" of the user's own,
            perhaps with literal arguments by name.
    """
    found, positional, keywords = _find(
        "optim.name", text, keras.optimizers, OPTIMIZERS
    )
    is_optimizer = isinstance(found, type) and issubclass(
        found, keras.optimizers.Optimizer
    )
    if not is_optimizer or positional:
        raise ValueError(
            "`optim.name` must be a class of optimizers, with arguments by "
            f"name. Received: optim.name={text!r}"
        )
    for name in OF_FIELDS.keys() & keywords:
        raise ValueError(
            f"`optim.name` must leave `{name}` to `{OF_FIELDS[name]}`. "
            f"Received: optim.name={text!r}"
        )
    return found, keywords


def has_momentum(text: str) -> bool:
    """Return whether an optimizer has the momentum of `optim.momentum`."""
    if text in OPTIMIZERS:
        return text == "sgd"
    return find_optimizer(text)[0] is keras.optimizers.SGD


def find_schedule(text: str) -> tuple:
    """Return the maker of a schedule, and its further arguments.

    Args:
        text: A class of `keras.optimizers.schedules` or "module:name" of the
            user's own, perhaps with literal arguments. It is called with the
            highest rate, the steps after the warm-up and these arguments.

    Raises:
        ValueError: If there is no such name.
    """
    return _find("schedule.name", text, keras.optimizers.schedules, SCHEDULES)


def made(argument: str, text: str, make, *positional, **keywords):
    """Call what `text` names; an error of its arguments names the field."""
    try:
        return make(*positional, **keywords)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{argument}` must take the arguments that it is given. "
            f"Received: {argument}={text!r}: {error}"
        ) from error


def _find(argument, text, package, known):
    try:
        name, positional, keywords = named.parse(text)
    except ValueError as error:
        raise ValueError(f"`{argument}`: {error}") from None
    if ":" in name:
        return named.imported(name, argument), positional, keywords
    classes = [
        name for name, value in vars(package).items() if isinstance(value, type)
    ]
    if name not in classes:
        remedy = (
            "AdamW is 'adam' with `optim.weight_decay`"
            if name == "adamw"
            else "Nearest names: "
            f"{difflib.get_close_matches(name, [*classes, *known]) or classes}"
        )
        raise ValueError(
            f"`{argument}` must be one of {known}, a class of "
            f"{package.__name__} or 'module:name' of yours. "
            f"Received: {argument}={text!r}. {remedy}"
        )
    return getattr(package, name), positional, keywords
