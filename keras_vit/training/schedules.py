"""Learning rates as functions of the step."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class LinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise from 0, then a linear fall to `end`.

        progress = clip((step - warmup) / (total - warmup), 0, 1)
        rate = (end + (base - end) (1 - progress)) min(1, step / warmup)

    Args:
        base: The highest learning rate.
        total_steps: Step at which the rate is `end`.
        warmup_steps: Steps of the rise.
        end: The last learning rate.

    Raises:
        ValueError: If `warmup_steps` is not below `total_steps`.

    Reference:
        Dosovitskiy et al. 2021, Table 3; checked against
        `create_learning_rate_schedule` in vit_jax/utils.py.
    """

    def __init__(
        self,
        base: float,
        total_steps: int,
        warmup_steps: int = 0,
        end: float = 1e-5,
    ):
        super().__init__()
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. "
                f"Received: warmup_steps={warmup_steps}, "
                f"total_steps={total_steps}"
            )
        self.base = base
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.end = end

    def __call__(self, step):
        step = ops.cast(step, "float32")
        steps = self.total_steps - self.warmup_steps
        progress = ops.clip((step - self.warmup_steps) / steps, 0.0, 1.0)
        rate = self.end + (self.base - self.end) * (1.0 - progress)
        if self.warmup_steps:
            rate = rate * ops.minimum(1.0, step / self.warmup_steps)
        return rate

    def get_config(self):
        """Returns the constructor's arguments."""
        return dict(
            base=self.base,
            total_steps=self.total_steps,
            warmup_steps=self.warmup_steps,
            end=self.end,
        )
