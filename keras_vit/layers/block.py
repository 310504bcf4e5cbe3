"""The base class of the repeated blocks of all families."""

from collections.abc import Callable

from keras_vit._arguments import Rate, checked
from keras_vit.layers.composite import CompositeLayer
from keras_vit.ops.gradient_barrier import gradient_barrier
from keras_vit.ops.rematerialize import rematerialize
from keras_vit.ops.shapes import check_shape


class Block(CompositeLayer):
    """A layer that may recompute its activations in the backward pass.

    A subclass creates its layers in `build` and applies them in
    `_forward(inputs, training)`.

    Args:
        remat: Whether the block recomputes its activations in the backward
            pass: less memory, a third more work.
    """

    @checked
    def __init__(self, remat: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.remat = remat

    def call(self, inputs, training=None):
        return self._run(inputs, training)

    def _run(self, inputs, training, **given):
        # Otherwise broadcasting would turn one channel into many.
        _, *axes, width = self.get_build_config()["input_shape"]
        expected = (*[None] * len(axes), width)
        inputs = check_shape(self, inputs, expected)

        def forward(inputs):
            return self._forward(inputs, training, **given)

        if self.remat and training:
            return gradient_barrier(rematerialize(self, forward, inputs))
        return gradient_barrier(forward(inputs))

    def make_drop_path(self, rate: float, rank: int) -> Callable:
        """Return a dropout of entire residual branches (stochastic depth).

        Args:
            rate: Probability with which an example skips the branch.
            rank: Number of axes of the branch's output.
        """
        return self.make_dropout(
            rate,
            name="drop_path",
            noise_shape=(None,) + (1,) * (rank - 1),  # one draw per example
        )


class ResidualBlock(Block):
    """A block of residual branches, whose output has the shape of its input.

    Args:
        drop_path_rate: Probability with which an example skips each residual
            branch in training (stochastic depth).
        **kwargs: Arguments of `Block`.
    """

    @checked
    def __init__(self, drop_path_rate: Rate = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.drop_path_rate = drop_path_rate

    def compute_output_shape(self, input_shape):
        return input_shape
