"""The config of all recipes that train."""

import dataclasses
import difflib
import types
import typing

import keras_vit
from keras_vit import data
from keras_vit.models import families
from recipes import choices

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
# The lowest value of a field, and its exclusive upper bound.
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
    ("train_images", 0, None),
    ("lora_rank", 1, None),
    ("num_frames", 0, None),
    ("frame_step", 1, None),
    ("frame_rate", 0, None),
    ("min_area", 0, 1),
    ("repeats", 1, None),
    ("seed", 0, 2**32),
    ("split_seed", 0, 2**32),
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
# Fields that specify where a run takes place, not what it computes: they may
# differ when it resumes.
RUNTIME_FIELDS = (
    "cache",
    "cluster",
    "devices",
    "keep_checkpoints",
    "model_parallel",
    "restart",
    "steps_per_execution",
    "strategy",
)


def _architecture_fields():
    """Returns the fields of all families that a flag can set: name -> type."""
    fields = {"representation_size": int}
    for family in families.FAMILIES.values():
        for name, kind in typing.get_type_hints(family.config).items():
            if typing.get_origin(kind) in (typing.Union, types.UnionType):
                kind = typing.get_args(kind)[0]
            if typing.get_origin(kind) is typing.Literal:
                kind = str
            if kind == tuple[int, int, int]:
                kind = tuple[int, ...]
            if kind in KEPT:
                fields.setdefault(name, kind)
    return fields


# The value of each type that leaves a field unchanged.
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
        "__doc__": """Changes of the model; 0, "" and () change nothing.

The fields are the numbers, names and tuples of the models' dataclasses
(keras_vit.models.vit.ViTConfig and those of the other families), and
`representation_size`, the width of the tanh layer before the head. A model
refuses fields of another family. Without `patch_size`, models for training from
scratch have the largest one that leaves 8 patches per side, but at least 4
pixels.
""",
    },
)


@dataclasses.dataclass(kw_only=True, slots=True)
class Cluster:
    """The cluster of a run of several processes; "" reads the environment.

    Attributes:
        coordinator: Address of the first process, "host:port" (JAX).
        num_processes: Number of processes; 0 reads the environment (JAX).
        process_id: Number of this process, from 0; -1 reads the environment
            (JAX).
        tpu: Name or grpc:// address of a TPU, or "local" (TensorFlow).
    """

    coordinator: str = ""
    num_processes: int = 0
    process_id: int = -1
    tpu: str = ""


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """The model, the data and the training. 0 and "" mean off.

    Attributes:
        model: A constructor of keras_vit, such as "ViTB16"; the builders,
            "ViT", "MLPMixer", "RaftMLP", ..., are small models for training
            from scratch.
        architecture: Changes of the model.
        weights: Path of a checkpoint or name of released weights.
        dataset: "digits", "moving_digits", a folder of images or of videos
            (`train/class/*` and `test/class/*`, or `class/*`), an npz file,
            a name of TFDS, or "module:function" of your own, which returns two
            `keras_vit.data.Source`. A model of images is applied to each frame
            of a video, and its scores are averaged.
        train_split: TFDS split to train on; "" is "train".
        eval_split: TFDS split to evaluate on; "" is "test" or "validation".
        eval_fraction: Share of each class held out for evaluation if the data
            set has no such part.
        data_dir: Directory of TFDS for prepared data; "" is its default.
        manual_dir: Directory of archives downloaded by hand for TFDS.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: What to do with files that do not decode: "error", or "skip" to
            find and skip them before training, and list them with the decoder's
            reason in skipped.csv.
        exclude: A list of training images to exclude, as written by
            tools.near_duplicates; for folders and arrays.
        dev_fraction: Share of the training images held out to evaluate on,
            instead of the evaluation images, for choosing hyperparameters.
        shots: Number of training images of each class; 0 is all.
        train_images: Number of training images, with the same share of each
            class; 0 is all. A smaller subset is contained in a larger one.
        cache: Whether to keep the encoded images, or video files, in memory.
        image_size: Height and width in pixels, `32,48`; one number makes a
            square. 0 is the size of the data set, or 224 if it has none; if
            that is not a multiple of the patches of `model`, the next multiple,
            at least two patches per side.
        channels: 1 or 3; 0 is the number of the data set, or 3.
        num_frames: Frames of a clip, for videos; 0 is the number of the data
            set, or else that of the model, or 16.
        frame_step: Frames of the video from one frame of a clip to the next.
        frame_rate: Frames per second at which `frame_step` counts frames of
            video files; 0 uses the rate of each file.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop), "resize" (to `resize`, then a random crop),
            "bit" (the same, at BiT's sizes for the data set) or "none".
        min_area: Smallest share of the area for "inception".
        pad: Pixels on each side for "pad"; 0 is an eighth of the shorter
            side.
        resize: Pixels per side before the random crop of "resize".
        eval_resize: Pixels of the shorter side before the central crop of
            evaluation; 0 resizes directly to `image_size`.
        flip: Whether to flip left to right, with probability one half.
        augment: Layers by name and arguments, such as
            `"RandAugment(num_ops=2, factor=0.5)","MixUp(alpha=0.2)"`, or a
            setting by name, such as "medium1", or "module:Layer" of your own;
            see `keras_vit.data`.
        repeats: Number of consecutive copies of an example in a batch,
            augmented differently (repeated augmentation).
        batch_size: Images or clips in each step.
        total_steps: Number of steps; 0 uses `num_epochs`.
        num_epochs: Passes over the training images, each with its repeats.
        warmup_steps: Steps in which the learning rate rises linearly from 0;
            at most a fifth of all.
        base_lr: The highest learning rate.
        final_lr: The last learning rate of "cosine".
        schedule: Decay of the learning rate, "cosine" to `final_lr`, "linear"
            to 1e-5, or "step". Or a class of `keras.optimizers.schedules`,
            such as `"PolynomialDecay(power=2)"`, or "module:name" of your own,
            called with `base_lr`, the steps after the warm-up and the arguments
            in the text.
        decay_at: Shares of all steps at which "step" divides the rate by 10,
            such as `0.3,0.6,0.9`.
        tune: "all", "head" (a linear probe of the frozen model) or "lora"
            (head and low-rank updates of attention).
        lora_rank: Rank of the updates of "lora".
        layer_decay: Learning rate of each block relative to the next one, such
            as 0.75; 0 is the same for all.
        optimizer: "sgd", "adam" or "lamb". As Keras has LAMB, its trust ratio
            does not scale the weight decay. Or a class of `keras.optimizers`,
            such as `"Lion(beta_1=0.95)"`, or "module:Class" of your own.
        momentum: Momentum of "sgd".
        weight_decay: Decoupled decay of all kernels, multiplied by the learning
            rate.
        clip_norm: Largest global norm of the gradient.
        loss: "softmax" for one label per image, or "sigmoid" for several.
        head_bias: Initial bias of the head, such as -10 with "sigmoid".
        label_smoothing: Share of each label distributed over all classes.
        ema_momentum: Momentum of Polyak averaging, such as 0.99; the averaged
            weights are evaluated and saved.
        eval_every: Steps between evaluations; 0 evaluates once per epoch.
        fewshot_dataset: A data set whose few-shot accuracy is logged, given
            like `dataset`; "" is none.
        fewshot_shots: Numbers of labelled images of each class.
        fewshot_every: Number of evaluations between measurements.
        dtype_policy: "float32", "mixed_bfloat16", ...
        micro_batches: Parts of a batch that are computed one after the other,
            which saves memory; the gradient is that of the full batch.
        remat: Whether Transformer blocks recompute their activations in the
            backward pass: less memory, a third more work.
        checkpoint_every: Steps between checkpoints, from which a killed run
            resumes; there is always one before an evaluation.
        keep_checkpoints: Number of newest checkpoints to keep.
        restart: Whether a run whose checkpoints are all damaged starts again
            at step 0, instead of being refused; they are renamed.
        devices: "auto" (what the machine has), "cpu", "gpu" or "tpu".
        strategy: How devices divide the work: "data", or with JAX "fsdp" (each
            holds a shard of every variable), "tensor" (each computes a part of
            every block) or "fsdp+tensor".
        model_parallel: Devices that share a block with "tensor"; 0 means all
            devices of a process.
        steps_per_execution: Steps between host synchronisations; 0 selects a
            suitable number.
        cluster: The cluster of a run of several processes.
        seed: Seed of order, augmentation, initial weights, dropout and of
            drawing `shots` and `train_images`.
        split_seed: Seed of drawing the images that `eval_fraction` and
            `dev_fraction` hold out, so that runs of several seeds hold out the
            same ones.
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
    train_images: int = 0
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
    restart: bool = False
    devices: str = "auto"
    strategy: str = "data"
    model_parallel: int = 0
    steps_per_execution: int = 0
    cluster: Cluster = dataclasses.field(default_factory=Cluster)
    seed: int = 0
    split_seed: int = 0


def check(config: Config) -> None:
    """Refuses invalid values early, with a clear message.

    Raises:
        ValueError: If a field has an invalid value.
    """
    titles = [family.title for family in families.FAMILIES.values()]
    names = [*titles, *keras_vit.list_models()]
    if config.model not in names:
        near = difflib.get_close_matches(config.model, names, n=3, cutoff=0.4)
        raise ValueError(
            "`model` must be a constructor of keras_vit. Received: "
            f"model={config.model!r}. Nearest names: {near or names}"
        )
    if config.optimizer not in choices.OPTIMIZERS:
        choices.find_optimizer(config.optimizer)
    if config.schedule not in choices.SCHEDULES:
        choices.find_schedule(config.schedule)
    for name, allowed in (
        ("loss", LOSSES),
        ("tune", TUNE),
        ("crop", CROPS),
        ("dtype_policy", DTYPE_POLICIES),
    ):
        value = getattr(config, name)
        if value not in allowed:
            raise ValueError(
                f"`{name}` must be one of {allowed}. Received: {name}={value!r}"
            )
    if config.architecture.classifier == "unpooled":
        raise ValueError(
            "`architecture.classifier` must give one answer for an image, "
            "'token' or 'gap'. Received: 'unpooled'"
        )
    for name, low, high in RANGES:
        check_range(name, getattr(config, name), low, high)
    for field in dataclasses.fields(Architecture):
        value = getattr(config.architecture, field.name)
        name = f"architecture.{field.name}"
        if field.type is int:
            check_range(name, value, 0)
        elif field.type is float:
            is_rate = field.name.endswith("_rate")
            check_range(name, value, 0, 1 if is_rate else None)
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


def check_range(name: str, value, low, high=None) -> None:
    """Refuses a number outside of a range.

    Args:
        name: Name of the field.
        value: The number.
        low: The lowest number allowed.
        high: What the number must be below; None is no limit.

    Raises:
        ValueError: If the number lies outside.
    """
    if not low <= value or (high is not None and value >= high):
        raise ValueError(
            f"`{name}` must be at least {low}"
            + ("" if high is None else f" and below {high}")
            + f". Received: {name}={value}"
        )
