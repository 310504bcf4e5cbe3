"""A barrier between the gradients of blocks."""

from keras_vit.ops.derivatives import with_derivative


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

    def pass_through_conditional(x):
        always = jax.lax.optimization_barrier(jax.numpy.array(True))
        return jax.lax.cond(always, pass_on, jax.numpy.negative, x)

    (x,), (change,) = primals, tangents
    # Its transpose, the gradient, passes through a conditional too.
    return x, jax.lax.platform_dependent(
        change, cpu=pass_through_conditional, default=pass_on
    )


@with_derivative(_derive)
def _gradient_barrier(x):
    return x
