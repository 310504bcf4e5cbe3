"""What the gradient of a deep model costs under JAX on a CPU."""

import numpy as np
import pytest
from keras import ops
from small_runs import small_vit

from keras_vit.ops.xla import gradient_barrier

pytestmark = pytest.mark.backend("jax")


def compiled_gradient(num_layers):
    import jax

    model = small_vit(num_layers=num_layers, input_shape=(8, 8, 3))
    others = [v.value for v in model.non_trainable_variables]

    def loss(values, images):
        y, _ = model.stateless_call(values, others, images, training=True)
        return ops.mean(y)

    values = [v.value for v in model.trainable_variables]
    images = np.zeros((2, 8, 8, 3), "float32")
    return jax.jit(jax.grad(loss)).lower(values, images).compile()


@pytest.mark.optimized
def test_the_cost_of_the_gradient_is_linear_in_the_number_of_blocks():
    flops = [compiled_gradient(n).cost_analysis()["flops"] for n in (1, 2, 3)]
    first, second = np.diff(flops)
    assert second == pytest.approx(first, rel=0.02)


def test_the_gradient_passes_unchanged():
    import jax

    weights = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    gradient = jax.grad(lambda x: ops.sum(weights * gradient_barrier(x)))
    for function in (gradient, jax.jit(gradient)):
        np.testing.assert_array_equal(function(np.ones_like(weights)), weights)


def test_programs_for_accelerators_have_no_barrier():
    import jax

    def loss(x):
        return ops.sum(gradient_barrier(x) ** 2)

    traced = jax.jit(jax.grad(loss)).trace(np.ones(3, "float32"))
    for platform in ("cpu", "cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert ("optimization_barrier" in text) == (platform == "cpu")
