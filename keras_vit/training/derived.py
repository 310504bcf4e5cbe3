"""Optimizer classes that a function derives from those of Keras."""

import copyreg
from collections.abc import Callable


class Derived(type):
    """The type of such classes, which pickle does not find by their name.

    Each has an attribute `derived`, the function and its argument, with which
    pickle makes it again.
    """


def derive(function: Callable, optimizer_class: type, mixin: type) -> type:
    """Return what `function` makes of a class, saved as that class itself."""
    attributes = dict(
        derived=(function, optimizer_class),
        __module__=optimizer_class.__module__,
    )
    name, bases = optimizer_class.__name__, (mixin, optimizer_class)
    return Derived(name, bases, attributes)


def _reduce(derived_class):
    if "derived" in vars(derived_class):
        function, base = derived_class.derived
        return function, (base,)
    return derived_class.__qualname__  # a subclass in a module


copyreg.pickle(Derived, _reduce)
