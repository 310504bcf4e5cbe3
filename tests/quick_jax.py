"""Settings of JAX in every process of the tests, for programs that run once."""

import functools

import jax
import numpy as np


def drawn_by_numpy(name):
    """Draws initial values with NumPy.

    JAX compiles a program for each shape, which takes most of the time that
    making a model takes.
    """
    sample_jax = getattr(jax.random, name)

    @functools.wraps(sample_jax)
    def sample(key, *args, **kwargs):
        by_keras = not args and {"shape", "dtype"} <= set(kwargs)
        if isinstance(key, jax.core.Tracer) or not by_keras:
            return sample_jax(key, *args, **kwargs)
        rng = np.random.default_rng(np.asarray(key))
        shape = kwargs["shape"]
        if name == "uniform":
            values = rng.uniform(kwargs["minval"], kwargs["maxval"], shape)
        else:
            values = rng.normal(size=shape)
        if name == "truncated_normal":
            while (outside := np.abs(values) > 2).any():
                values[outside] = rng.normal(size=outside.sum())
        return values.astype(kwargs["dtype"])

    return sample


for name in ("normal", "uniform", "truncated_normal"):
    setattr(jax.random, name, drawn_by_numpy(name))
