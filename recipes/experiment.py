"""The config of all recipes that train, by subject."""

import dataclasses
import typing

from keras_vit import data
from recipes.architecture import Architecture

_Extended = typing.TypeVar("_Extended")


@dataclasses.dataclass(kw_only=True, slots=True)
class Model:
    """The model, and what of it is trained.

    Attributes:
        name: A constructor of keras_vit, such as "ViTB16"; the builders,
            "ViT", "MLPMixer", "RaftMLP", ..., are small models for training
            from scratch.
        architecture: Changes of the model.
        weights: Path of a checkpoint or name of released weights.
        tune: "all", "head" (a linear probe of the frozen model) or "lora"
            (head and low-rank updates of attention).
        lora_rank: Rank of the updates of "lora".
        head_bias: Initial bias of a head that the weights do not have, such as
            -10 with a loss of "sigmoid".
        dtype_policy: "float32", "mixed_bfloat16", ...
        remat: Whether Transformer blocks recompute their activations in the
            backward pass: less memory, a third more work.
    """

    name: str = "ViT"
    architecture: Architecture = dataclasses.field(default_factory=Architecture)
    weights: str = ""
    tune: str = "all"
    lora_rank: int = 8
    head_bias: float = 0.0
    dtype_policy: str = "float32"
    remat: bool = False


@dataclasses.dataclass(kw_only=True, slots=True)
class Source:
    """A data set, and the form of its images or clips.

    Attributes:
        dataset: "digits", "moving_digits", a folder of images or of videos
            (`train/class/*` and `test/class/*`, or `class/*`), an npz file,
            a name of TFDS, or "module:function" of your own, which returns two
            `keras_vit.data.Source`. A model of images is applied to each frame
            of a video, and its scores are averaged.
        train_split: TFDS split to train on; "" is "train".
        eval_split: TFDS split to evaluate on; "" is "test" or "validation". Of
            a folder with `test` and `val` which of the two.
        eval_fraction: Share of each class held out for evaluation if the data
            set has no such part.
        split_seed: Seed of drawing the images that are held out, so that runs
            of several seeds hold out the same ones.
        data_dir: Directory of TFDS for prepared data; "" is its default.
        manual_dir: Directory of archives downloaded by hand for TFDS.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: What to do with files that do not decode: "error", or "skip" to
            find and skip them before training, and list them with the decoder's
            reason in skipped.csv.
        image_size: Height and width in pixels, `32,48`; one number makes a
            square. 0 is the size of the data set, or 224 if it has none; if
            that is not a multiple of the patches of the model, the next
            multiple, at least two patches per side.
        channels: 1 or 3; 0 is the number of the data set, or 3.
        num_frames: Frames of a clip, for videos; 0 is the number of the data
            set, or else that of the model, or 16.
        frame_step: Frames of the video from one frame of a clip to the next; 0
            divides the whole video into as many segments as the clip has
            frames, and takes one frame of each.
        frame_rate: Frames per second at which `frame_step` counts frames of
            video files; 0 uses the rate of each file.
        batch_size: Images or clips in each step.
    """

    dataset: str = "digits"
    train_split: str = ""
    eval_split: str = ""
    eval_fraction: float = 0.2
    split_seed: int = 0
    data_dir: str = ""
    manual_dir: str = ""
    try_gcs: bool = False
    broken: str = "error"
    image_size: tuple[int, ...] = (0,)
    channels: int = 0
    num_frames: int = 0
    frame_step: int = 1
    frame_rate: float = 0.0
    batch_size: int = 512


@dataclasses.dataclass(kw_only=True, slots=True)
class Data(Source):
    """The images to train and evaluate on, and how they are augmented.

    Those of `Source` (dataset to batch_size), and:

    Attributes:
        exclude: A list of training images to exclude, as written by
            tools.near_duplicates; for folders and arrays.
        dev_fraction: Share of the training images held out to evaluate on,
            instead of the evaluation images, for choosing hyperparameters.
        shots: Number of training images of each class; 0 is all.
        train_images: Number of training images, with the same share of each
            class; 0 is all. A smaller subset is contained in a larger one.
        cache: Whether to keep the encoded images, or video files, in memory.
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
    """

    exclude: str = ""
    dev_fraction: float = 0.0
    shots: int = 0
    train_images: int = 0
    cache: bool = False
    crop: str = "inception"
    min_area: float = data.crops.MIN_AREA
    pad: int = 0
    resize: int = 0
    eval_resize: int = 0
    flip: bool = False
    augment: tuple[str, ...] = ()
    repeats: int = 1


@dataclasses.dataclass(kw_only=True, slots=True)
class Optim:
    """The loss, and the optimizer that minimizes it.

    Attributes:
        name: "sgd", "adam" or "lamb". As in keras.optimizers.Lamb, weight decay
            is not scaled by the trust ratio. Or a class of `keras.optimizers`,
            such as `"Lion(beta_1=0.95)"`, or "module:Class" of your own.
        base_lr: The highest learning rate.
        momentum: Momentum of "sgd", and of "SGD" of Keras.
        weight_decay: Decoupled decay of all kernels, multiplied by the learning
            rate.
        head_weight_decay: That of the head alone; 0 is the same.
        final_weight_decay: The decay at the end, towards which it moves on a
            cosine; 0 is the same throughout.
        clip_norm: Largest global norm of the gradient.
        layer_decay: Learning rate of each block relative to the next one, such
            as 0.75; 0 is the same for all.
        backbone_warmup: Number of steps in which the backbone is not trained,
            and of those in which its rates then rise, such as `500,1000`, while
            the head trains from the start; () is with the head.
        ema_momentum: Momentum of Polyak averaging, such as 0.99; the averaged
            weights are evaluated and saved.
        loss: "softmax" for one label per image, or "sigmoid" for several.
        label_smoothing: Share of each label distributed over all classes.
    """

    name: str = "sgd"
    base_lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    head_weight_decay: float = 0.0
    final_weight_decay: float = 0.0
    clip_norm: float = 1.0
    layer_decay: float = 0.0
    backbone_warmup: tuple[int, ...] = ()
    ema_momentum: float = 0.0
    loss: str = "softmax"
    label_smoothing: float = 0.0


@dataclasses.dataclass(kw_only=True, slots=True)
class Schedule:
    """The number of steps, and the learning rate over them.

    Attributes:
        total_steps: Number of steps; 0 uses `num_epochs`.
        num_epochs: Passes over the training images, each with its repeats.
        warmup_steps: Steps in which the learning rate rises linearly from 0;
            at most a fifth of all.
        name: Decay of the learning rate, "cosine" to `final_lr`, "linear" to
            1e-5, or "step". Or a class of `keras.optimizers.schedules`, such as
            `"PolynomialDecay(power=2)"`, or "module:name" of your own, called
            with `base_lr`, the steps after the warm-up and the arguments in the
            text.
        final_lr: The last learning rate of "cosine".
        decay_at: Shares of all steps at which "step" divides the rate by 10,
            such as `0.3,0.6,0.9`.
    """

    total_steps: int = 0
    num_epochs: int = 0
    warmup_steps: int = 500
    name: str = "cosine"
    final_lr: float = 0.0
    decay_at: tuple[float, ...] = ()


@dataclasses.dataclass(kw_only=True, slots=True)
class Evaluation:
    """When a run is evaluated, and on what besides the evaluation images.

    Attributes:
        every: Steps between evaluations; 0 evaluates once per epoch.
        fewshot_dataset: A data set whose few-shot accuracy is logged, given
            like `data.dataset`; "" is none.
        fewshot_shots: Numbers of labelled images of each class.
        fewshot_every: Number of evaluations between measurements.
    """

    every: int = 0
    fewshot_dataset: str = ""
    fewshot_shots: tuple[int, ...] = (5,)
    fewshot_every: int = 1


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
class Run:
    """The devices of a run, its memory and its checkpoints.

    Attributes:
        micro_batches: Parts of a batch that are computed one after the other,
            which saves memory; the gradient is that of the full batch.
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
    """

    micro_batches: int = 1
    checkpoint_every: int = 0
    keep_checkpoints: int = 3
    restart: bool = False
    devices: str = "auto"
    strategy: str = "data"
    model_parallel: int = 0
    steps_per_execution: int = 0
    cluster: Cluster = dataclasses.field(default_factory=Cluster)


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """A run. In all fields 0 and "" mean off.

    Attributes:
        model: The model, and what of it is trained.
        data: The images, and how they are augmented.
        optim: The loss and the optimizer.
        schedule: The number of steps, and the learning rate over them.
        evaluation: When and on what the model is evaluated.
        run: Devices, memory and checkpoints.
        seed: Seed of order, augmentation, initial weights, dropout and of
            drawing `data.shots` and `data.train_images`.
    """

    model: Model = dataclasses.field(default_factory=Model)
    data: Data = dataclasses.field(default_factory=Data)
    optim: Optim = dataclasses.field(default_factory=Optim)
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)
    run: Run = dataclasses.field(default_factory=Run)
    seed: int = 0


def may_flip(dataset: str) -> bool:
    """Return whether a mirrored image or clip may be one of its class."""
    # A mirrored 2 is not a 2, nor a mirrored way to the east one to there.
    return dataset not in ("digits", "moving_digits")


def small_images(dataset: str) -> Data:
    """Return a data set for a model that is trained from scratch in minutes."""
    return Data(
        dataset=dataset,
        crop="pad",
        flip=may_flip(dataset),
        batch_size=64,
    )


def extended(config: Config, kind: type[_Extended], **further) -> _Extended:
    """Return a config of a class that extends that of another.

    Args:
        config: Gives the groups of fields that both have.
        kind: The class.
        **further: Groups that it has besides, where not the default.
    """
    names = [field.name for field in dataclasses.fields(config)]
    return kind(**{name: getattr(config, name) for name in names}, **further)


def model_and_dataset(arguments: str, file: str, such_as: str) -> list[str]:
    """Return the parts of "MODEL,DATASET", the argument of a config's file."""
    parts = arguments.split(",", 1)
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            f"The argument of {file} must be MODEL,DATASET, such as {such_as}. "
            f"Received: {arguments!r}"
        )
    return parts
