"""Progress that a run prints during training."""

import sys

import keras
import pytest

from recipes import console, fitting

# Counting and printing, the same on every backend.
pytestmark = pytest.mark.backend_independent


class Progress:
    total_steps = 1000
    eval_every = 400

    def __init__(self, step=0):
        self.step = step

    @property
    def epoch(self):
        return self.step // self.eval_every


class Lazy:
    """A number on a device: whoever reads it waits."""

    reads = 0

    def __float__(self):
        Lazy.reads += 1
        return 0.25


class Run:
    """Calls a Console as `fit` does; a step takes half a second."""

    def __init__(self, step=0, steps_per_execution=1):
        self.now = 0.0
        self.progress = Progress(step)
        self.steps = steps_per_execution
        self.console = console.Console(
            self.progress,
            batch_size=64,
            eval_steps=300,
            schedule=lambda step: 0.1 * step,
            clock=lambda: self.now,
        )
        self.console.on_train_begin()

    def train(self, until, seconds=0.5):
        self.console.on_epoch_begin(self.progress.epoch)
        while self.progress.step < until:
            self.now += seconds * self.steps
            self.progress.step += self.steps
            self.console.on_train_batch_end(0, {"loss": Lazy()})

    def evaluate(self, seconds=0.1, **logs):
        self.console.on_test_begin()
        for batch in range(300):
            self.console.on_test_batch_begin(batch)
            self.now += seconds
        logs |= {
            "loss": 0.25,
            "val_loss": 1.5,
            "step": self.progress.step,
            "learning_rate": 0.001,
        }
        # As `fit` gives them.
        self.console.on_epoch_end(0, dict(sorted(logs.items())))


def test_off_a_terminal_there_is_a_line_a_minute_and_one_an_evaluation(capsys):
    run = Run()
    run.train(400)
    run.evaluate()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[0] for line in lines] == [
        f"step {step:4}/1000 " for step in (120, 240, 360, 400)
    ]
    assert lines[0] == (
        "step  120/1000 | loss 0.2500 | learning rate 12 | "
        "2 steps/s, 128 images/s | 7:20 left"
    )
    # 600 steps of half a second and two evaluations of half a minute.
    assert lines[3] == (
        "step  400/1000 | loss 0.2500 | evaluation: loss 1.5000 | "
        "learning rate 0.001 | 2 steps/s, 128 images/s | 6:00 left"
    )


def test_a_long_evaluation_is_not_silent(capsys):
    run = Run()
    run.train(10)
    run.evaluate(seconds=0.5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step   10/1000 | evaluating, batch 111/300"
    assert lines[1] == "step   10/1000 | evaluating, batch 231/300"
    assert "| evaluation: loss 1.5000 |" in lines[2]


def test_evaluations_and_compilation_do_not_count_in_the_rate(capsys):
    run = Run()
    run.now += 1000  # to compile
    run.train(400)
    run.evaluate()
    run.train(800)
    run.evaluate()
    for line in capsys.readouterr().out.splitlines()[1:]:
        assert "| 2 steps/s, 128 images/s |" in line


def test_a_resumed_run_shows_its_own_step_and_rate(capsys):
    run = Run(step=600, steps_per_execution=50)
    run.train(1000)
    run.evaluate(accuracy=0.5, val_accuracy=0.75)
    *_, line = capsys.readouterr().out.splitlines()
    assert line == (
        "step 1000/1000 | loss 0.2500, accuracy 0.5000 | "
        "evaluation: loss 1.5000, accuracy 0.7500 | "
        "learning rate 0.001 | 2 steps/s, 128 images/s | took 3:50"
    )


def test_few_shot_accuracy_is_shown_where_it_was_measured(capsys):
    run = Run()
    run.train(2)
    run.evaluate(**{"digits/5-shot": 0.5})
    run.evaluate(**{"digits/5-shot": float("nan")})
    first, second = capsys.readouterr().out.splitlines()
    assert "evaluation: loss 1.5000, digits/5-shot 0.5000 |" in first
    assert "5-shot" not in second


def test_in_a_terminal_one_bar_shows_the_complete_run(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    run = Run(step=500)
    run.train(502)
    run.evaluate()
    run.console.close()
    drawn, line = capsys.readouterr().out.split("\n")[:2]
    bars = [bar.removesuffix("\x1b[K") for bar in drawn.split("\r")]
    assert bars[1] == (
        " 50% [##########          ] 500/1000 | compiling the first step"
    )
    assert bars[3].startswith(" 50% [##########          ] 502/1000 | ")
    assert "left | 2 steps/s, 128 images/s" in bars[3]
    assert "evaluating, batch " in bars[4]
    assert all(len(bar) < 80 for bar in bars[:-1])
    # The line of the evaluation takes the place of the bar.
    assert bars[-1].startswith(
        "\x1b[Kstep  502/1000 | loss 0.2500 | evaluation"
    )
    # The bar is drawn again below it, and ended.
    assert line.endswith("] 502/1000\x1b[K")


def test_logs_stay_on_the_device_until_they_are_printed(capsys):
    seen = []

    class Keeping(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["loss"])

    Lazy.reads = 0
    callbacks = fitting._Callbacks([Keeping()])
    callbacks.on_train_batch_end(0, {"loss": Lazy()})
    assert isinstance(seen[0], Lazy) and Lazy.reads == 0
    run = Run()
    run.train(100)
    assert Lazy.reads == 1  # the first step is waited for
    run.train(150)
    assert Lazy.reads == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0:01"),
        (65, "1:05"),
        (3600, "1:00:00"),
        (47 * 3600, "47:00:00"),
        (50 * 3600, "2 d 2 h"),
    ],
)
def test_durations_are_written_as_a_clock_shows_them(seconds, text):
    assert console._duration(seconds) == text
