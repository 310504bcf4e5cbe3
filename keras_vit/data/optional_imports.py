"""Optional packages, imported where they are used."""

import functools
import importlib
from collections.abc import Callable

import keras

from keras_vit._installation import pip_install


def optional(module: str, extra: str = "data"):
    """Import a module, or raise ImportError that says which extra has it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{module.split('.')[0]}` is needed and not installed: "
            + pip_install(extra)
        ) from error


@functools.cache
def tensorflow():
    """Return TensorFlow, which runs the input pipeline on every backend.

    Where another backend computes, its accelerators are hidden from
    TensorFlow, which would otherwise take their memory.
    """
    tf = optional("tensorflow")
    if keras.backend.backend() != "tensorflow":
        try:
            tf.config.set_visible_devices([], "GPU")
            tf.config.set_visible_devices([], "TPU")
        except RuntimeError:
            pass  # TensorFlow is already in use: too late to hide them
    return tf


def unconverted(build: Callable) -> Callable:
    """Decorate what builds a data set, so that AutoGraph leaves it alone.

    Our functions of tensors have no Python to convert, and looking for it
    takes half of the time in which a data set is built.
    """

    @functools.wraps(build)
    def without_autograph(*args, **kwargs):
        experimental = tensorflow().autograph.experimental
        return experimental.do_not_convert(build)(*args, **kwargs)

    return without_autograph


def apart(function: Callable) -> Callable:
    """Decorate what few images need, so that its graph is built on first use.

    The graph that reads images is built for each served request.
    """

    @functools.cache
    def of_graph():
        return tensorflow().function(
            function,
            autograph=False,
            reduce_retracing=True,  # for images of all sizes
            experimental_attributes={"_noinline": True},
        )

    return lambda *arguments: of_graph()(*arguments)
