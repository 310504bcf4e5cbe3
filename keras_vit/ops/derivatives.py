"""Functions with a derivative of their own under JAX."""

import keras


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

        function = jax.custom_jvp(function)
        function.defjvp(derivative)
        return function

    return decorate
