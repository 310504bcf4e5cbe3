"""Adam's update as one operation of PyTorch."""

import copy
import pickle

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
    for fused, own in zip(*found, strict=True):
        np.testing.assert_allclose(fused, own, rtol=0, atol=1e-6)
    assert np.abs(found[0][0] - start).max() > 0.1


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_variables_and_moments_may_have_any_strides(name):
    import torch

    def in_memory_of(axes):
        """Returns [2, 3, 4, 5] with gaps, its axes in another order."""
        sizes = [(2, 3, 4, 5)[axis] for axis in axes] + [2]
        values = np.random.default_rng(0).normal(size=sizes)
        values = torch.tensor(values, dtype=torch.float32)[..., 0]
        return values.permute(*np.argsort(axes).tolist())

    found = []
    keras_class = getattr(keras.optimizers, name)
    for make in (keras_class, training.fuse_adam(keras_class)):
        start = np.zeros((2, 3, 4, 5), "float32")
        variables = [keras.Variable(start) for _ in range(3)]
        optimizer = make(0.1, weight_decay=0.3)
        optimizer.build(variables)
        axes = [(0, 1, 2, 3), (3, 0, 1, 2), (2, 0, 3, 1)]
        for variable, order in zip(variables, axes, strict=True):
            variable.value.data = in_memory_of(order)
        moments = optimizer._velocities
        moments[0].value.data = in_memory_of((3, 1, 2, 0)) ** 2
        for step in range(3):
            gradients = [in_memory_of(order) - step for order in axes[::-1]]
            optimizer.apply(gradients, variables)
        found.append([v.value.detach() for v in (*variables, *moments)])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "derive",
    [
        training.fuse_adam,
        training.clip_whole_gradient,
        lambda adam: training.scale_rates(
            training.fuse_adam(adam), training.layer_decay.DepthFactor({}, 1, 1)
        ),
    ],
)
def test_derived_classes_are_pickled_copied_and_saved(derive):
    make = derive(keras.optimizers.AdamW)
    loaded = pickle.loads(pickle.dumps(make))
    expected = keras.saving.serialize_keras_object(make(0.5, name="adam"))
    for other in (loaded, copy.deepcopy(make)):
        optimizer = other(0.5, name="adam")
        assert keras.saving.serialize_keras_object(optimizer) == expected
        for change in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            assert float(change(optimizer).learning_rate) == 0.5
    optimizer = keras.saving.deserialize_keras_object(expected)
    assert isinstance(optimizer, keras.optimizers.AdamW)


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
