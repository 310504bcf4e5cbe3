"""Learning from a teacher: what differs from other runs of `finetune.run`."""

import dataclasses
from typing import Any

import keras

import keras_vit
from keras_vit import distribution, training
from keras_vit.training import distillation
from keras_vit.weights import registry
from recipes import (
    checks,
    experiment,
    inputs,
    predictions,
    scored,
    training_step,
)
from recipes.inputs import DatasetInfo

METHODS = ("hard", "soft", "match")


@dataclasses.dataclass(kw_only=True, slots=True)
class Distill:
    """The teacher, and what the student learns from it.

    Attributes:
        teacher: A `.keras` file of any model, a directory of a SavedModel, an
            `.onnx` file, or whatever `keras_vit.from_pretrained` opens. It has
            the classes of the data set, in their order, and takes pixels in
            [0, 255].
        method: "hard" or "soft", with the labels (DeiT); "match", without
            (function matching). A model with a distillation token, such as
            "DeiTS16", learns from the teacher with that token.
        weight: Share of the teacher in the loss; 0 is that of DeiT, 0.5 for
            "hard" and 0.1 for "soft".
        temperature: Divisor of both's logits; 0 is 3 for "soft", and 1.
        probabilities: Whether the teacher gives probabilities, not logits.
        predictions: A folder for the teacher's predictions. The first run
            writes those of all its steps before it trains; students after it
            on the same batches read them. "" computes them in each step.
    """

    teacher: str = ""
    method: str = "hard"
    weight: float = 0.0
    temperature: float = 0.0
    probabilities: bool = False
    predictions: str = ""


@dataclasses.dataclass(kw_only=True, slots=True)
class Config(experiment.Config):
    """A run with a teacher. In all fields 0 and "" mean off.

    Attributes:
        distill: The teacher, and what the student learns from it; without a
            teacher it learns from labels alone.
    """

    distill: Distill = dataclasses.field(default_factory=Distill)


def check(config: Config) -> None:
    """Refuse what a run with a teacher does not support."""
    checks.check(config)
    own = config.distill
    checks.check_choice("distill.method", own.method, METHODS)
    checks.check_range("distill.weight", own.weight, 0, 1)
    checks.check_range("distill.temperature", own.temperature, 0)
    scored.refuse_unused(config, ("optim.loss", "data.num_frames"), "a student")
    unread = {
        "hard": ("distill.temperature",),
        "match": ("distill.weight", "optim.label_smoothing"),
    }.get(own.method, ())
    kind = f"distill.method={own.method!r}"
    if not own.teacher:
        unread = tuple(f"distill.{x.name}" for x in dataclasses.fields(own))
        kind = "a run without `distill.teacher`"
    scored.refuse_unused(config, unread, kind)


# What a plan reads of the data set, beside `planned`.
dataset_info, load = inputs.dataset_info, inputs.load


def planned(config: Config, info: DatasetInfo) -> tuple:
    """Return the objective of a config, and what makes its symbolic batch.

    Of released weights only the architecture of the teacher is needed.

    Raises:
        ValueError: If there is no such teacher.
    """
    path, classes = config.distill.teacher, len(info.class_names)
    if not path:
        return None, None

    def open_teacher():
        if config.distill.predictions or training.is_function_of_files(path):
            return None
        released = registry.find(path)
        if released:
            shape = (released.image_size, released.image_size, 3)
            make = getattr(keras_vit, released.variant)
            return make(classes=classes, input_shape=shape)
        found: Any = training.open_teacher(path)
        # The classes of a planned data set have no names to compare.
        return keras.Model(found.input, found.output, name="teacher")

    labels = keras.Input((classes,), name="labels")
    made = _objective(config, open_teacher)
    return made, lambda model: (model.input, labels)


def prepare(
    config: Config,
    devices: distribution.Devices,
    images: inputs.Inputs,
    batches: tuple,
) -> tuple[training_step.Objective, tuple]:
    """Return the objective of a student, and its batches.

    The images of a teacher that is no model of Keras get its predictions in
    the data pipeline, and so do those whose predictions are stored.

    Args:
        config: The config, with a teacher.
        devices: Those of the run.
        images: The images of the run.
        batches: Those of `inputs.pipelines`.

    Raises:
        ValueError: If the teacher cannot be opened, or does not fit.
    """
    own, info = config.distill, images.info
    if info.multi_label or info.num_frames:
        raise ValueError(
            "`distill.teacher` is for images with one label each. Received: "
            f"{config.data.dataset!r}"
        )
    in_data = bool(own.predictions)
    if own.predictions:
        batches = predictions.stored(config, devices, images, batches)
    elif training.is_function_of_files(own.teacher):
        in_data, teacher = True, training.open_teacher(own.teacher)
        names = tuple(info.class_names)
        distillation.check_classes(teacher, len(names), names, len(names))
        batches = tuple(
            _with_predictions(make, teacher, len(info.class_names))
            for make in batches
        )

    def open_teacher():
        return None if in_data else training.open_teacher(own.teacher)

    return _objective(config, open_teacher), batches


def _objective(config, open_teacher):
    """Return the objective of a student.

    `open_teacher` returns a model of Keras, or None if the data pipeline has
    its predictions. It is called on the devices of the student.
    """
    own = config.distill
    # Of probabilities the logarithms are stored.
    probabilities = own.probabilities and not own.predictions
    return training_step.Objective(
        predictor=lambda model: training.distilled(
            model, open_teacher(), probabilities=probabilities
        ),
        loss=training.DistillationLoss(
            own.method,
            own.weight or None,
            own.temperature or None,
            config.optim.label_smoothing,
        ),
        metrics=lambda: [training.DistilledAccuracy(name="accuracy")],
    )


def _with_predictions(make, teacher, classes):
    return lambda *step, **shard: training.with_predictions(
        make(*step, **shard), teacher, classes
    )
