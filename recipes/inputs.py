"""The images or videos of an experiment: their source and their batches."""

import contextlib
import csv
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from keras_vit import data
from keras_vit.data.optional_imports import tensorflow
from keras_vit.models import families
from keras_vit.weights import registry
from recipes import scored
from recipes import workdir as workdirs
from recipes.experiment import Config, Source

# Frames of a clip where neither the data set nor the model has a number.
NUM_FRAMES = 16


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """The properties of a data set that a run uses.

    Attributes:
        image_size: (height, width) in pixels.
        channels: Number of channels.
        class_names: Class names by index.
        train_images: Number of images or videos to train on.
        multi_label: Whether an image may have several labels.
        num_frames: Frames of a clip; 0 of images.
    """

    image_size: tuple[int, int]
    channels: int
    class_names: tuple[str, ...]
    train_images: int
    num_frames: int = 0
    multi_label: bool = False

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of an image, or of a frame."""
        return (*self.image_size, self.channels)

    @property
    def pixels(self) -> str:
        """The size of an image in words, such as "32x32x3 pixels"."""
        return "x".join(map(str, self.image_shape)) + " pixels"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of an image, or (frames, height, width, channels)."""
        frames = (self.num_frames,) if self.num_frames else ()
        return (*frames, *self.image_shape)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """The images or videos of a run.

    Attributes:
        train: The training part.
        evaluation: The evaluation part.
        described: What config.json holds of them; see `describe`.
        info: Their properties.
    """

    train: data.Source
    evaluation: data.Source
    described: dict
    info: DatasetInfo


def prepare(config: Config, workdir: pathlib.Path) -> Inputs:
    """Return the images of a run.

    Args:
        workdir: The folder of the run, which need not exist.

    Raises:
        ValueError: If the data set cannot be loaded, or is not the one with
            which the workdir was begun.
    """
    train, evaluation = load(config)
    described = describe(config, train, evaluation)
    workdirs.refuse_other_data(workdir, described)
    return Inputs(
        train=train,
        evaluation=evaluation,
        described=described,
        info=dataset_info(config, train),
    )


def check_weights(model) -> None:
    """Refuse a wrong name or path of weights, before images are fetched.

    Args:
        model: An object with `name` and `weights`, such as a
            `recipes.experiment.Model`.

    Raises:
        ValueError: If there are no such weights.
    """
    if model.weights:
        registry.resolve(model.weights, model.name, download=False)


def load(config: Config) -> tuple[data.Source, data.Source]:
    """Return the training and the evaluation source.

    Raises:
        ValueError: See `keras_vit.data.load`.
    """
    settings = config.data
    train, evaluation = load_source(settings)
    if settings.exclude:
        train = data.leave_out(train, data.read_exclusions(settings.exclude))
    if settings.dev_fraction:
        train, evaluation = data.hold_out_dev(
            train, settings.dev_fraction, settings.split_seed
        )
    if settings.shots:
        train = data.keep_shots(train, settings.shots, config.seed)
    if settings.train_images:
        train = data.keep_images(train, settings.train_images, config.seed)
    return train, evaluation


def load_source(source: Source) -> tuple[data.Source, data.Source]:
    """Return the training and the evaluation part of a data set.

    Raises:
        ValueError: See `keras_vit.data.load`.
    """
    return data.load(
        source.dataset,
        broken=source.broken,  # type: ignore[arg-type]
        **parts(source),
        **of_tfds(source),
    )


def parts(source: Source) -> dict[str, Any]:
    """Return how a data set is divided, as `keras_vit.data` takes it."""
    return dict(
        train_split=source.train_split,
        eval_split=source.eval_split,
        eval_fraction=source.eval_fraction,
        seed=source.split_seed,
        data_dir=source.data_dir,
    )


def of_tfds(source: Source) -> dict[str, Any]:
    """Return what only TFDS reads, as `keras_vit.data` takes it."""
    return dict(manual_dir=source.manual_dir, try_gcs=source.try_gcs)


def describe(
    config: Config, train: data.Source, evaluation: data.Source
) -> dict:
    """Return what config.json holds of the images: place, counts, digests."""
    return dict(
        place=scored.place_of(config.data.dataset),
        train_images=train.num_examples,
        eval_images=evaluation.num_examples,
        train=data.digest(train),
        evaluation=data.digest(evaluation),
    )


def left_out(train: data.Source, evaluation: data.Source) -> tuple[str, dict]:
    """Describe which files of a folder are not used.

    Returns:
        A sentence for the user, "" if there are none, and the counts for
        config.json.
    """
    skipped = len(train.skipped | evaluation.skipped)
    by_reason = {}
    for source in (train, evaluation):
        for (reason, extension), count in source.ignored.items():
            counts = by_reason.setdefault(reason, {})
            counts[extension] = counts.get(extension, 0) + count
    sentences = []
    if by_reason:
        sentences.append(data.describe_ignored(train, evaluation))
    if skipped:
        files = "file" if skipped == 1 else "files"
        sentences.append(f"{skipped} broken {files} left out (skipped.csv)")
    text = "; ".join(sentences)
    return text, dict(skipped_images=skipped, ignored_files=by_reason)


def write_skipped(
    path: pathlib.Path, train: data.Source, evaluation: data.Source
) -> None:
    """Write the path of each file that does not decode, and the reason."""
    skipped = train.skipped | evaluation.skipped
    # A name that is not UTF-8 is such a reason.
    encoding: dict = dict(encoding="utf-8", errors="backslashreplace")
    with open(path, "w", newline="", **encoding) as file:
        csv.writer(file).writerows([("path", "reason"), *skipped.items()])


@contextlib.contextmanager
def naming_broken_files(*sources):
    """Replace a decoding error by one that names the file."""
    try:
        yield
    except tensorflow().errors.OpError as error:
        for source in sources:
            message = data.explain_broken(source, error=error)
            if message:
                raise ValueError(message) from None
        raise


def dataset_info(config: Config, train: data.Source) -> DatasetInfo:
    """Return the properties of a data set that a run uses.

    Args:
        config: The config, which may specify another size than that of the data
            set.
        train: The training part, or an object with the same fields.

    Raises:
        ValueError: If `config.data.image_size` is not a size, or settings of
            clips have no effect.
    """
    refuse_unused(config, train)
    native_channels = train.image_shape[-1] if train.image_shape else 3
    return DatasetInfo(
        image_size=image_size(config, train),
        channels=config.data.channels or native_channels,
        class_names=train.class_names,
        train_images=train.num_examples,
        num_frames=_frames_of(train, config.data.num_frames, frames_of(config)),
        multi_label=train.multi_label,
    )


def refuse_unused(config: Any, train: data.Source) -> None:
    """Refuse what only clips, and what only clips of video files have."""
    if not train.is_video:
        scored.refuse_unused(config, ["data.frame_step"], "a set of images")
    is_asked = config.data.frame_rate > 0  # 0 and -1 are the file's own
    if is_asked and (not train.is_video or train.paths is None):
        kind = "a set without video files, which have a rate"
        scored.refuse_unused(config, ["data.frame_rate"], kind)


def pipelines(
    config: Config,
    info: DatasetInfo,
    train: data.Source,
    evaluation: data.Source,
) -> tuple[Callable, Callable]:
    """Return functions that make the batches of training and evaluation.

    Returns:
        A function of (first step, shard_index, num_shards, num_replicas), and
        one of the last three.
    """
    settings = config.data
    images: dict[str, Any] = dict(
        batch_size=settings.batch_size,
        image_size=info.image_size,
        channels=info.channels,
        num_frames=info.num_frames,
        frame_step=settings.frame_step,
        frame_rate=settings.frame_rate,
    )

    cropping = crop_options(settings, info.image_size, train.image_shape)

    def train_batches(start_step, *shard):
        return data.train_batches(
            train,
            **images,
            **cropping,
            flip=settings.flip,
            augment=settings.augment,
            repeats=settings.repeats,
            cache=settings.cache,
            seed=config.seed,
            start_step=start_step,
            **shard_options(*shard),
        )

    def eval_batches(*shard):
        return data.eval_batches(
            evaluation,
            **images,
            resize=settings.eval_resize,
            **shard_options(*shard),
        )

    # What checks them leaves them to the run.
    return functools.cache(train_batches), functools.cache(eval_batches)


def crop_options(settings, image_size, image_shape=None) -> dict[str, Any]:
    """Return how training crops, as `data.CropOptions`.

    Args:
        settings: `crop`, `min_area`, `pad` and `resize` of a config.
        image_size: (height, width) of the crop.
        image_shape: Shape of the source's images; None if they differ.
    """
    if settings.crop == "inception":
        return dict(crop="inception", min_area=settings.min_area)
    if settings.crop == "pad":
        return dict(crop="pad", pad=settings.pad or min(image_size) // 8)
    if settings.crop == "none":
        return dict(crop="none")
    resize = settings.resize
    if settings.crop == "bit":
        of_rule, cropped = data.bit_hyper_rule(image_shape)
        # Scaled in proportion at another resolution.
        resize = resize or min(image_size) * of_rule // cropped
    return dict(crop="resize", resize=resize)


def shard_options(
    shard_index: int = 0, num_shards: int = 1, num_replicas: int = 1
) -> dict[str, int]:
    """Return the arguments by name, as `keras_vit.data` takes them."""
    return dict(
        shard_index=shard_index,
        num_shards=num_shards,
        num_replicas=num_replicas,
    )


def num_frames(model: keras.Model, source: data.Source, asked: int = 0) -> int:
    """Return the frames of the clips that a model is given.

    Args:
        model: A model of videos, or one of images that sees each frame by
            itself.
        asked: Frames of a clip; 0 is what the model takes, or else the data
            set's own number, or 16.

    Returns:
        The number of frames; 0 of a set of images.

    Raises:
        ValueError: If the model takes videos, and the data set has images or
            `asked` is another number than the model's.
    """
    of_model = model.input_shape[1] if len(model.input_shape) == 5 else 0
    if of_model and not source.is_video:
        raise ValueError(
            f"`model` takes videos, which {source.name!r} must have. Received: "
            f"a set of images for {model.name!r}, which takes "
            f"{model.input_shape[1:]}"
        )
    if of_model and asked not in (0, of_model):
        raise ValueError(
            f"`num_frames` must be the {of_model} that {model.name!r} takes. "
            f"Received: num_frames={asked}"
        )
    return _frames_of(source, of_model or asked)


def frames_of(config) -> int:
    """Return the frames of a clip: as asked, the model's own, or 16."""
    name = config.model.name
    family = families.of(name)
    of_model = family.input_shapes.get(name, ()) if family else ()
    own = of_model[0] if len(of_model) == 4 else NUM_FRAMES
    return config.data.num_frames or own


def _frames_of(source, asked, default=NUM_FRAMES):
    if source.is_video:
        return asked or source.num_frames or default
    if asked:
        raise ValueError(
            "`num_frames` must be 0 for images. Received: "
            f"num_frames={asked} for {source.name!r}"
        )
    return 0


def image_size(config, source) -> tuple[int, int]:
    """Return (height, width) in pixels; those of the source by default.

    Args:
        config: The config.
        source: The training part, or an object with `image_shape`.

    Raises:
        ValueError: If `config.data.image_size` is not a size.
    """
    size = config.data.image_size
    if len(size) == 1:
        size = size * 2
    if len(size) != 2 or not all(isinstance(n, int) and n >= 0 for n in size):
        raise ValueError(
            "`data.image_size` must be one or two numbers of pixels, height "
            f"and width. Received: data.image_size={config.data.image_size}"
        )
    if not any(size) and config.data.crop == "bit":
        return (data.bit_hyper_rule(source.image_shape)[1],) * 2
    if any(size):
        return size
    if not source.image_shape:
        return (224,) * 2
    return tuple(map(_round_to_patches(config), source.image_shape[:2]))


def _round_to_patches(config):
    """Return a function that rounds a side up to patches of a named model."""
    sizes = families.sizes_of(config.model.name)
    patch = config.model.architecture.patch_size or sizes.get("patch_size", 1)

    def fit(side):
        return side if side % patch == 0 else max(2, -(-side // patch)) * patch

    return fit
