"""The optimizer of "Scaling Vision Transformers" against its formulas."""

import keras
import ml_dtypes
import numpy as np

from keras_vit import training


def test_steps_are_those_of_the_formulas():
    rng = np.random.default_rng(0)
    shapes = (2, 33, 32), (31, 40)
    values = [rng.normal(size=shape).astype("float32") for shape in shapes]
    variables = [keras.Variable(value) for value in values]
    optimizer = training.MomentumAdafactor(0.1, weight_decay=0.5)
    optimizer = type(optimizer).from_config(optimizer.get_config())
    optimizer.build(variables)
    sizes = [v.shape for v in optimizer.variables if v.dtype == "float32"]
    assert {(2, 33), (2, 32), (31, 40)} == {*sizes} - {()}

    state = [(0.0, 0.0, 0.0) for _ in shapes]
    for step in (1, 2, 3, 9_999):  # from 5,624 on the decay is the highest
        optimizer.iterations.assign(step - 1)
        gradients = [rng.normal(size=x.shape).astype("float32") for x in values]
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients])
        keep = min(0.999, 1 - step**-0.8)
        for i, g in enumerate(gradients):
            rows, columns, momentum = state[i]
            if g.ndim > 1 and min(g.shape[-2:]) >= 32:
                rows = keep * rows + (1 - keep) * (g**2).mean(-1)
                columns = keep * columns + (1 - keep) * (g**2).mean(-2)
                square = rows[..., None] * columns[..., None, :]
                square /= rows.mean(-1)[..., None, None]
            else:
                square = rows = keep * rows + (1 - keep) * g**2
            update = 0.9 * momentum + 0.1 * g / np.sqrt(square)
            rounded = update.astype(ml_dtypes.bfloat16).astype("float32")
            state[i] = rows, columns, rounded
            values[i] = values[i] * (1 - 0.1 * 0.5) - 0.1 * update
    for value, variable in zip(values, variables, strict=True):
        found = keras.ops.convert_to_numpy(variable)
        # Where the last bit of a momentum differs, so does the next step.
        np.testing.assert_allclose(found, value, atol=2e-4)
