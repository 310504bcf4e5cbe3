"""Checks of arguments against their annotations.

An annotation states which values an argument takes: `bool`, `str`, `int` or
`float` (finite, and never a truth value), `Literal["a", "b"]`, a name below
such as `Count`, a `dict` or `TypedDict`, a `Callable`, and tuples, sequences,
collections and unions. A list counts as a tuple, since JSON has no other.
Values of other types are not checked.
"""

import difflib
import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated

import keras
import numpy as np

# In words, and the condition beside the type.
Count = Annotated[int, "an integer, at least 1", lambda n: n >= 1]
Natural = Annotated[int, "an integer, at least 0", lambda n: n >= 0]
Rate = Annotated[float, "a number in [0, 1)", lambda x: 0 <= x < 1]
Share = Annotated[float, "a number between 0 and 1", lambda x: 0 < x < 1]
Portion = Annotated[float, "a number from 0 to 1", lambda x: 0 <= x <= 1]
Epsilon = Annotated[
    float, "a number between 0 and 1, such as 1e-6", lambda x: 0 < x < 1
]
NotNegative = Annotated[float, "a number, at least 0", lambda x: x >= 0]
Positive = Annotated[float, "a positive number", lambda x: x > 0]
Pair = Annotated[
    Count | tuple[Count, Count],
    "a positive integer or a pair of them (height, width)",
    lambda _: True,
]
Triple = Annotated[
    tuple[Count, Count, Count],
    "three positive integers (frames, height, width)",
    lambda _: True,
]


def _by(get):
    """Return the condition that a function of Keras knows a value."""

    def is_known(value):
        try:
            get(value)
        except ValueError:
            return False
        return True

    return is_known


KerasActivation = Annotated[
    str | Callable,
    "an activation of Keras, such as 'softmax'",
    _by(keras.activations.get),
]
Policy = Annotated[
    str | keras.DTypePolicy,
    "a dtype policy, such as 'mixed_bfloat16'",
    _by(keras.dtype_policies.get),
]
OptimizerClass = Annotated[
    type,
    "a class of keras.optimizers, such as keras.optimizers.AdamW",
    lambda x: isinstance(x, type) and issubclass(x, keras.optimizers.Optimizer),
]


def as_pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return a side, or (height, width), as (height, width)."""
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


def as_triple(size: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return (frames, height, width) as a tuple of Python's integers."""
    frames, height, width = map(int, size)
    return frames, height, width


def check_class_names(class_names, classes: int | None) -> None:
    """Check that there is a name for each class."""
    if class_names is None:
        return
    if not class_names or classes not in (None, len(class_names)):
        raise ValueError(
            "`class_names` must name each class. Received: "
            f"{len(class_names)} names for {classes} classes, "
            f"class_names={class_names!r}"
        )


def check(value, name: str, kind) -> None:
    """Raise a ValueError unless a value is of a kind.

    Args:
        value: The value.
        name: The name of the argument.
        kind: Its annotation.
    """
    if not _fits(value, kind):
        raise ValueError(
            f"`{name}` must be {_words(kind)}. Received: {name}={value!r}"
        )


def refuse_unknown(
    called: str, given: Iterable[str], known: Collection[str]
) -> None:
    """Raise a TypeError if an argument is unknown.

    Args:
        called: Name of the function that is called.
        given: Names of the arguments.
        known: Names of those that it has.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            raise TypeError(
                f"{called}() has no argument {name!r}. "
                f"Nearest names: {near or list(known)}"
            )


_F = typing.TypeVar("_F", bound=Callable)


def checked(function: _F) -> _F:
    """Make a function, or a class, check its arguments when it is called.

    It raises a ValueError that names the argument, before anything else.
    Numbers of NumPy, some of which Keras refuses, become those of Python.

    Args:
        function: A function with annotations; a class for its `__init__`.
    """
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return function

    @functools.wraps(function)
    def check_and_call(*args, **kwargs):
        kinds, is_closed = _kinds(function)
        args = tuple(map(_plain, args))
        kwargs = {name: _plain(value) for name, value in kwargs.items()}
        if is_closed:
            refuse_unknown(function.__name__, kwargs, kinds)
        for name, value in [*zip(kinds, args, strict=False), *kwargs.items()]:
            check(value, name, kinds.get(name))
        return function(*args, **kwargs)

    # For Keras, which looks here for the arguments of a layer, and for `help`,
    # which shows types without conditions.
    signature = inspect.signature(function)
    shown = typing.get_type_hints(function)
    check_and_call.__signature__ = signature.replace(  # type: ignore
        parameters=[
            one.replace(annotation=shown.get(one.name, one.annotation))
            for one in signature.parameters.values()
        ]
    )
    return check_and_call  # type: ignore[return-value]


def _plain(value):
    """Return a number of NumPy, or those of a tuple, as Python's."""
    if isinstance(value, np.generic) and value.dtype.kind in "buif":
        return value.item()
    return tuple(map(_plain, value)) if type(value) is tuple else value


@functools.cache
def _kinds(function):
    """Return argument -> its annotation, in order; None without one.

    Also return whether further ones are the keys of a `TypedDict`.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    names = list(inspect.signature(function).parameters)
    kinds = {name: hints.get(name) for name in names}
    is_closed = typing.get_origin(kinds.get(names[-1])) is typing.Unpack
    if is_closed:
        (options,) = typing.get_args(kinds.pop(names[-1]))
        kinds |= _keys(options)
    return kinds, is_closed


def _keys(kind):
    """Return the keys of a `TypedDict` and what each takes."""
    return {
        key: typing.get_args(one)[0]
        if typing.get_origin(one) in (typing.Required, typing.NotRequired)
        else one
        for key, one in typing.get_type_hints(kind, include_extras=True).items()
    }


# What counts as each kind.
_MEMBERS: dict[typing.Any, tuple] = {
    tuple: (list, tuple),
    Sequence: (list, tuple, np.ndarray),
    Collection: (list, tuple, np.ndarray, set, frozenset),
}


def _fits(value, kind) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _fits(value, inner[0]) and inner[2](value)
    if origin is typing.Literal:
        return isinstance(value, str) and value in inner
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin in _MEMBERS:
        is_scalar = getattr(value, "shape", None) == ()
        if is_scalar or not isinstance(value, _MEMBERS[origin]):
            return False
        if origin is not tuple or inner[-1] is ...:
            inner = inner[:1] * len(value)
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if Callable in (kind, origin):
        return callable(value)
    if origin is dict:
        return isinstance(value, dict) and all(
            all(map(_fits, each, inner)) for each in value.items()
        )
    if typing.is_typeddict(kind):
        kinds = _keys(kind)
        return (
            isinstance(value, dict)
            and kind.__required_keys__ <= set(value) <= set(kinds)
            and all(_fits(value[key], kinds[key]) for key in value)
        )
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        is_number = isinstance(value, number) and not isinstance(value, bool)
        return is_number and abs(value) < math.inf  # NaN is not
    return kind not in (str, dict, types.NoneType) or isinstance(value, kind)


def _words(kind) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return inner[1]
    if origin is typing.Literal:
        return f"one of {inner}" if len(inner) > 1 else repr(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_words, inner))
    if origin in _MEMBERS and (origin is not tuple or inner[-1] is ...):
        return f"a tuple, each value {_words(inner[0])}"
    if origin is tuple:
        return f"a tuple of {len(inner)}, each value {_words(inner[0])}"
    if Callable in (kind, origin):
        return "a function"
    if origin is dict:
        return f"a dictionary, from {_words(inner[0])} to {_words(inner[1])}"
    if typing.is_typeddict(kind):
        keys = (f"{key!r}, {_words(one)}" for key, one in _keys(kind).items())
        return f"a dictionary of {'; '.join(keys)}"
    words = {bool: "True or False", int: "an integer", float: "a finite number"}
    words |= {str: "a string", dict: "a dictionary", types.NoneType: "None"}
    return words.get(kind, getattr(kind, "__name__", str(kind)))
