r"""Compares the training steps of two configs, in processor time.

    python -m tools.benchmark_steps \
        --config=recipes/configs/mae.py:ViTB16,imagenet2012 \
        --other=recipes/configs/pretrain.py:ViTB16,imagenet2012,plain

Calls `train_on_batch` of the models that the recipes train, in float32 on
random numbers, in turns. Prints the seconds of each, and those of the first
divided by those of the other, the median of the rounds. --config.FIELD=VALUE
changes the first config. No data set is read, and no weights are downloaded.
"""

import statistics
import sys
import time
from typing import Any

import keras
import numpy as np

from keras_vit_cli import command
from recipes import cli, fields, training_step
from tools.benchmark import measure
from tools.plan_tpu import DEFAULT_CONFIG, planner


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print a line for each config and their ratio."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--other", required=True, help="another config")
    parser.add_argument("--batch_size", type=command.count, default=8)
    parser.add_argument("--rounds", type=command.count, default=5)
    options, rest = parser.parse_known_args(arguments)
    words = {"config": rest, "other": [f"--config={options.other}"]}
    calls = {name: step(x, options.batch_size) for name, x in words.items()}
    found = measure.rounds(calls, options.rounds, time.process_time)
    for name, seconds in found.items():
        print(f"--{name}: {statistics.median(seconds):.3g} s")
    ratio, low, high = measure.ratio(found["other"], found["config"])
    print(f"ratio: {ratio:.3f} ({low:.3f} to {high:.3f})")
    return 0


def step(words: list[str], batch_size: int):
    """Return a function that trains the model of a config on one batch."""
    config, *_ = cli.parse(["benchmark_steps", *words], DEFAULT_CONFIG)
    changes = {"model.weights": "", "model.dtype_policy": "float32"}
    config = fields.changed(config, changes)
    planner.check(config)
    info = planner.dataset_info(config)
    objective, batch = planner.planned(config, info)
    built = training_step.build(config, info, "cpu", objective)
    symbolic: Any = (built.trainer.input, built.trainer.output)
    if batch is not None:
        symbolic = batch(built.trainer)
    rng = np.random.default_rng(0)

    def drawn(x):
        shape = (batch_size, *x.shape[1:])
        if "int" in x.dtype:  # indices, each another
            return np.broadcast_to(np.arange(shape[-1]), shape).astype(x.dtype)
        high = 255.0 if len(shape) > 3 else 1.0  # of pixels
        return rng.uniform(0, high, shape).astype(x.dtype)

    inputs, targets = keras.tree.map_structure(drawn, symbolic)
    return lambda: built.trainer.train_on_batch(inputs, targets)


if __name__ == "__main__":
    sys.exit(main())
