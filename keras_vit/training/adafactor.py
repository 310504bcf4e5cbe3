"""The optimizer of "Scaling Vision Transformers"."""

import keras
from keras import ops

from keras_vit._arguments import Count, Rate, checked
from keras_vit._keras import variable_index


@keras.saving.register_keras_serializable(package="keras_vit")
class MomentumAdafactor(keras.optimizers.Optimizer):
    """Adam of a quarter of the memory: factored squares, bfloat16 momentum.

        s = min(beta_2, 1 - t^-0.8)
        R = s R + (1 - s) mean_columns(g^2),   C likewise over rows
        v = R C / mean(R)
        m = beta_1 m + (1 - beta_1) g / sqrt(v),   w = w - rate m

    A variable of fewer than `min_size` rows or columns has v = s v + (1 - s)
    g^2 of each value instead. `keras.optimizers.Adafactor` has no momentum,
    keeps v of each value in float32, scales the rate by the size of each
    variable, and clips each update.

    Args:
        learning_rate: The rate, or a schedule.
        beta_1: Decay of the momentum.
        beta_2: The highest decay of the squares.
        min_size: Rows and columns from which a variable's squares are factored.
        **kwargs: See `keras.optimizers.Optimizer`.

    Example:
        model.compile(
            keras_vit.training.MomentumAdafactor(8e-4, weight_decay=0.03),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(images, labels)

    Reference:
        Zhai et al. 2022 (2106.04560), section 3.4, after Shazeer & Stern 2018
        (1804.04235); checked against `scale_by_adafactor` in
        big_vision/optax.py, which factors the two longest axes.
    """

    @checked
    def __init__(
        self,
        learning_rate=1e-3,
        beta_1: Rate = 0.9,
        beta_2: Rate = 0.999,
        min_size: Count = 32,
        **kwargs,
    ):
        super().__init__(learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.min_size = min_size

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momenta, self._squares = [], []
        for variable in variables:
            shape, name = tuple(variable.shape), variable.path.replace("/", "_")
            self._momenta.append(
                self.add_variable(
                    shape, dtype="bfloat16", name=f"{name}_momentum"
                )
            )
            shapes = {"squares": shape}
            if self._is_factored(shape):
                shapes = dict(rows=shape[:-1], columns=(*shape[:-2], shape[-1]))
            self._squares.append(
                [
                    self.add_variable(part, name=f"{name}_{kind}")
                    for kind, part in shapes.items()
                ]
            )

    def _is_factored(self, shape):
        return len(shape) > 1 and min(shape[-2:]) >= self.min_size

    def update_step(self, gradient, variable, learning_rate):
        """Update a variable, given its gradient."""
        index = variable_index(self, variable)
        momentum, squares = self._momenta[index], self._squares[index]
        gradient = ops.cast(gradient, "float32")
        step = ops.cast(self.iterations + 1, "float32")
        keep = ops.minimum(self.beta_2, 1.0 - ops.power(step, -0.8))
        square = ops.square(gradient) + 1e-30

        def average(variable, value):
            self.assign(variable, keep * variable + (1.0 - keep) * value)
            return ops.convert_to_tensor(variable)

        if len(squares) == 1:
            update = gradient * ops.rsqrt(average(squares[0], square))
        else:
            rows = average(squares[0], ops.mean(square, axis=-1))
            columns = average(squares[1], ops.mean(square, axis=-2))
            rows = rows / ops.mean(rows, axis=-1, keepdims=True)
            update = gradient * ops.rsqrt(rows)[..., None]
            update = update * ops.rsqrt(columns)[..., None, :]
        old = ops.cast(momentum, "float32")
        update = self.beta_1 * old + (1.0 - self.beta_1) * update
        self.assign(momentum, ops.cast(update, "bfloat16"))
        rate = ops.cast(learning_rate, "float32")
        self.assign_sub(variable, ops.cast(rate * update, variable.dtype))

    def get_config(self):
        """Return the constructor's arguments."""
        return super().get_config() | dict(
            beta_1=self.beta_1, beta_2=self.beta_2, min_size=self.min_size
        )
