"""Lowers the probability of EoMT's masked attention during training."""

from typing import Any

import keras
from keras import ops

from keras_vit._arguments import Count, checked

# Shares of all steps: the first block begins here, the last one there, and each
# takes that long. The steps in the authors' configs are these shares of 12 and
# 24 epochs of COCO and 31 of ADE20K.
_FIRST, _LAST, _LENGTH = 1 / 6, 4 / 6, 1 / 6
_POWER = 0.9
# Digits of a probability. Between two of its values nothing is assigned: with
# JAX the variables would be read from the step each time.
_DIGITS = 3


class MaskAnnealing(keras.callbacks.Callback):
    """Anneals the masks of `keras_vit.heads.mask_attention`, block after block.

    The probability that a query is forbidden the patches outside its mask is 1
    until a block's turn, then (1 - progress)^0.9, and then 0, so that the model
    needs no masks after training. It depends only on the step, so that a run
    that resumes has the same ones.

    Args:
        total_steps: Steps of training; of an optimizer that accumulates
            gradients, its updates.

    Reference:
        Kerssies et al. 2025 (2503.19108), section 3.3; `mask_annealing` in
        training/lightning_module.py of tue-mps/eomt, of whose values these are
        the nearest thousandths.
    """

    @checked
    def __init__(self, total_steps: Count):
        super().__init__()
        self.total_steps = total_steps
        self._masks: list = []
        self._assigned: Any = None
        self._begin, self._batches = 0, 1

    def on_train_begin(self, logs=None):
        self._assigned = None
        layers = {layer.name: layer for layer in self.model.layers}
        self._masks = []
        while mask := layers.get(f"query_mask_{len(self._masks)}"):
            self._masks.append(mask)
        if not self._masks:
            raise ValueError(
                "The model must have masks of `keras_vit.heads.mask_attention`."
                f" Received: {self.model.name!r}, without"
            )

    def on_epoch_begin(self, epoch, logs=None):
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self._begin = int(ops.convert_to_numpy(optimizer.iterations))
        self._batches = optimizer.gradient_accumulation_steps or 1

    def on_train_batch_begin(self, batch, logs=None):
        number = len(self._masks)
        step = self._begin + batch // self._batches
        probabilities = [
            mask_probability(step, self.total_steps, i, number)
            for i in range(number)
        ]
        if probabilities == self._assigned:
            return
        self._assigned = probabilities
        self.model  # noqa: B018, on JAX it gives the variables their values
        for mask, probability in zip(self._masks, probabilities, strict=True):
            mask.probability.assign([probability])


def mask_probability(
    step: int, total_steps: int, block: int, num_blocks: int
) -> float:
    """Return the probability of a masked block before a step.

    Args:
        step: Number of steps done.
        total_steps: Steps of training.
        block: Number of the block among those that are masked, from 0.
        num_blocks: Number of masked blocks.
    """
    turn = block / max(num_blocks - 1, 1) * (_LAST - _FIRST)
    progress = (step / total_steps - _FIRST - turn) / _LENGTH
    left = min(max(1 - progress, 0.0), 1.0)
    return round(left**_POWER, _DIGITS)
