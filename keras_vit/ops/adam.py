"""Adam's update as one operation of PyTorch."""

from typing import Any

from keras_vit._keras import say_once

_Optimizer: Any = object  # that which follows, for type checkers


class FusedAdam(_Optimizer):
    """Mixin for Keras' Adam and AdamW on PyTorch: one pass over the weights.

    Must precede the optimizer class. Keras makes an array of all weights for
    each operation of the update.
    """

    def _backend_update_step(self, grads, variables, learning_rate):
        import torch

        if not self.amsgrad and not torch.compiler.is_compiling():
            try:
                at = [self._get_variable_index(v) for v in variables]
                momentums = [self._momentums[i].value for i in at]
                velocities = [self._velocities[i].value for i in at]
            except AttributeError as error:
                say_once(f"Keras updates Adam: {error}")
            else:
                values = [v.value for v in variables]
                arguments = values, grads, momentums, velocities
                return _update(self, *arguments, float(learning_rate))
        return super()._backend_update_step(grads, variables, learning_rate)


def _update(optimizer, values, grads, momentums, velocities, learning_rate):
    import torch
    from torch.optim.adam import adam

    steps = torch.full((len(values),), float(optimizer.iterations))
    # The authors of Adam add epsilon before the second moment is corrected, as
    # Keras does; PyTorch adds it after.
    correction = 1 - optimizer.beta_2 ** (int(optimizer.iterations) + 1)
    updated = [*values, *momentums, *velocities]
    with torch.no_grad():
        # The operation reads all memory in the same order.
        arrays = [x.contiguous() for x in updated]
        count = len(values)
        adam(
            arrays[:count],
            [g.contiguous() for g in grads],
            arrays[count : 2 * count],
            arrays[2 * count :],
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=optimizer.beta_1,
            beta2=optimizer.beta_2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=optimizer.epsilon / correction**0.5,
            maximize=False,
        )
        for x, array in zip(updated, arrays, strict=True):
            if x is not array:
                x.copy_(array)
