"""What every recipe that trains shares: its config."""

import dataclasses
import difflib
import types
import typing

import keras_vit
from keras_vit import data
from keras_vit.models import families

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("cosine", "linear", "step")
LOSSES = ("softmax", "sigmoid")
TUNE = ("all", "head", "lora")
DTYPE_POLICIES = (
    "float32",
    "mixed_bfloat16",
    "mixed_float16",
    "bfloat16",
    "float16",
    "float64",
)
CROPS = (*data.views.CROPS, "bit")
# Lowest value of a field, and what it must stay below.
RANGES = (
    ("batch_size", 1, None),
    ("total_steps", 0, None),
    ("num_epochs", 0, None),
    ("warmup_steps", 0, None),
    ("eval_every", 0, None),
    ("fewshot_every", 1, None),
    ("checkpoint_every", 0, None),
    ("keep_checkpoints", 1, None),
    ("micro_batches", 1, None),
    ("steps_per_execution", 0, None),
    ("model_parallel", 0, None),
    ("pad", 0, None),
    ("resize", 0, None),
    ("eval_resize", 0, None),
    ("shots", 0, None),
    ("lora_rank", 1, None),
    ("num_frames", 0, None),
    ("frame_step", 1, None),
    ("frame_rate", 0, None),
    ("min_area", 0, 1),
    ("repeats", 1, None),
    ("seed", 0, 2**32),
    ("dev_fraction", 0, 1),
    ("channels", 0, None),
    ("weight_decay", 0, None),
    ("clip_norm", 0, None),
    ("final_lr", 0, None),
    ("momentum", 0, 1),
    ("layer_decay", 0, None),
    ("ema_momentum", 0, 1),
    ("label_smoothing", 0, 1),
)
# Fields that specify where a run takes place and not what it computes: it may
# resume with others.
RUNTIME_FIELDS = (
    "cache",
    "cluster",
    "devices",
    "keep_checkpoints",
    "model_parallel",
    "steps_per_execution",
    "strategy",
)


def _architecture_fields():
    """Returns the fields of all families that a flag can give: name -> type."""
    fields = {"representation_size": int}
    for family in families.FAMILIES.values():
        for field in dataclasses.fields(family.config):
            kind = field.type
            if isinstance(kind, types.UnionType):
                kind = typing.get_args(kind)[0]
            if kind in KEPT:
                fields.setdefault(field.name, kind)
    return fields


# What leaves a field of a type as it is.
KEPT = {int: 0, float: 0.0, str: "", tuple[int, ...]: (), tuple[float, ...]: ()}
Architecture = dataclasses.make_dataclass(
    "Architecture",
    [
        (name, kind, dataclasses.field(default=KEPT[kind]))
        for name, kind in _architecture_fields().items()
    ],
    kw_only=True,
    slots=True,
    namespace={
        "__module__": __name__,
        "__doc__": """What to change in the model; 0, "" and () change nothing.

The fields are the numbers, names and tuples of the models' dataclasses
(keras_vit.models.vit.ViTConfig and those of the other families), and
`representation_size`, the width of the tanh layer before the head. A model
refuses what is another family's. Where `patch_size` is not given, models for
training from scratch have the largest that leaves 8 patches a side, but no
less than 4 pixels.
""",
    },
)


@dataclasses.dataclass(kw_only=True, slots=True)
class Cluster:
    """Where a run of several processes finds itself; "" asks the environment.

    Attributes:
        coordinator: Address of the first process, "host:port" (JAX).
        num_processes: Number of processes; 0 asks the environment (JAX).
        process_id: Number of this process, from 0; -1 asks the environment
            (JAX).
        tpu: Name or grpc:// address of a TPU, or "local" (TensorFlow).
    """

    coordinator: str = ""
    num_processes: int = 0
    process_id: int = -1
    tpu: str = ""


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """What to train, on what, and how. Off is 0 or "".

    Attributes:
        model: A constructor of keras_vit, such as "ViTB16"; the builders,
            "ViT", "MLPMixer", "RaftMLP", ..., are small models for training
            from scratch.
        architecture: What to change in it.
        weights: Path of a checkpoint or name of released weights.
        dataset: "digits", "moving_digits", a folder of images or of videos
            (`train/class/*` and `test/class/*`, or `class/*`), an npz file,
            or a name of TFDS. A model of images sees each frame of a video by
            itself, and its scores are averaged.
        train_split: TFDS split to train on; "" is "train".
        eval_split: TFDS split to evaluate on; "" is "test" or "validation".
        eval_fraction: Share of each class held out where the data set has no
            part of its own for evaluation.
        data_dir: Where TFDS keeps prepared data; "" is its default.
        manual_dir: Where TFDS finds archives that are fetched by hand.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: What to do about files that do not decode: "error", or "skip"
            to look for them first, leave them out and list them with the
            decoder's reason in skipped.csv.
        exclude: A list of training images to leave out, as written by
            tools.near_duplicates; of folders and arrays.
        dev_fraction: Share of the training images held out, on which to
            evaluate instead of the evaluation images; for choices.
        shots: Number of training images to keep of each class; 0 is all.
        cache: Whether to keep the encoded images in memory.
        image_size: Height and width in pixels, `32,48`; one number makes a
            square. 0 is the data set's own size, or 224 if it has none; where
            the patches of `model` do not divide it, the next size that they
            do, of at least two patches a side.
        channels: 1 or 3; 0 is the data set's own number, or 3.
        num_frames: Frames of a clip, of videos; 0 is the data set's own
            number, or else the model's, or 16.
        frame_step: Frames of the video from one frame of a clip to the next.
        frame_rate: Frames per second that `frame_step` counts in, of video
            files; 0 counts each file's own.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop), "resize" (to `resize`, then a random crop),
            "bit" (the same, at BiT's sizes for the data set) or "none".
        min_area: Least share of the area for "inception".
        pad: Pixels on each side for "pad"; 0 is an eighth of the shorter
            side.
        resize: Pixels per side before the random crop of "resize".
        eval_resize: Pixels of the shorter side before the central crop of
            evaluation; 0 resizes directly to `image_size`.
        flip: Whether to flip left to right, half of the time.
        augment: Layers by name and arguments, such as
            `"RandAugment(num_ops=2, factor=0.5)","MixUp(alpha=0.2)"`, or a
            setting by name, such as "medium1"; see `keras_vit.data`.
        repeats: How often an example follows itself in a batch, each time
            augmented otherwise (repeated augmentation).
        batch_size: Images or clips in each step.
        total_steps: Number of steps; 0 leaves it to `num_epochs`.
        num_epochs: Passes over the training images, each with its repeats.
        warmup_steps: Steps in which the learning rate rises linearly from 0;
            at most a fifth of all.
        base_lr: The highest learning rate.
        final_lr: What "cosine" ends at.
        schedule: What follows, "cosine" to `final_lr`, "linear" to 1e-5, or
            "step".
        decay_at: Shares of all steps at which "step" divides the rate by 10,
            such as `0.3,0.6,0.9`.
        tune: "all", "head" (a linear probe of the frozen model) or "lora"
            (head and low-rank updates of attention).
        lora_rank: Rank of the updates of "lora".
        layer_decay: Learning rate of each block as a share of that of the one
            above, such as 0.75; 0 is the same for all.
        optimizer: "sgd" or "adam".
        momentum: Momentum of "sgd".
        weight_decay: Decoupled decay of all kernels, times the learning rate.
        clip_norm: Largest global norm of the gradient.
        loss: "softmax" for one label an image, or "sigmoid" for several.
        head_bias: First bias of the head, such as -10 with "sigmoid".
        label_smoothing: Share of each label spread over all classes.
        ema_momentum: Momentum of Polyak averaging, such as 0.99. Then the
            averaged weights are evaluated and saved.
        eval_every: Steps between evaluations; 0 is once for each pass over
            the training images.
        fewshot_dataset: A data set whose few-shot accuracy is logged, as
            `dataset`; "" is none.
        fewshot_shots: Numbers of labelled images of each class.
        fewshot_every: Evaluations from one measurement to the next.
        dtype_policy: "float32", "mixed_bfloat16", ...
        micro_batches: Parts of a batch that are computed one after the other,
            for less memory; the gradient is that of the whole batch.
        remat: Whether Transformer blocks recompute their activations in the
            backward pass, for less memory and a third more work.
        checkpoint_every: Steps between checkpoints, from which a run that
            was killed resumes; there is always one before an evaluation.
        keep_checkpoints: Number of the last checkpoints to keep.
        devices: "auto" (what the machine has), "cpu", "gpu" or "tpu".
        strategy: How several devices share the work: "data", or with JAX
            "fsdp" (each holds a part of every variable), "tensor" (each
            computes a part of every block) or "fsdp+tensor".
        model_parallel: Devices that share a block with "tensor"; 0 is as
            many as a process has.
        steps_per_execution: Steps between host synchronisations; 0 chooses the
            most that pays.
        cluster: Where a run of several processes finds itself.
        seed: Of split, order, augmentation, initial weights and dropout.
    """

    model: str = "ViT"
    architecture: Architecture = dataclasses.field(default_factory=Architecture)
    weights: str = ""
    dataset: str = "digits"
    train_split: str = ""
    eval_split: str = ""
    eval_fraction: float = 0.2
    data_dir: str = ""
    manual_dir: str = ""
    try_gcs: bool = False
    broken: str = "error"
    exclude: str = ""
    dev_fraction: float = 0.0
    shots: int = 0
    cache: bool = False
    image_size: tuple[int, ...] = (0,)
    channels: int = 0
    num_frames: int = 0
    frame_step: int = 1
    frame_rate: float = 0.0
    crop: str = "inception"
    min_area: float = data.crops.MIN_AREA
    pad: int = 0
    resize: int = 0
    eval_resize: int = 0
    flip: bool = False
    augment: tuple[str, ...] = ()
    repeats: int = 1
    batch_size: int = 512
    total_steps: int = 0
    num_epochs: int = 0
    warmup_steps: int = 500
    base_lr: float = 0.01
    final_lr: float = 0.0
    schedule: str = "cosine"
    decay_at: tuple[float, ...] = ()
    tune: str = "all"
    lora_rank: int = 8
    layer_decay: float = 0.0
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    loss: str = "softmax"
    head_bias: float = 0.0
    label_smoothing: float = 0.0
    ema_momentum: float = 0.0
    eval_every: int = 0
    fewshot_dataset: str = ""
    fewshot_shots: tuple[int, ...] = (5,)
    fewshot_every: int = 1
    dtype_policy: str = "float32"
    micro_batches: int = 1
    remat: bool = False
    checkpoint_every: int = 0
    keep_checkpoints: int = 3
    devices: str = "auto"
    strategy: str = "data"
    model_parallel: int = 0
    steps_per_execution: int = 0
    cluster: Cluster = dataclasses.field(default_factory=Cluster)
    seed: int = 0


def check(config: Config) -> None:
    """Refuses, before any work, what nothing else refuses clearly.

    Raises:
        ValueError: If a field is not what it must be.
    """
    titles = [family.title for family in families.FAMILIES.values()]
    names = [*titles, *keras_vit.list_models()]
    if config.model not in names:
        near = difflib.get_close_matches(config.model, names, n=3, cutoff=0.4)
        raise ValueError(
            "`model` must be a constructor of keras_vit. Received: "
            f"model={config.model!r}. Nearest names: {near or names}"
        )
    for name, choices in (
        ("optimizer", OPTIMIZERS),
        ("schedule", SCHEDULES),
        ("loss", LOSSES),
        ("tune", TUNE),
        ("crop", CROPS),
        ("dtype_policy", DTYPE_POLICIES),
    ):
        value = getattr(config, name)
        if value not in choices:
            raise ValueError(
                f"`{name}` must be one of {choices}. Received: {name}={value!r}"
            )
    if config.architecture.classifier == "unpooled":
        raise ValueError(
            "`architecture.classifier` must give one answer for an image, "
            "'token' or 'gap'. Received: 'unpooled'"
        )
    for name, low, high in RANGES:
        _check_range(name, getattr(config, name), low, high)
    for field in dataclasses.fields(Architecture):
        value = getattr(config.architecture, field.name)
        name = f"architecture.{field.name}"
        if field.type is int:
            _check_range(name, value, 0)
        elif field.type is float:
            is_rate = field.name.endswith("_rate")
            _check_range(name, value, 0, 1 if is_rate else None)
        elif field.type is not str and not all(units > 0 for units in value):
            raise ValueError(
                f"`{name}` must be positive numbers. Received: {name}={value}"
            )
    if not all(0 < share < 1 for share in config.decay_at):
        raise ValueError(
            "`decay_at` must be shares of all steps, above 0 and below 1. "
            f"Received: decay_at={config.decay_at}"
        )
    if bool(config.decay_at) != (config.schedule == "step"):
        raise ValueError(
            "`decay_at` must be given with schedule='step', and with no other. "
            f"Received: decay_at={config.decay_at}, "
            f"schedule={config.schedule!r}"
        )
    if not 0 < config.base_lr < float("inf"):
        raise ValueError(
            "`base_lr` must be a positive number. "
            f"Received: base_lr={config.base_lr}"
        )
    if not config.total_steps and not config.num_epochs:
        raise ValueError(
            "`total_steps` or `num_epochs` must be positive. Received: "
            "total_steps=0, num_epochs=0"
        )


def _check_range(name, value, low, high=None):
    if not low <= value or (high is not None and value >= high):
        raise ValueError(
            f"`{name}` must be at least {low}"
            + ("" if high is None else f" and below {high}")
            + f". Received: {name}={value}"
        )
