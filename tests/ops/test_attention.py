"""The softmax of attention, the sum that it weights, and their gradients."""

import numpy as np
import pytest
from keras import ops

from keras_vit.ops import xla
from keras_vit.ops.attention import weighted_sum


@pytest.mark.backend("jax")
def test_the_gradient_of_a_weighted_sum_is_that_of_its_parts(monkeypatch):
    import jax

    monkeypatch.setattr(xla, "targets_tpu", lambda: True)

    rng = np.random.default_rng(0)
    logits, values, weights = (
        rng.normal(size=(2, 3, 5, n)).astype("float32") for n in (5, 4, 4)
    )

    def gradients(function):
        return jax.grad(
            lambda *inputs: ops.sum(weights * function(*inputs)), (0, 1)
        )(*map(jax.numpy.asarray, (logits, values)))

    def parts(logits, values):
        return ops.softmax(logits) @ values

    np.testing.assert_allclose(
        jax.jit(weighted_sum)(logits, values), parts(logits, values), atol=1e-6
    )
    for ours, expected in zip(
        gradients(weighted_sum), gradients(parts), strict=True
    ):
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(ours, expected, atol=1e-6)
