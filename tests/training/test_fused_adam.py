"""Adam's update as one operation of PyTorch."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import training


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_steps_are_those_of_keras(name):
    keras_class = getattr(keras.optimizers, name)
    fused_class = training.fuse_adam(keras_class)
    on_cpu_torch = keras.backend.backend() == "torch"
    assert (fused_class is not keras_class) == on_cpu_torch
    rng = np.random.default_rng(0)
    start = rng.normal(size=(5, 3)).astype("float32")
    found = []
    for make in (keras_class, fused_class):
        kernel = keras.Variable(start, name="kernel")
        bias = keras.Variable(start[0], name="bias")
        optimizer = make(
            # Of another size in each step; epsilon is not small beside the
            # first gradients.
            keras.optimizers.schedules.PolynomialDecay(0.1, 4),
            weight_decay=0.3,
            epsilon=1e-3,
            global_clipnorm=1.0,
        )
        optimizer.exclude_from_weight_decay([bias])
        optimizer.build([kernel, bias])
        for step in range(3):
            gradient = ops.convert_to_tensor(np.cos(start.T + step) * 1e-3)
            # A transposed view, as PyTorch's gradients may be.
            gradients = [ops.transpose(gradient), gradient[:, 0][:3]]
            optimizer.apply(gradients, [kernel, bias])
        found.append([ops.convert_to_numpy(v) for v in (kernel, bias)])
        saved = keras.saving.serialize_keras_object(optimizer)
        loaded = keras.saving.deserialize_keras_object(saved)
        assert type(loaded) is type(keras_class())
    for fused, own in zip(*found, strict=True):
        np.testing.assert_allclose(fused, own, rtol=0, atol=1e-6)
    assert np.abs(found[0][0] - start).max() > 0.1


@pytest.mark.backend("torch")
def test_layer_wise_rates_and_amsgrad_hold():
    adam = training.fuse_adam(keras.optimizers.Adam)
    variable = keras.Variable(np.ones(2, "float32"), name="kernel")
    scaled = training.scale_rates(adam, lambda path: 0.5)(0.1)
    scaled.build([variable])
    scaled.apply([ops.ones(2)], [variable])
    np.testing.assert_allclose(ops.convert_to_numpy(variable), 0.95, atol=1e-5)
    other = adam(0.1, amsgrad=True)
    other.build([variable])
    other.apply([ops.ones(2)], [variable])
    np.testing.assert_allclose(ops.convert_to_numpy(variable), 0.85, atol=1e-5)
