"""Optimizer classes that a function derives from those of Keras."""

import copyreg


class Derived(type):
    """The type of such classes, which pickle does not find by their name.

    Each has an attribute `derived`, the function and its argument, with which
    pickle makes it again.
    """


def _reduce(derived_class):
    if "derived" in vars(derived_class):
        function, base = derived_class.derived
        return function, (base,)
    return derived_class.__qualname__  # a subclass in a module


copyreg.pickle(Derived, _reduce)
