"""Counts steps, so that a run stops, saves and resumes at an exact step."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Natural, checked
from keras_vit.training.checkpoints import Checkpoints


class Preempted(Exception):
    """The run was requested to stop; its state is saved.

    Attributes:
        step: Number of steps that the saved state has seen, 0 without any.
        reason: What `must_stop` returned, such as the number of a signal.
    """

    def __init__(self, step: int, reason: int = 1):
        super().__init__(
            f"Stopped; the state after step {step} is saved."
            if step
            else "Stopped before the end of the first step."
        )
        self.step = step
        self.reason = reason


class Progress(keras.callbacks.Callback):
    """Splits `model.fit` into evaluation intervals, and saves the state.

    Keras counts in epochs; here an epoch is the interval between two
    evaluations, `fit(steps_per_epoch=eval_every)`. The first interval is
    shorter if a run resumes in the middle of one, the last if `eval_every` does
    not divide the total. A checkpoint is saved before every evaluation, every
    `checkpoint_every` steps and on preemption, always just before a step:
    everything up to it, including the last evaluation, is then finished and
    logged.

    Must be the first callback. The logs get "step" and "learning_rate", which
    is that of the next step, as Keras' TensorBoard callback has it.

    Args:
        checkpoints: Where to save.
        model: The compiled model, with its optimizer and metrics built; the
            newest saved state is restored into it.
        total_steps: The last step.
        eval_every: Steps in an evaluation interval.
        checkpoint_every: Steps between checkpoints; 0 saves only before
            evaluations.
        steps_per_execution: As given to `compile`; divides the others.
        must_stop: Returns 0, or the reason why the run must save and stop now,
            such as the number of a signal.

    Attributes:
        step: Number of steps done.

    Raises:
        FloatingPointError: In `fit`, if loss or weights are not finite.
        Preempted: In `fit`, after the state was saved.
    """

    @checked
    def __init__(
        self,
        checkpoints: Checkpoints,
        model: keras.Model,
        *,
        total_steps: Count,
        eval_every: Count,
        checkpoint_every: Natural = 0,
        steps_per_execution: Count = 1,
        must_stop: Callable[[], int] = lambda: 0,
    ):
        super().__init__()
        self.checkpoints = checkpoints
        self.total_steps = total_steps
        self.eval_every = eval_every
        self.checkpoint_every = checkpoint_every
        self.steps_per_execution = steps_per_execution
        self.must_stop = must_stop
        self.step, self._metrics = checkpoints.restore(model)
        self._first_step = self.step
        self._loss: tuple[int, Any] | None = None

    @property
    def epoch(self) -> int:
        """Number of intervals done, `initial_epoch` of `fit`."""
        return self.step // self.eval_every

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = self.step
        self._end = min((epoch + 1) * self.eval_every, self.total_steps)
        if self._metrics is not None:
            # Keras has just reset them to zero, in the middle of an interval.
            for variable, value in zip(
                self.model.metrics_variables, self._metrics, strict=True
            ):
                variable.assign(value)
            self._metrics = None

    def on_train_batch_begin(self, batch, logs=None):
        self.checkpoints.restore_generators()
        stop = self.must_stop()
        if self.step > self._first_step and (
            stop
            or self.step >= self._end - self.steps_per_execution
            or (self.checkpoint_every and not self.step % self.checkpoint_every)
        ):
            self.checkpoints.save(self.step, self.model)
        if stop:
            self._leave(stop)

    def on_train_batch_end(self, batch, logs=None):
        self.step = self._begin + batch + 1
        # Checked one step later, so that the host does not wait for the device;
        # a mean that is not finite stays so.
        if self._loss is not None:
            self._check_loss(*self._loss)
        self._loss = (self.step, logs["loss"])
        if self.step >= self._end:
            self._check_loss(*self._loss)
            self.model.stop_training = True

    def on_test_batch_begin(self, batch, logs=None):
        if stop := self.must_stop():
            # The state of one step ago is saved: the evaluation is repeated.
            self._leave(stop)

    def on_epoch_end(self, epoch, logs=None):
        if not np.isfinite(logs.get("val_loss", 0.0)):
            raise FloatingPointError(
                f"The evaluation after step {self.step} gave a loss of "
                f"{logs['val_loss']}."
            )
        logs["step"] = self.step
        rate = ops.convert_to_numpy(self.model.optimizer.learning_rate)
        logs["learning_rate"] = float(rate)
        self._loss = None
        self.model.stop_training = self.step >= self.total_steps

    def _leave(self, reason):
        self.checkpoints.wait()
        raise Preempted(self.checkpoints.latest, reason)

    def _check_loss(self, step, loss):
        if not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss became {float(loss)} in step {step}."
            )
