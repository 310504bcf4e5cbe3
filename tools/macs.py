"""What a model costs, counted in what JAX traces: no memory, no arithmetic."""

import math

import keras


def count_macs(model: keras.Model) -> int:
    """Multiply-accumulates of matrix products and convolutions, one image.

    Args:
        model: A model, on the JAX backend; its variables need no values.
    """
    import jax

    def abstract(shape):
        return jax.ShapeDtypeStruct(shape, "float32")

    def run(variables, images):
        mapping = list(zip(model.variables, variables, strict=True))
        with keras.StatelessScope(mapping):
            return model(images, training=False)

    variables = [abstract(tuple(v.shape)) for v in model.variables]
    images = abstract((1, *model.input_shape[1:]))
    return _macs(jax.make_jaxpr(run)(variables, images).jaxpr)


def _macs(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += _macs(inner)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            each = math.prod(shape[axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            spec = equation.params["dimension_numbers"].rhs_spec
            shape = equation.invars[1].aval.shape
            each = math.prod(shape) // shape[spec[0]]
        else:
            continue
        total += equation.outvars[0].aval.size * each
    return total
