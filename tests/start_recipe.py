"""The fine-tuning recipe in a process of its own, stopped where a test wants.

`main` takes a dictionary: "workdir", "config", "devices", the number of
processors that the process pretends to have. With "kill_at" it kills itself,
as `kill -9` would, at that tick: a tick is an operation on a file of the
workdir, or the beginning or end of a step. With "count", the file of that name
gets the number of ticks.
"""

import json
import os
import signal
import sys

import keras

from keras_vit import training
from recipes import experiment, fields, finetune


def main(arguments):
    pretend_devices(arguments.get("devices", 1))
    workdir = arguments["workdir"]
    ticks = 0

    def tick():
        nonlocal ticks
        ticks += 1
        if ticks == arguments.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(event, event_arguments):
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            if str(event_arguments[0]).startswith(workdir):
                tick()

    class TickingProgress(training.Progress):
        def on_train_batch_begin(self, batch, logs=None):
            tick()
            if self.step == arguments.get("sigterm_after"):
                os.kill(os.getpid(), signal.SIGTERM)
            super().on_train_batch_begin(batch, logs)
            tick()

        def on_train_batch_end(self, batch, logs=None):
            tick()
            super().on_train_batch_end(batch, logs)
            tick()

        def on_test_batch_begin(self, batch, logs=None):
            if self.step == arguments.get("ctrl_c_in_evaluation_after"):
                os.kill(os.getpid(), signal.SIGINT)
            super().on_test_batch_begin(batch, logs)
            tick()

    training.Progress = TickingProgress
    # Of a finished run, pictures that no test of processes looks at.
    finetune._draw = lambda *arguments: ([], False)
    config = fields.changed(
        experiment.Config(), fields.stored(arguments["config"])
    )
    sys.addaudithook(on_event)
    results = finetune.run(config, workdir)
    print(json.dumps(results))
    if "count" in arguments:
        with open(arguments["count"], "w") as file:
            file.write(str(ticks))


def pretend_devices(number):
    """Makes one processor look like `number`; before the first computation."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={number}"
    if keras.backend.backend() == "tensorflow" and number > 1:
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * number,
        )
