"""Prints the progress of training: step, metrics, rates and remaining time."""

import math
import shutil
import sys
import time
from collections.abc import Callable

import keras

from keras_vit import training

# Seconds between two lines without a terminal, and two updates of its bar.
LINE_EVERY = 60
BAR_EVERY = 0.5
BAR_WIDTH = 20


class Console(keras.callbacks.Callback):
    """Prints the progress of the whole run.

    There is a line after each evaluation. Between them, a terminal shows a
    progress bar below the lines; elsewhere, a line is printed every minute.

    Rates are those of the steps since the last line, without the first step,
    which includes compilation, without evaluations and the step after them. The
    remaining time includes evaluations, without the compilation of the first.
    Reading the logs of a step waits for the device, so they are read only for
    printing.

    Must come after `progress` and after callbacks that add to the logs.

    Args:
        progress: Counts the steps.
        batch_size: Images in a step.
        eval_steps: Batches in an evaluation.
        schedule: The learning rate as a function of the step.
        clock: Returns seconds; for tests.
    """

    def __init__(
        self,
        progress: training.Progress,
        *,
        batch_size: int,
        eval_steps: int,
        schedule: Callable[[int], float],
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self.progress = progress
        self.batch_size = batch_size
        self.eval_steps = eval_steps
        self.schedule = schedule
        self.clock = clock
        self._in_terminal = sys.stdout.isatty()
        self._interval = BAR_EVERY if self._in_terminal else LINE_EVERY
        self._bar = ""
        self._steps_per_second = 0.0
        self._pause_seconds = 0.0

    def on_train_begin(self, logs=None):
        self._begin = self._shown = self.clock()
        self._compiled = self._eval_compiled = False
        self._pause: float | None = None
        if self._in_terminal:
            self._draw(["compiling the first step"])

    def on_epoch_begin(self, epoch, logs=None):
        if self._pause is not None:
            self._pause_seconds = self.clock() - self._pause
        self._start_timing()

    def on_train_batch_end(self, batch, logs=None):
        if not self._compiled:
            _floats(logs)  # waits for the step
            self._compiled = True
            self._start_timing()
        if self.clock() - self._shown < self._interval:
            return
        metrics = _text(_floats(logs))
        rate = _learning_rate(self.schedule(self.progress.step))
        self._measure()
        if self._in_terminal:
            self._draw([self._time_left(), self._rates(), metrics, rate])
        else:
            self._line([metrics, rate, self._rates(), self._time_left()])

    def on_test_begin(self, logs=None):
        self._measure()
        self._pause = self.clock()

    # At its beginning: at its end Keras would read the logs of each batch.
    def on_test_batch_begin(self, batch, logs=None):
        if batch and not self._eval_compiled:
            self._pause = self.clock()
            self._eval_compiled = True
        if self.clock() - self._shown < self._interval:
            return
        show = self._draw if self._in_terminal else self._line
        show([f"evaluating, batch {batch + 1}/{self.eval_steps}"])

    def on_epoch_end(self, epoch, logs=None):
        evaluated = {
            name.removeprefix("val_"): value
            for name, value in logs.items()
            if name.startswith("val_")
        }
        trained = {name: logs[name] for name in evaluated if name in logs}
        # Few-shot accuracies, if they were measured.
        others = {
            name: value
            for name, value in logs.items()
            if name not in ("step", "learning_rate", *trained)
            and not name.startswith("val_")
            and not math.isnan(value)
        }
        self._pause_seconds = self.clock() - (self._pause or 0.0)
        self._line(
            [
                _text(trained),
                f"evaluation: {_text(evaluated | others)}",
                _learning_rate(logs["learning_rate"]),
                self._rates(),
                self._time_left(),
            ]
        )

    def close(self):
        """End the bar, so that the next output starts on a new line."""
        if self._bar:
            print(flush=True)
        self._bar = ""

    def _start_timing(self):
        self._timed = self.clock()
        self._timed_step = self.progress.step

    def _measure(self):
        """Measure the rate of the steps since the last line."""
        seconds = self.clock() - self._timed
        steps = self.progress.step - self._timed_step
        if steps and seconds > 0:
            self._steps_per_second = steps / seconds

    def _rates(self):
        if not self._steps_per_second:
            return ""
        images = self._steps_per_second * self.batch_size
        return (
            f"{_rate(self._steps_per_second)} steps/s, {_rate(images)} images/s"
        )

    def _time_left(self):
        """Return the time of the remaining steps and of the evaluations."""
        progress = self.progress
        steps = progress.total_steps - progress.step
        if not steps:
            return f"took {_duration(self.clock() - self._begin)}"
        if not self._steps_per_second:
            return ""
        evaluations = -(-progress.total_steps // progress.eval_every)
        evaluations -= progress.epoch
        seconds = steps / self._steps_per_second
        seconds += evaluations * self._pause_seconds
        return f"{_duration(seconds)} left"

    def _line(self, parts):
        step, total = self.progress.step, self.progress.total_steps
        parts = [f"step {step:{len(str(total))}}/{total}", *filter(None, parts)]
        erase = "\r\x1b[K" if self._bar else ""
        print(erase + " | ".join(parts), flush=True)
        self._shown = self.clock()
        self._start_timing()
        if self._bar:
            self._bar = ""
            if step < total:
                self._draw([])

    def _draw(self, parts):
        """Draw the bar in the last line of the terminal."""
        step, total = self.progress.step, self.progress.total_steps
        full = "#" * (BAR_WIDTH * step // total)
        parts = [
            f"{step / total:4.0%} [{full:{BAR_WIDTH}}] {step}/{total}",
            *filter(None, parts),
        ]
        # A full line would wrap.
        width = shutil.get_terminal_size().columns - 1
        self._bar = " | ".join(parts)[:width]
        print(f"\r{self._bar}\x1b[K", end="", flush=True)
        self._shown = self.clock()


def _floats(logs):
    return {name: float(value) for name, value in logs.items()}


def _text(metrics):
    # The loss is the first during an epoch, but not in the logs of its end.
    metrics = {"loss": None} | metrics if "loss" in metrics else metrics
    return ", ".join(
        f"{name} {value:.4f}" if abs(value) >= 0.01 else f"{name} {value:.2e}"
        for name, value in metrics.items()
    )


def _learning_rate(value):
    return f"learning rate {float(value):.3g}"


def _rate(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _duration(seconds):
    """Return a duration such as 4:05, 2:04:05 or 3 d 2 h."""
    minutes, seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"
