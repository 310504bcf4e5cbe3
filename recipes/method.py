"""What differs between the objectives of training without labels."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from recipes import inputs, training_step

# (batches of training, batches of evaluation), as `inputs.pipelines` returns.
Batches = tuple[Callable, Callable]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """An objective of `recipes.unlabelled`, whose config each function gets.

    Attributes:
        objective: Returns the model to train and its loss, given the config
            and the properties of the data set.
        batches: Returns the functions that make batches of the model to train,
            given the config, the images and the training step.
        describe: Returns what is done to an input, in words, given the config
            and the training step.
        check: Refuses impossible values, given the config, before the workdir
            is written.
        callbacks: Returns further callbacks, given the config, the images, the
            training step, the devices and the workdir. They come before those
            that log an evaluation and save models.
        planned: Returns the inputs and the targets of the model to train,
            symbolic, given the config and this model: what a plan for TPUs
            needs besides `objective`.
    """

    objective: Callable[[Any, inputs.DatasetInfo], training_step.Objective]
    batches: Callable[[Any, inputs.Inputs, training_step.TrainingStep], Batches]
    describe: Callable[[Any, training_step.TrainingStep], str]
    check: Callable[[Any], None] = lambda config: None
    callbacks: Callable[..., tuple] = lambda *given: ()
    planned: Callable[[Any, keras.Model], tuple] = lambda config, trainer: (
        trainer.input,
        keras.Input(trainer.output.shape[1:]),
    )


def wrapped(
    config: Any,
    images: inputs.Inputs,
    wrap: Callable,
    **options,
) -> Batches:
    """Return batches of `inputs.pipelines` that a function turns into others.

    Args:
        wrap: Returns a tf.data.Dataset, given that of images, `options`, and
            by name start_step, shard_index, num_shards and num_replicas.
        **options: Its other arguments.
    """
    train, evaluation = inputs.pipelines(
        config, images.info, images.train, images.evaluation
    )

    def train_batches(start_step, *shard):
        return wrap(
            train(start_step, *shard[:2]),
            start_step=start_step,
            **inputs.shard_options(*shard),
            **options,
        )

    def eval_batches(*shard):
        return wrap(
            evaluation(*shard[:2]),
            **inputs.shard_options(*shard),
            **options,
        )

    return train_batches, eval_batches
