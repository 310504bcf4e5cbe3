"""What is written differently for TPUs."""

import numpy as np
import pytest

from keras_vit.ops import xla


@pytest.mark.backend("jax")
def test_the_gradient_of_a_batch_gets_a_layout_but_not_of_its_parts():
    import jax

    x = np.arange(6, dtype="float32").reshape(2, 3)

    def program():
        step = jax.jit(jax.grad(lambda x: (xla.gradient_by_rows(x) ** 2).sum()))
        np.testing.assert_array_equal(step(x), 2 * x)
        return step.lower(x).as_text()

    assert program().count("@LayoutConstraint") == 2
    with xla.accumulation():
        assert "@LayoutConstraint" not in program()
    assert program().count("@LayoutConstraint") == 2


@pytest.mark.backend("jax")
@pytest.mark.parametrize(("tokens", "count"), [(64, 0), (65, 1)])
def test_a_layout_does_not_change_the_values(tokens, count):
    import jax

    x = np.arange(4 * tokens, dtype="float32").reshape(1, 2, tokens, 2)
    step = jax.jit(xla.by_queries)
    np.testing.assert_array_equal(step(x), x)
    # Few tokens would fill less than half of the lanes.
    assert step.lower(x).as_text().count("@LayoutConstraint") == count
