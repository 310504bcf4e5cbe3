"""Makes a compiled training step of a config and the info of a data set.

It depends on nothing else, so that a run and its plan are the same program.
"""

import dataclasses
import math
from collections.abc import Callable

import keras

import keras_vit
from keras_vit import evaluation, training
from keras_vit.models.families import FAMILIES
from recipes import choices
from recipes.experiment import Config
from recipes.inputs import DatasetInfo

# The batch of configs for one's own images, of which there may be fewer.
SMALL_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A training objective.

    Attributes:
        predictor: Returns the model to train, given the model that is saved,
            whose layers it shares.
        loss: Loss of the predictor's output.
        metrics: Weighted metrics of the predictor's output.
        include_top: Whether the output of the saved model is class scores.
        best_by: Metric of the best evaluation: the highest "accuracy" or the
            lowest "loss".
    """

    predictor: Callable[[keras.Model], keras.Model]
    loss: keras.losses.Loss
    metrics: list[keras.metrics.Metric]
    include_top: bool = True
    best_by: str = "accuracy"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStep:
    """A config resolved for a data set.

    Attributes:
        model: The model that is saved.
        trainer: The compiled model that is trained; it shares the variables.
        model_arguments: The arguments of the constructor that describe the
            architecture.
        total_steps: Number of steps.
        warmup_steps: Steps in which the learning rate rises.
        schedule: The learning rate as a function of the step.
        eval_every: Steps between evaluations.
        steps_per_execution: Steps between host synchronisations.
        best_by: See `Objective`.
    """

    model: keras.Model
    trainer: keras.Model
    model_arguments: dict
    total_steps: int
    warmup_steps: int
    schedule: Callable
    eval_every: int
    steps_per_execution: int
    best_by: str


def build(
    config: Config,
    info: DatasetInfo,
    kind: str = "cpu",
    objective: Objective | None = None,
) -> TrainingStep:
    """Makes the model and compiles its training step.

    Args:
        config: A config that `check` accepts.
        info: The properties of the data set.
        kind: Type of the devices, "cpu", "gpu" or "tpu".
        objective: The training objective; None is classification.

    Raises:
        ValueError: If the model cannot be built, or the weights do not fit it.
    """
    objective = objective or _classification(config, info)
    model_arguments = _model_arguments(config, info.image_size)
    # A model of images is applied to each frame of a clip.
    by_frame = info.num_frames and not _takes_video(config.model)
    model = getattr(keras_vit, config.model)(
        weights=config.weights or None,
        include_top=objective.include_top,
        input_shape=info.image_shape if by_frame else info.input_shape,
        class_names=info.class_names,
        head_bias_init=config.head_bias,
        remat=config.remat,
        **model_arguments,
    )

    per_epoch = info.train_images * config.repeats
    limit = max(per_epoch, SMALL_BATCH)
    if not config.total_steps and config.batch_size > limit:
        raise ValueError(
            f"`batch_size` must be at most {limit} for the {per_epoch} images "
            "of an epoch, unless `total_steps` is given too. Received: "
            f"batch_size={config.batch_size}"
        )
    steps_per_epoch = max(1, per_epoch // config.batch_size)
    total_steps = config.total_steps or max(
        1, config.num_epochs * per_epoch // config.batch_size
    )
    warmup_steps = min(config.warmup_steps, total_steps // 5)
    schedule = _schedule(config, total_steps, warmup_steps)
    eval_every = min(config.eval_every or steps_per_epoch, total_steps)
    steps_per_execution = _steps_per_execution(
        config, kind, total_steps, eval_every
    )

    if config.tune == "head":
        training.train_head_only(model)
    elif config.tune == "lora":
        training.train_low_rank(model, config.lora_rank)
    predictor = objective.predictor(model)
    if by_frame:
        predictor = evaluation.average_scores(predictor, info.num_frames)
    trainer = training.accumulate(predictor, config.micro_batches)
    trainer.compile(
        optimizer=_optimizer(config, schedule, trainer, model),
        loss=objective.loss,
        # Weighted, so that the padding of evaluation does not count.
        weighted_metrics=objective.metrics,
        steps_per_execution=steps_per_execution,
    )
    trainer.optimizer.build(trainer.trainable_variables)
    return TrainingStep(
        model=model,
        trainer=trainer,
        model_arguments=model_arguments,
        total_steps=total_steps,
        warmup_steps=warmup_steps,
        schedule=schedule,
        eval_every=eval_every,
        steps_per_execution=steps_per_execution,
        best_by=objective.best_by,
    )


def _takes_video(name):
    """Returns whether a constructor makes models of videos."""
    return any(
        family.takes_video and name in (family.title, *family.variants)
        for family in FAMILIES.values()
    )


def _model_arguments(config, image_size):
    """Returns the arguments of the constructor that describe the
    architecture."""
    arguments = dataclasses.asdict(config.architecture)
    arguments = {name: value for name, value in arguments.items() if value}
    family = {family.title: family for family in FAMILIES.values()}.get(
        config.model
    )
    if family is None or config.weights:
        return arguments
    arguments = family.small | arguments
    fields = [field.name for field in dataclasses.fields(family.config)]
    if "patch_size" not in fields:
        return arguments
    fitting = [
        n
        for n in range(1, min(image_size) + 1)
        if not any(side % n for side in image_size)
    ]
    patch_size = max(n for n in fitting if n == 1 or min(image_size) // n >= 8)
    if patch_size < 4:
        patch_size = next((n for n in fitting if n >= 4), patch_size)
    return dict(patch_size=patch_size) | arguments


def _steps_per_execution(config, kind, total_steps, eval_every):
    """Returns the steps in one call to the device; stops are between two
    calls."""
    common = math.gcd(total_steps, eval_every, config.checkpoint_every)
    asked = config.steps_per_execution
    if asked:
        if common % asked:
            raise ValueError(
                "`steps_per_execution` must divide the steps, those between "
                f"evaluations and between checkpoints: {total_steps}, "
                f"{eval_every} and {config.checkpoint_every}. Received: "
                f"steps_per_execution={asked}"
            )
        return asked
    # With TensorFlow each call to a TPU costs milliseconds. Other devices would
    # gain nothing, nor JAX, which dispatches steps asynchronously.
    if kind == "tpu" and keras.backend.backend() == "tensorflow":
        return max(n for n in range(1, 51) if common % n == 0)
    return 1


def _schedule(config, total_steps, warmup_steps):
    """Returns a linear warm-up from 0, then a decay over the other steps."""
    if config.schedule == "linear":
        return training.LinearDecay(config.base_lr, total_steps, warmup_steps)
    if config.schedule == "step":
        return training.StepDecay(
            config.base_lr, total_steps, config.decay_at, warmup_steps
        )
    if config.schedule != "cosine":
        make, further, keywords = choices.find_schedule(config.schedule)
        first = (config.base_lr, total_steps - warmup_steps)
        schedule = choices.made(
            "schedule", config.schedule, make, *first, *further, **keywords
        )
        if not warmup_steps:
            return schedule
        return training.WarmUp(schedule, warmup_steps)
    alpha = config.final_lr / config.base_lr
    if not warmup_steps:
        return keras.optimizers.schedules.CosineDecay(
            config.base_lr, total_steps, alpha
        )
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        total_steps - warmup_steps,
        alpha,
        warmup_target=config.base_lr,
        warmup_steps=warmup_steps,
    )


def _optimizer(config, schedule, trainer, model):
    arguments = dict(
        learning_rate=schedule,
        weight_decay=config.weight_decay or None,
        global_clipnorm=config.clip_norm or None,
        use_ema=config.ema_momentum > 0,
        ema_momentum=config.ema_momentum,
    )
    if config.optimizer == "sgd":
        optimizer_class = keras.optimizers.SGD
        arguments["momentum"] = config.momentum
    elif config.optimizer == "lamb":
        optimizer_class = keras.optimizers.Lamb
        arguments |= dict(beta_1=0.9, beta_2=0.999, epsilon=1e-6)
    elif config.optimizer != "adam":
        optimizer_class, keywords = choices.find_optimizer(config.optimizer)
        arguments["weight_decay"] = config.weight_decay  # AdamW takes no None
        arguments |= keywords
    else:
        optimizer_class = keras.optimizers.Adam
        # Section 4.1, and Flax' epsilon.
        arguments |= dict(beta_1=0.9, beta_2=0.999, epsilon=1e-8)
    optimizer_class = training.fuse_adam(optimizer_class)
    optimizer_class = training.clip_whole_gradient(optimizer_class)
    if config.layer_decay:
        optimizer_class = training.scale_rates(
            optimizer_class, training.depth_factor(model, config.layer_decay)
        )
    optimizer = choices.made(
        "optimizer", config.optimizer, optimizer_class, **arguments
    )
    optimizer.exclude_from_weight_decay(
        [v for v in trainer.trainable_variables if v.name != "kernel"]
    )
    return optimizer


def _classification(config, info):
    if info.multi_label and config.loss != "sigmoid":
        raise ValueError(
            "`loss` must be 'sigmoid' for a data set whose images may have "
            f"several labels. Received: loss={config.loss!r}"
        )
    if config.loss == "sigmoid":
        loss = training.SigmoidCrossentropy(config.label_smoothing)
    else:
        loss = keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        )
    return Objective(
        # A second model of the same variables, since the saved model has no
        # optimizer.
        predictor=lambda model: keras.Model(
            model.input, model.output, name=model.name
        ),
        loss=loss,
        metrics=[
            # With several labels, how often the first prediction is one of
            # them.
            evaluation.PrecisionAt1(name="accuracy")
            if info.multi_label
            else keras.metrics.CategoricalAccuracy(name="accuracy")
        ],
    )
