"""Self-distillation (DINO, 2104.14294; DINOv2), of recipes.unlabelled."""

import dataclasses
import math

import keras

from keras_vit import data, training
from recipes import fields, inputs, method, scored, training_step
from recipes import workdir as workdirs

# Measures that fall to 0 when a teacher collapses, and below which share of
# their highest value so far a line is printed.
MEASURES = ("teacher_entropy", "mean_entropy", "feature_spread")
FALLEN = 0.1
# Of other crops; another value than the default is refused. data.crop and
# data.min_area are not, which the configs of masked autoencoders have, so that
# --config.objective=dino changes these.
UNUSED = tuple(
    f"data.{name}" for name in "pad resize eval_resize augment repeats".split()
)


@dataclasses.dataclass(kw_only=True, slots=True)
class Dino:
    """The crops, the projection heads and the teacher. 0 means off.

    Attributes:
        local_size: Pixels per side of the small crops; 0 is half of the image,
            in whole patches.
        num_local: Small crops of an image.
        global_area: Least and largest share of the area of the two large crops.
        local_area: That of the small crops.
        distort: Whether crops change in colours, sharpness and brightness.
        masked: Least and largest share of patches masked in one large crop,
            with `patch_weight`.
        num_prototypes, hidden_size, bottleneck_size: Of a projection head.
        student_temperature: Divisor of the student's logits.
        teacher_temperatures: That of the teacher's, at first and later.
        temperature_steps: Steps from the first to the later.
        momentum: Share of itself that the teacher keeps in the first step.
        centring: Of the teacher's outputs, "mean" or "sinkhorn".
        frozen_steps: Steps in which the prototypes stay as they are.
        patch_weight: Weight of the loss of masked patches (iBOT, DINOv2).
        koleo_weight: Weight of the loss that spreads features (DINOv2).
    """

    local_size: int = 96
    num_local: int = 8
    global_area: tuple[float, ...] = (0.4, 1.0)
    local_area: tuple[float, ...] = (0.05, 0.4)
    distort: bool = True
    masked: tuple[float, ...] = (0.1, 0.5)
    num_prototypes: int = 65_536
    hidden_size: int = 2048
    bottleneck_size: int = 256
    student_temperature: float = 0.1
    teacher_temperatures: tuple[float, ...] = (0.04, 0.07)
    temperature_steps: int = 0
    momentum: float = 0.996
    centring: str = "mean"
    frozen_steps: int = 0
    patch_weight: float = 0.0
    koleo_weight: float = 0.0


# Fields of `Dino` that are those of the crops.
CROPS = ("num_local", "global_area", "local_area", "distort", "masked")


def objective(config, info) -> training_step.Objective:
    """Return the student and the teacher of a config."""
    own = settings(config, training_step.steps_of(config, info)[0])
    return training_step.Objective(
        predictor=lambda model: training.SelfDistillation(
            model,
            own,
            local_size(config, model) if config.dino.num_local else None,
        ),
        loss=None,
        include_top=False,
        best_by="loss",
    )


def settings(config, total_steps: int) -> training.DINO:
    """Return the settings of a config, which are checked."""
    values = dataclasses.asdict(config.dino)
    for name in ("local_size", *CROPS):
        del values[name]
    return training.DINO(total_steps=total_steps, **values)


def local_size(config, model: keras.Model) -> tuple[int, int]:
    """Return the (height, width) of small crops in pixels."""
    size = config.dino.local_size
    if size:
        return size, size
    pairs = zip(model.image_shape[:2], model.metadata["grid"], strict=True)
    height, width = (
        side // patches * max(1, patches // 2) for side, patches in pairs
    )
    return height, width


def batches(config, images: inputs.Inputs, built) -> method.Batches:
    """Return crops of the images."""
    own, info = config.dino, images.info
    crops = data.Crops(
        local_size=local_size(config, built.model),
        flip=config.data.flip,
        grid_size=built.model.metadata["grid"] if own.patch_weight else None,
        **{name: getattr(own, name) for name in CROPS},
    )
    common = dict(
        batch_size=config.data.batch_size,
        image_size=info.image_size,
        channels=info.channels,
        seed=config.seed,
    )

    def train_batches(start_step, *shard):
        return data.crop_batches(
            images.train,
            crops,
            **common,
            cache=config.data.cache,
            start_step=start_step,
            **inputs.shard_options(*shard),
        )

    def eval_batches(*shard):
        return data.crop_eval_batches(
            images.evaluation,
            crops,
            **common,
            **inputs.shard_options(*shard),
        )

    return train_batches, eval_batches


def planned(config, trainer) -> tuple:
    """Return the symbolic inputs, and targets that nothing reads."""
    own, model = config.dino, trainer.student
    *size, channels = model.image_shape
    crops = dict(global_crops=(2, *size, channels))
    if own.num_local:
        small = local_size(config, model)
        crops["local_crops"] = (own.num_local, *small, channels)
    found = {name: keras.Input(shape) for name, shape in crops.items()}
    if own.patch_weight:
        patches = math.prod(model.metadata["grid"])
        places = max(1, int(patches * own.masked[1]))
        found["sources"] = keras.Input((patches,), dtype="int32")
        found["places"] = keras.Input((places,), dtype="int32")
        found["shares"] = keras.Input((places,))
    return found, keras.Input(())


def describe(config, built) -> str:
    """Return what crops there are, and of what the teacher is."""
    own = config.dino
    height, width = local_size(config, built.model)
    small = f" and {own.num_local} of {height}x{width} pixels"
    small = small if own.num_local else ""
    return f"and its teacher, {own.num_prototypes:,} prototypes, 2 crops{small}"


def check(config) -> None:
    """Refuse what this objective does not support."""
    scored.refuse_unused(config, UNUSED, "the objective 'dino'")
    if not config.dino.patch_weight:
        kind = "a run of dino.patch_weight=0"
        scored.refuse_unused(config, ["dino.masked"], kind)
    settings(config, total_steps=1)
    if config.run.micro_batches > 1:
        raise ValueError(
            "`run.micro_batches` must be 1 for the objective 'dino', which "
            "centres over the batch. Received: run.micro_batches="
            f"{config.run.micro_batches}"
        )
    if config.model.tune != "all":
        raise ValueError(
            "`model.tune` must be 'all' for the objective 'dino'. Received: "
            f"model.tune={config.model.tune!r}"
        )
    for name in ("optim.ema_momentum", "data.num_frames"):
        if value := fields.get(config, name):
            raise ValueError(
                f"`{name}` must be 0 for the objective 'dino'. Received: "
                f"{name}={value}"
            )


class NoticeCollapse(keras.callbacks.Callback):
    """Prints a line when the teacher gives the same for all images.

    Args:
        log: Path of metrics.csv, which has the values before a resumption.
    """

    def __init__(self, log):
        super().__init__()
        self.log = log
        self.highest: dict[str, float] = {}

    def on_train_begin(self, logs=None):
        for row in workdirs.read_log(self.log, *MEASURES):
            self._fallen(row)

    def on_epoch_end(self, epoch, logs=None):
        for name, value, highest in self._fallen(logs):
            print(
                f"WARNING: {name} fell to {value:.3g}, from {highest:.3g}: the "
                "teacher gives nearly the same for all images. A lower "
                "`optim.base_lr`, more `dino.frozen_steps`, a higher "
                "`dino.momentum` or a lower second `dino.teacher_temperatures` "
                "may help.",
                flush=True,
            )

    def _fallen(self, row):
        """Return (name, value, highest so far) of what has just fallen."""
        found = []
        for name in MEASURES:
            value = float(row[name])
            highest = max(self.highest.get(name, value), value)
            self.highest[name] = highest
            if value < FALLEN * highest:
                found.append((name, value, highest))
        return found


def callbacks(config, images, built, devices, workdir) -> tuple:
    """Return those that show the teacher to others, and notice a collapse."""
    swap = training.SwapTeacher()
    if not devices.is_main:
        return (swap,)
    return (swap, NoticeCollapse(workdir / "metrics.csv"))


METHOD = method.Method(
    objective=objective,
    batches=batches,
    describe=describe,
    check=check,
    callbacks=callbacks,
    planned=planned,
)
