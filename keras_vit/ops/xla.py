"""Forms that XLA wants of operations under JAX.

Derivatives and barriers for its CPU compiler, layouts for TPUs: the compiler of
TPUs chooses a layout for each array, and copies an array that two operations
want in different ones.
"""

import contextlib
import functools

import keras
from keras import ops


def with_derivative(derivative):
    """Return a decorator that gives a function its derivative under JAX.

    JAX computes the gradient, the transpose of the derivative, from it, so that
    both modes of differentiation work, in any order.

    Args:
        derivative: From the arguments and their tangents, two tuples, to the
            result and its tangent. It is differentiated itself.
    """

    def decorate(function):
        if keras.backend.backend() != "jax":
            return function
        import jax

        derived = jax.custom_jvp(function)
        derived.defjvp(derivative)

        @functools.wraps(function)
        def apply(*arguments):
            # JAX does not take symbols of functional models.
            is_symbolic = any(map(keras.utils.is_keras_tensor, arguments))
            return (function if is_symbolic else derived)(*arguments)

        return apply

    return decorate


def gradient_barrier(x):
    """Return `x`; XLA does not fuse its gradient with what follows.

    On CPUs, XLA fuses the sums of the residual stream into each of their
    consumers, so that the gradient of a late block adds up those of all
    others again: its cost grows with the square of the number of blocks. XLA
    does not fuse across a conditional, and does not see that its predicate is
    constant, since `optimization_barrier` is removed only after conditionals
    are simplified. The values are the same. Other devices and backends are not
    affected.

    Args:
        x: The output of a block, or of its first residual branch.
    """
    return _gradient_barrier(x)


def _derive(primals, tangents):
    import jax

    def pass_on(x):
        return x

    (x,), (change,) = primals, tangents
    # Its transpose, the gradient, passes through a conditional too.
    return x, jax.lax.platform_dependent(
        change,
        cpu=lambda x: _where_true(pass_on, jax.numpy.negative, x),
        default=pass_on,
    )


def _where_true(function, never, *arguments):
    """Return `function(*arguments)`, behind a conditional for XLA."""
    import jax

    always = jax.lax.optimization_barrier(jax.numpy.array(True))
    return jax.lax.cond(always, function, never, *arguments)


@with_derivative(_derive)
def _gradient_barrier(x):
    return x


def bilinear(function):
    """Return a function that keeps only its arguments for the gradient.

    On CPUs, XLA computes what the gradient by the second argument needs, such
    as slices of the first one, in the forward pass, and keeps it; but not what
    is behind a conditional.

    Args:
        function: Of two arguments, linear in each of them.
    """
    if not targets_cpu():
        return function

    def derive(primals, tangents):
        import jax

        (x, kernel), (of_x, of_kernel) = primals, tangents
        y = function(x, kernel)
        by_kernel = _where_true(
            jax.checkpoint(function),
            lambda x, kernel: jax.numpy.zeros_like(y),
            x,
            of_kernel,
        )
        return y, function(of_x, kernel) + by_kernel

    return with_derivative(derive)(function)


# Numbers side by side in a register of a TPU.
_LANES = 128

_accumulates = False


def targets_tpu() -> bool:
    """Return whether JAX traces a program for TPUs."""
    return _target().startswith("tpu")


def targets_cpu() -> bool:
    """Return whether JAX traces a program for CPUs."""
    return _target().startswith("cpu")


def _target():
    """Return the name of the devices of JAX' program, "" on other backends."""
    if keras.backend.backend() != "jax":
        return ""
    import jax

    distribution = keras.distribution.distribution()
    if distribution is None:
        return jax.default_backend()
    # Names such as "tpu:0", or jax.Device objects; of a plan they are absent.
    device = distribution.device_mesh.devices.flat[0]
    return getattr(device, "platform", device)


def by_rows(function, x):
    """Return `function(x)`, of a matrix of all rows where JAX runs on CPUs.

    For the gradient of a kernel XLA copies inputs with more axes to the order
    of their transpose, and that of a bias it sums slowly for a single example.

    Args:
        function: Maps each row by itself, `[..., D]` to `[..., F]`.
        x: `[..., D]`
    """
    *axes, width = x.shape
    if len(axes) < 2 or not targets_cpu():
        return function(x)
    y = function(ops.reshape(x, (-1, width)))
    return ops.reshape(y, (-1, *axes[1:], y.shape[-1]))


def fill_lanes(batch_size) -> bool:
    """Return whether the examples of a device fill half of a TPU's lanes.

    Args:
        batch_size: That of all devices; a symbol, or None, fills none.
    """
    if not isinstance(batch_size, int):
        return False
    distribution = keras.distribution.distribution()
    if distribution is not None:
        mesh = distribution.device_mesh
        axis = mesh.axis_names.index(distribution.batch_dim_name)
        batch_size //= mesh.shape[axis]
    return 2 * batch_size >= _LANES


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
    the layout that products take. Of few tokens, such as those that a masked
    autoencoder sees, it is left to XLA, which copies less than it would for
    lanes that are mostly empty.
    """
    if are_few(x.shape[2]):
        return x
    return _stored(x, (0, 1, 3, 2))


def are_few(tokens: int) -> bool:
    """Return whether tokens fill half of a TPU's lanes at most."""
    return tokens <= _LANES // 2


def _stored(x, axes):
    """Return `x`, and its gradient, in the memory order of `axes`."""
    try:
        from jax.experimental.layout import Layout, with_layout_constraint
    except ImportError:  # JAX before 0.7
        return x
    return with_layout_constraint(x, Layout(axes))
