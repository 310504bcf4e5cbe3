"""Makes a compiled training step of a config and the info of a data set.

It depends on nothing else, so that a run and its plan are the same program.
"""

import dataclasses
import math
from collections.abc import Callable

import keras

import keras_vit
from keras_vit import evaluation, training
from keras_vit.models import families
from recipes import choices
from recipes.experiment import Config
from recipes.inputs import DatasetInfo

# The batch of configs for one's own images, of which there may be fewer.
SMALL_BATCH = 64


def second(model: keras.Model) -> keras.Model:
    """Return another model of the same variables, for the optimizer."""
    return keras.Model(model.input, model.output, name=model.name)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A training objective.

    Attributes:
        loss: Loss of the predictor's output; None if the predictor has its
            own.
        predictor: Returns the model to train, given the model that is saved,
            whose layers it shares; the saved model has no optimizer.
        metrics: Returns weighted metrics of the predictor's output, whose
            variables belong to the devices on which it is called.
        include_top: Whether the output of the saved model is class scores.
        best_by: Metric of the best evaluation: the highest "accuracy" or the
            lowest "loss".
        add_head: Returns the model that is saved, given the backbone; None for
            the backbone itself.
    """

    loss: keras.losses.Loss | training.TaskLoss | None
    predictor: Callable[[keras.Model], keras.Model] = second
    metrics: Callable[[], list[keras.metrics.Metric]] = list
    include_top: bool = True
    best_by: str = "accuracy"
    add_head: Callable[[keras.Model], keras.Model] | None = None


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
    """Make the model and compile its training step.

    Args:
        kind: Type of the devices, "cpu", "gpu" or "tpu".
        objective: The training objective; None is classification.

    Raises:
        ValueError: If the model cannot be built, or the weights do not fit it.
    """
    objective = objective or _classification(config, info)
    model_arguments = _model_arguments(config, info.image_size)
    # A model of images is applied to each frame of a clip.
    family = families.of(config.model.name)
    by_frame = info.num_frames and not (family and family.takes_video)
    shape = info.image_shape if by_frame else info.input_shape
    backbone = _backbone(config, info, shape, objective, model_arguments)

    total_steps, eval_every = steps_of(config, info)
    warmup_steps = min(config.schedule.warmup_steps, total_steps // 5)
    schedule = _schedule(config, total_steps, warmup_steps)
    steps_per_execution = _steps_per_execution(
        config, kind, total_steps, eval_every
    )

    model = backbone
    if objective.add_head is not None:
        backbone.trainable = config.model.tune == "all"
        model = objective.add_head(backbone)
    elif config.model.tune == "head":
        training.train_head_only(model)
    elif config.model.tune == "lora":
        training.train_low_rank(model, config.model.lora_rank)
    predictor = objective.predictor(model)
    if by_frame:
        predictor = evaluation.average_scores(predictor, info.num_frames)
    trainer = training.accumulate(predictor, config.run.micro_batches)
    loss = objective.loss
    if isinstance(loss, training.TaskLoss):
        training.set_loss(trainer, loss)
        loss = None
    trainer.compile(
        optimizer=_optimizer(
            config.optim, schedule, trainer, backbone, total_steps
        ),
        loss=loss,
        # Weighted, so that the padding of evaluation does not count.
        weighted_metrics=objective.metrics() or None,
        steps_per_execution=steps_per_execution,
    )
    trainer.optimizer.build(trainer.trainable_variables)
    if isinstance(loss, training.SigmoidCrossentropy):
        # In its file the loss states what makes probabilities of the scores.
        model.compile(optimizer=None, loss=loss)
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


def _backbone(config, info, input_shape, objective, arguments):
    """Return the model of a config, without a head that is added later."""
    options = {}
    patch_size = config.model.architecture.patch_size
    if objective.add_head and config.model.weights and patch_size:
        options["resize_patches"] = True
    return getattr(keras_vit, config.model.name)(
        weights=config.model.weights or None,
        include_top=objective.include_top,
        input_shape=input_shape,
        class_names=info.class_names if objective.include_top else None,
        head_bias_init=config.model.head_bias,
        remat=config.model.remat,
        **arguments,
        **options,
    )


def steps_of(config: Config, info: DatasetInfo) -> tuple[int, int]:
    """Return the number of steps, and the steps between evaluations.

    Raises:
        ValueError: If an epoch is less than a batch.
    """
    per_epoch = info.train_images * config.data.repeats
    batch_size, settings = config.data.batch_size, config.schedule
    limit = max(per_epoch, SMALL_BATCH)
    if not settings.total_steps and batch_size > limit:
        raise ValueError(
            f"`data.batch_size` must be at most {limit} for the {per_epoch} "
            "images of an epoch, unless `schedule.total_steps` is given too. "
            f"Received: data.batch_size={batch_size}"
        )
    total_steps = settings.total_steps or max(
        1, settings.num_epochs * per_epoch // batch_size
    )
    each = config.evaluation.every or max(1, per_epoch // batch_size)
    return total_steps, min(each, total_steps)


def _model_arguments(config, image_size):
    """Return the constructor's arguments that describe the architecture."""
    arguments = dataclasses.asdict(config.model.architecture)
    arguments = {name: value for name, value in arguments.items() if value}
    name = config.model.name
    family = families.of(name)
    if family is None or family.title != name or config.model.weights:
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
    """Return the steps in one call to the device, between which it stops."""
    common = math.gcd(total_steps, eval_every, config.run.checkpoint_every)
    asked = config.run.steps_per_execution
    if asked:
        if common % asked:
            raise ValueError(
                "`run.steps_per_execution` must divide the steps, those "
                f"between evaluations and between checkpoints: {total_steps}, "
                f"{eval_every} and {config.run.checkpoint_every}. Received: "
                f"run.steps_per_execution={asked}"
            )
        return asked
    # With TensorFlow each call to a TPU costs milliseconds. Other devices would
    # gain nothing, nor JAX, which dispatches steps asynchronously.
    if kind == "tpu" and keras.backend.backend() == "tensorflow":
        return max(n for n in range(1, 51) if common % n == 0)
    return 1


def _schedule(config, total_steps, warmup_steps):
    """Return a linear warm-up from 0, then a decay over the other steps."""
    base_lr, settings = config.optim.base_lr, config.schedule
    if settings.name == "linear":
        return training.LinearDecay(base_lr, total_steps, warmup_steps)
    if settings.name == "step":
        return training.StepDecay(
            base_lr, total_steps, settings.decay_at, warmup_steps
        )
    if settings.name != "cosine":
        make, further, keywords = choices.find_schedule(settings.name)
        first = (base_lr, total_steps - warmup_steps)
        schedule = choices.made(
            "schedule.name", settings.name, make, *first, *further, **keywords
        )
        if not warmup_steps:
            return schedule
        return training.WarmUp(schedule, warmup_steps)
    alpha = settings.final_lr / base_lr
    if not warmup_steps:
        return keras.optimizers.schedules.CosineDecay(
            base_lr, total_steps, alpha
        )
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        total_steps - warmup_steps,
        alpha,
        warmup_target=base_lr,
        warmup_steps=warmup_steps,
    )


def _optimizer(settings, schedule, trainer, backbone, total_steps):
    arguments = dict(
        learning_rate=schedule,
        weight_decay=settings.weight_decay or None,
        global_clipnorm=settings.clip_norm or None,
        use_ema=settings.ema_momentum > 0,
        ema_momentum=settings.ema_momentum,
    )
    if settings.name == "sgd":
        optimizer_class = keras.optimizers.SGD
        arguments["momentum"] = settings.momentum
    elif settings.name == "lamb":
        optimizer_class = keras.optimizers.Lamb
        arguments |= dict(beta_1=0.9, beta_2=0.999, epsilon=1e-6)
    elif settings.name == "adam":
        optimizer_class = keras.optimizers.Adam
        # Section 4.1, and Flax' epsilon.
        arguments |= dict(beta_1=0.9, beta_2=0.999, epsilon=1e-8)
    else:
        optimizer_class, keywords = choices.find_optimizer(settings.name)
        # AdamW takes no None.
        arguments |= dict(weight_decay=settings.weight_decay)
        if choices.has_momentum(settings.name):
            arguments["momentum"] = settings.momentum
        if issubclass(optimizer_class, keras.optimizers.Muon):
            # It has another one for the kernels that AdamW updates.
            arguments |= dict(adam_weight_decay=settings.weight_decay)
        arguments |= keywords
    optimizer_class = training.fuse_adam(optimizer_class)
    optimizer_class = training.clip_whole_gradient(optimizer_class)
    if settings.head_weight_decay:
        _check_head(trainer)
        optimizer_class = training.multiply_head_decay(
            optimizer_class,
            settings.head_weight_decay / settings.weight_decay,
        )
    if settings.final_weight_decay:
        start, end = settings.weight_decay, settings.final_weight_decay
        optimizer_class = training.schedule_decay(
            optimizer_class,
            lambda step: training.cosine(step, total_steps, start, end),
        )
    if settings.layer_decay or settings.backbone_warmup:
        # A head's layers are not among its own: they have the whole rate.
        factor = training.depth_factor(
            backbone,
            settings.layer_decay or 1.0,
            settings.backbone_warmup or None,
        )
        optimizer_class = training.scale_rates(optimizer_class, factor)
    optimizer = choices.made(
        "optim.name", settings.name, optimizer_class, **arguments
    )
    optimizer.exclude_from_weight_decay(
        [v for v in trainer.trainable_variables if v.name != "kernel"]
    )
    return optimizer


def _check_head(trainer):
    """Refuse another decay of the head where there is none."""
    paths = (v.path.split("/")[:-1] for v in trainer.trainable_variables)
    if not any("head" in path for path in paths):
        raise ValueError(
            "`optim.head_weight_decay` must be 0 for a model without a layer "
            f"`head` that is trained. Received: {trainer.name!r}, without"
        )


def _classification(config, info):
    if info.multi_label and config.optim.loss != "sigmoid":
        raise ValueError(
            "`optim.loss` must be 'sigmoid' for a data set whose images may "
            f"have several labels. Received: optim.loss={config.optim.loss!r}"
        )
    if config.optim.loss == "sigmoid":
        loss = training.SigmoidCrossentropy(config.optim.label_smoothing)
    else:
        loss = keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.optim.label_smoothing
        )
    return Objective(
        loss=loss,
        metrics=lambda: [
            # With several labels, how often the first prediction is one of
            # them.
            evaluation.PrecisionAt1(name="accuracy")
            if info.multi_label
            else keras.metrics.CategoricalAccuracy(name="accuracy")
        ],
    )
