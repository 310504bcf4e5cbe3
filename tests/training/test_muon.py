"""Muon of kernels of convolutions against Keras' own of matrices."""

import keras
import numpy as np

from keras_vit import training

SHAPES = {
    "conv/kernel": (3, 3, 4, 8),
    "depthwise/kernel": (3, 3, 4, 1),
    "embedding/kernel": (2, 2, 3, 8),
    "head/kernel": (1, 1, 8, 4),
    "pos_embedding": (1, 2, 2, 8),
    "dense/kernel": (8, 6),
    "bias": (),
}


def _steps(optimizer, shapes):
    """Return path -> values after two steps with the same gradients."""
    rng = np.random.default_rng(0)
    variables, gradients = [], []
    for path, shape in shapes.items():
        values, *steps = rng.normal(size=(3, *SHAPES[path])).astype("float32")
        folder, _, name = path.rpartition("/")
        with keras.name_scope(folder or "layer"):
            variable = keras.Variable(values.reshape(shape), name=name)
        variables.append(variable)
        gradients.append([step.reshape(shape) for step in steps])
    optimizer.build(variables)
    for step in zip(*gradients, strict=True):
        optimizer.apply([keras.ops.convert_to_tensor(x) for x in step])
    return {
        path: keras.ops.convert_to_numpy(variable)
        for path, variable in zip(shapes, variables, strict=True)
    }


def test_a_kernel_is_the_matrix_of_its_rows():
    arguments = dict(
        learning_rate=0.1,
        weight_decay=0.2,
        adam_weight_decay=0.3,
        exclude_layers=["head"],
    )
    optimizer = training.ConvMuon(**arguments)
    optimizer = type(optimizer).from_config(optimizer.get_config())
    found = _steps(optimizer, SHAPES)

    matrices = {"conv/kernel", "dense/kernel"}
    flat = {
        path: (-1, shape[-1]) if path in matrices else shape
        for path, shape in SHAPES.items()
    }
    expected = _steps(keras.optimizers.Muon(**arguments), flat)
    adam = _steps(keras.optimizers.Muon(**arguments), SHAPES)
    for path, values in found.items():
        np.testing.assert_allclose(
            values.ravel(), expected[path].ravel(), rtol=1e-4, atol=1e-5
        )
        is_other = not np.allclose(values, adam[path], atol=1e-2)
        assert is_other == (path in matrices - {"dense/kernel"}), path
