"""Learning rates as functions of the step."""

import dataclasses
from collections.abc import Callable

import keras
from keras import ops

from keras_vit._arguments import (
    Count,
    Natural,
    NotNegative,
    Positive,
    Share,
    checked,
)


@dataclasses.dataclass(eq=False)
class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule whose fields are the constructor's arguments."""

    def get_config(self):
        """Return the constructor's arguments."""
        return dataclasses.asdict(self)


@keras.saving.register_keras_serializable(package="keras_vit")
@checked
@dataclasses.dataclass(eq=False)
class LinearDecay(_Schedule):
    """A linear rise from 0, then a linear fall to `end`.

        progress = clip((step - warmup) / (total - warmup), 0, 1)
        rate = (end + (base - end) (1 - progress)) min(1, step / warmup)

    Args:
        base: The highest learning rate.
        total_steps: Step at which the rate is `end`.
        warmup_steps: Steps of the rise.
        end: The last learning rate.

    Raises:
        ValueError: If a rate or a number of steps is out of range, or
            `warmup_steps` is not below `total_steps`.

    Reference:
        Dosovitskiy et al. 2021, Table 3; checked against
        `create_learning_rate_schedule` in vit_jax/utils.py.
    """

    base: NotNegative
    total_steps: Count
    warmup_steps: Natural = 0
    end: NotNegative = 1e-5

    def __post_init__(self):
        """Refuse impossible values."""
        if self.warmup_steps >= self.total_steps:
            raise ValueError(
                "`warmup_steps` must be below `total_steps`. "
                f"Received: warmup_steps={self.warmup_steps}, "
                f"total_steps={self.total_steps}"
            )

    def __call__(self, step):
        step = ops.cast(step, "float32")
        steps = self.total_steps - self.warmup_steps
        progress = ops.clip((step - self.warmup_steps) / steps, 0.0, 1.0)
        rate = self.end + (self.base - self.end) * (1.0 - progress)
        if self.warmup_steps:
            rate = rate * ops.minimum(1.0, step / self.warmup_steps)
        return rate


@keras.saving.register_keras_serializable(package="keras_vit")
@checked
@dataclasses.dataclass(eq=False)
class StepDecay(_Schedule):
    """A linear rise from 0, then division by 10 at each of the given steps.

        rate = base 0.1^(number of `decay_at` already reached)
               min(1, step / warmup)

    Args:
        base: The highest learning rate.
        total_steps: Number of steps.
        decay_at: Shares of `total_steps` at which the rate is divided by 10.
        warmup_steps: Steps of the rise.

    Raises:
        ValueError: If the rate or a number of steps is out of range, or a
            share is not above 0 and below 1.

    Reference:
        Kolesnikov et al. 2020 (1912.11370), section 3.3; checked against
        `get_lr` in bit_hyperrule.py of google-research/big_transfer.
    """

    base: NotNegative
    total_steps: Count
    decay_at: tuple[Share, ...]
    warmup_steps: Natural = 0

    def __post_init__(self):
        """Take a list, as of JSON, as a tuple."""
        self.decay_at = tuple(self.decay_at)

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rate = self.base * ops.ones_like(step)
        for share in self.decay_at:
            passed = ops.cast(
                step >= round(share * self.total_steps), "float32"
            )
            rate = rate * (1.0 - 0.9 * passed)
        if self.warmup_steps:
            rate = rate * ops.minimum(1.0, step / self.warmup_steps)
        return rate


@keras.saving.register_keras_serializable(package="keras_vit")
@checked
@dataclasses.dataclass(eq=False)
class InverseSquareRoot(_Schedule):
    """A slow fall that needs no end, and a linear fall to 0 at the end.

        rate = base (1 + step / timescale)^-0.5
               min(1, (total - step) / cooldown)

    Before the cooldown a run can be prolonged, or cooled down at several
    lengths. `WarmUp` adds a rise.

    Args:
        base: The highest learning rate.
        total_steps: Step at which the rate is 0.
        cooldown_steps: Steps of the fall to 0, at most half of all; 0 without.
        timescale: Step at which the rate is base / sqrt(2), but for the
            cooldown.

    Raises:
        ValueError: If a number of steps is out of range.

    Reference:
        Zhai et al. 2022 (2106.04560), section 3.4; checked against
        `create_learning_rate_schedule` in big_vision/utils.py, "rsqrt".
    """

    base: NotNegative
    total_steps: Count
    cooldown_steps: Natural = 0
    timescale: Positive = 10_000

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rate = self.base * ops.rsqrt(1.0 + step / self.timescale)
        cooldown = min(self.cooldown_steps, self.total_steps // 2)
        if cooldown:
            left = ops.maximum(self.total_steps - step, 0.0)
            rate = rate * ops.minimum(1.0, left / cooldown)
        return rate


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise from 0, then any schedule from its first step.

        rate = schedule(max(step - warmup, 0)) min(1, step / warmup)

    Args:
        schedule: A `keras.optimizers.schedules.LearningRateSchedule`, or a
            function of the step.
        warmup_steps: Steps of the rise, at least 1.

    Raises:
        ValueError: If `warmup_steps` is below 1.
    """

    @checked
    def __init__(self, schedule: Callable, warmup_steps: Count):
        super().__init__()
        self.schedule = schedule
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rate = self.schedule(ops.maximum(step - self.warmup_steps, 0.0))
        return rate * ops.minimum(1.0, step / self.warmup_steps)

    def get_config(self):
        """Return the constructor's arguments."""
        return dict(
            schedule=keras.saving.serialize_keras_object(self.schedule),
            warmup_steps=self.warmup_steps,
        )

    @classmethod
    def from_config(cls, config):
        """Make a schedule from `get_config`."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(schedule, config["warmup_steps"])
