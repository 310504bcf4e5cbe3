"""Learning rates that fall from the head of a model to its input."""

import re
from collections.abc import Callable

import keras

_BLOCK = re.compile(r"(?:^|/)encoderblock_(\d+)/")
_AFTER_BLOCKS = re.compile(r"(?:^|/)(?:encoder_norm|pre_logits|head)/")


def depth_factor(model: keras.Model, decay: float) -> Callable:
    """Returns a function from a variable's path to its share of the rate.

        factor = decay^(L + 1 - l)

    with l = 0 for the embeddings and a hybrid's stem, l = i + 1 for block i of
    L, and l = L + 1 for what follows them.

    Args:
        model: A ViT of this package.
        decay: Share of the rate of the layer above, such as 0.75.

    Raises:
        ValueError: If `decay` does not lie above 0 and at most at 1.

    Reference:
        Clark et al. 2020 (ELECTRA), section 3.1; for ViT, Bao et al. 2022
        (BEiT), appendix.
    """
    if not 0 < decay <= 1:
        raise ValueError(
            f"`decay` must be above 0 and at most 1. Received: decay={decay}"
        )
    blocks = [_BLOCK.search(v.path) for v in model.variables]
    count = len({block[1] for block in blocks if block})

    def factor(path):
        if _AFTER_BLOCKS.search(path):
            return 1.0
        block = _BLOCK.search(path)
        layer = int(block[1]) + 1 if block else 0
        return decay ** (count + 1 - layer)

    return factor


def scale_rates(optimizer_class: type, factor: Callable) -> type:
    """Returns an optimizer class with another learning rate per variable.

    Steps and weight decay of a variable are those of the optimizer at
    `learning_rate` times its factor; clipping and averages are as ever, over
    all variables together. (A `keras.optimizers.MultiOptimizer` would clip
    and average each group by itself, and has no learning rate to log.)

    Args:
        optimizer_class: A class of `keras.optimizers`.
        factor: Function from a variable's path to its factor.
    """

    class ScaledRates(optimizer_class):
        _factor = 1.0

        def _get_current_learning_rate(self):
            return super()._get_current_learning_rate() * self._factor

        def _apply_weight_decay(self, variables):
            for value, group in _groups(variables, factor).items():
                self._factor = value
                try:
                    super()._apply_weight_decay([variables[i] for i in group])
                finally:
                    self._factor = 1.0

        def _backend_update_step(self, grads, variables, learning_rate):
            for value, group in _groups(variables, factor).items():
                super()._backend_update_step(
                    [grads[i] for i in group],
                    [variables[i] for i in group],
                    learning_rate * value,
                )

    ScaledRates.__name__ = optimizer_class.__name__
    return ScaledRates


def _groups(variables, factor):
    """Indices of the variables that share a factor, by factor."""
    groups = {}
    for i, variable in enumerate(variables):
        groups.setdefault(factor(variable.path), []).append(i)
    return groups
