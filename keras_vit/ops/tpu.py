"""Forms of operations for TPUs.

The XLA compiler of TPUs chooses a layout for each array, and copies an array
that two operations want in different ones.
"""

import contextlib

import keras

from keras_vit.ops.derivatives import with_derivative

_accumulates = False


def is_target() -> bool:
    """Return whether JAX traces a program for TPUs."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    distribution = keras.distribution.distribution()
    if distribution is None:
        return jax.default_backend() == "tpu"
    # Names such as "tpu:0", or jax.Device objects; of a plan they are absent.
    device = distribution.device_mesh.devices.flat[0]
    return getattr(device, "platform", device).startswith("tpu")


@contextlib.contextmanager
def accumulation():
    """Mark the gradients traced inside as those of micro-batches.

    Devices sum them once per batch. With fixed layouts XLA would sum each one.
    """
    global _accumulates
    before, _accumulates = _accumulates, True
    try:
        yield
    finally:
        _accumulates = before


def gradient_by_rows(x):
    """Return a matrix, whose gradient is computed by columns, then copied.

    XLA would otherwise copy what the optimizer updates with the gradient: the
    kernel and both moments of Adam, in float32, to columns and back.
    """
    return x if _accumulates else _gradient_by_rows(x)


def _derive_by_rows(primals, tangents):
    (x,), (change,) = primals, tangents
    return x, _stored(_stored(change, (0, 1)), (1, 0))


@with_derivative(_derive_by_rows)
def _gradient_by_rows(x):
    return x


def by_queries(x):
    """Return `[B, A, T, ...]` with its tokens contiguous.

    So is its gradient. With 128 images on a device XLA would otherwise make
    the images contiguous, and copy queries, keys, values and `[B, A, T, T]` to
    the layout that products take.
    """
    return _stored(x, (0, 1, 3, 2))


def _stored(x, axes):
    """Return `x`, and its gradient, in the memory order of `axes`."""
    try:
        from jax.experimental.layout import Layout, with_layout_constraint
    except ImportError:  # JAX before 0.7
        return x
    return with_layout_constraint(x, Layout(axes))
