"""Measures a frozen representation with a few labels per class."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.fewshot")

import dataclasses
import math
import pathlib
import statistics
import warnings

import keras

import keras_vit
from keras_vit import data, evaluation
from keras_vit._paths import can_be_written
from keras_vit.inspection import figures
from keras_vit_cli import runs
from recipes import (
    checks,
    experiment,
    fields,
    inputs,
    probes,
    scored,
    trained_on,
    training_step,
)
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "fewshot.py"


@dataclasses.dataclass(kw_only=True, slots=True)
class Model:
    """The representation to measure.

    Attributes:
        name: Name of a constructor of keras_vit, such as "ViTB16"; "ViT" takes
            its sizes from the weights.
        weights: A checkpoint (a run's last.keras, a file of another format)
            or the name of released weights; "" is an untrained model.
        include_top: False for weights that have no head.
        layer: Name of the layer whose output is measured, such as
            "encoderblock_3"; "" is the input of the head.
        dtype_policy: "float32", "mixed_bfloat16", ...
    """

    name: str = "ViT"
    weights: str = ""
    include_top: bool = True
    layer: str = ""
    dtype_policy: str = "float32"


@dataclasses.dataclass(kw_only=True, slots=True)
class Data(experiment.Source):
    """The images to draw from and to measure on.

    The other fields are those of recipes.experiment.Source; an image_size,
    channels or num_frames of 0 are those of the weights. Features of the frames
    of a video are averaged.

    Attributes:
        batch_size: Images or clips in a batch.
        max_train_images: Number of training images to use, spread evenly over
            files and arrays, or the first ones of a TFDS split; 0 is all.
        num_clips: Clips per video, spread evenly over it; their features are
            averaged.
        frame_step: As in training; -1 is that of the run of the weights, which
            other weights must be given.
        frame_rate: As in training; -1 is that of the run of the weights, or 0.
    """

    frame_step: int = -1
    frame_rate: float = -1.0
    batch_size: int = 64
    max_train_images: int = 0
    num_clips: int = 1


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """The representation to measure, and the data. 0 or "" means off.

    Attributes:
        model: The representation.
        data: The images to draw from and to measure on.
        shots: Numbers of labelled images per class.
        num_draws: Number of random draws of these images.
        l2: Penalties of the regression. One is selected on training images that
            were not drawn.
        neighbours: Numbers of neighbours k for k-NN with all training images;
            0 is no k-NN.
        temperature: Temperature of the weighted k-NN vote.
        seed: Seed of the draws and of an untrained model.
    """

    model: Model = dataclasses.field(default_factory=Model)
    data: Data = dataclasses.field(default_factory=Data)
    shots: tuple[int, ...] = evaluation.SHOTS
    num_draws: int = 5
    l2: tuple[float, ...] = evaluation.L2
    neighbours: tuple[int, ...] = (10, 20)
    temperature: float = 0.07
    seed: int = 0


def run(config: Config, workdir: str = "") -> dict:
    """Measure few-shot and k-NN accuracy of a frozen model.

    Usage:
        python -m recipes.fewshot
            An untrained ViT on scikit-learn's handwritten digits, the baseline
            of a trained representation.
        python -m recipes.fewshot \\
            --config.model.weights=runs/digits-mae/last.keras \\
            --config.model.include_top=False \\
            --config.model.layer=encoderblock_1
            Any model, layer and data set; this one was trained without labels.
        python -m recipes.fewshot \\
            --config=recipes/configs/fewshot.py:ViTL16,cifar100
            Released weights on a data set of TFDS.

    Writes results.json and fewshot.png (accuracy against shots) to the workdir,
    which by default is "runs/", the name of the data set and "-fewshot".

    Returns:
        The contents of results.json.

    Raises:
        ValueError: If a field is invalid.
    """
    name = workdirs.default(config.model.name, config.data.dataset)
    workdir = workdirs.path_of(workdir or f"{name}-fewshot")
    check(config)
    inputs.check_weights(config.model)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.model.dtype_policy)
    train, test = inputs.load_source(config.data)
    data.warn_if_scaled(train)
    inputs.refuse_unused(config, train)
    config = _with_clip_frames(config, train)
    if config.data.max_train_images:
        train = probes.at_most(train, config.data.max_train_images)
    model = _model(config, train)
    about = _announce(config, model, train, test)
    extractor, batches = probes.reader(
        model,
        train,
        config.data,
        layer=config.model.layer,
        num_clips=config.data.num_clips,
    )
    there = next(x for x in (workdir, *workdir.parents) if x.exists())
    if not can_be_written(there / "results.json"):
        raise ValueError(
            "`workdir` must be a folder that can be written. Received: "
            f"{str(workdir)!r}"
        )
    with inputs.naming_broken_files(train, test):
        found = about | _measure(
            config,
            evaluation.features(extractor, batches(train)),
            evaluation.features(extractor, batches(test)),
            len(train.class_names),
        )
    workdir.mkdir(parents=True, exist_ok=True)
    workdirs.write_json(workdir / "results.json", found)
    if config.data.broken == "skip":
        inputs.write_skipped(workdir / "skipped.csv", train, test)
    figures.plot_shots(
        [row["shots"] for row in found["few_shot"]],
        [row["accuracies"] for row in found["few_shot"]],
        workdir / "fewshot.png",
    )
    _print(found)
    print(f"\n  {workdir / 'results.json'}\n  {workdir / 'fewshot.png'}")
    return found


def check(config: Config) -> None:
    """Refuse invalid values before features are computed, which takes long."""
    for path in ("seed", "data.split_seed"):
        checks.check_range(path, fields.get(config, path), 0, 2**32)
    checks.check_range("num_draws", config.num_draws, 1)
    maximum = config.data.max_train_images
    checks.check_range("data.max_train_images", maximum, 0)
    for name in ("shots", "l2"):
        values = getattr(config, name)
        if not values or min(values) <= 0:
            raise ValueError(
                f"`{name}` must be one or more positive numbers. "
                f"Received: {name}={values}"
            )
    for number in config.neighbours:
        checks.check_range("neighbours", number, 0)
    if not any(config.neighbours):
        kind = f"a measurement of neighbours={config.neighbours}"
        scored.refuse_unused(config, ["temperature"], kind)
    elif not config.temperature > 0:
        raise ValueError(
            "`temperature` must be positive. Received: "
            f"temperature={config.temperature}"
        )


def _announce(config, model, train, test):
    """Print what is measured; return what results.json says about the data."""
    what = config.model.weights or "no weights: an untrained model"
    left_out, left_out_counts = inputs.left_out(train, test)
    overlap = trained_on.overlap(
        test, config.data.dataset, config.model.weights, train
    )
    kind = "videos" if train.is_video else "images"
    layer = config.model.layer or "what the head reads"
    print(
        f"{model.name} ({what}), {layer}; {train.num_examples} {kind} of "
        f"{len(train.class_names)} classes to draw from, {test.num_examples} "
        "to measure on." + (left_out and f" {left_out}."),
        flush=True,
    )
    if overlap:
        print(f"WARNING: {overlap}.", flush=True)
    return dict(
        config=dataclasses.asdict(config),
        backend=keras.backend.backend(),
        overlap=overlap,
        **left_out_counts,
    )


def _measure(config, train, test, num_classes):
    """Return the accuracies of features and labels, for results.json."""
    results = evaluation.few_shot(
        train,
        test,
        num_classes=num_classes,
        shots=config.shots,
        l2=config.l2,
        num_draws=config.num_draws,
        seed=config.seed,
    )
    neighbours = [
        _neighbours(train, test, k, temperature)
        for k in config.neighbours
        if k
        for temperature in (None, config.temperature)
    ]
    return dict(
        train_images=len(train[1]),
        test_images=len(test[1]),
        feature_size=train[0].shape[1],
        few_shot=[
            dataclasses.asdict(result) | dict(accuracy=result.mean)
            for result in results
        ],
        neighbours=neighbours,
    )


def _with_clip_frames(config, train):
    """Return the config with the frames of clips that the weights ask for."""
    asked, weights = config.data, config.model.weights
    step, rate = asked.frame_step, asked.frame_rate
    if train.is_video and weights:
        step, rate = runs.clip_frames(
            weights,
            None if step == -1 else step,
            None if rate == -1 else rate,
            "`data.frame_step`",
        )
    else:  # those with which a training begins
        usual = experiment.Source()
        step = usual.frame_step if step == -1 else step
        rate = usual.frame_rate if rate == -1 else rate
    return fields.changed(
        config, {"data.frame_step": step, "data.frame_rate": rate}
    )


def _model(config, train):
    """Build the model with the size of its weights, or of the data set."""
    asked = config.data
    setting = experiment.Config(
        model=experiment.Model(name=config.model.name),
        data=experiment.Data(
            image_size=asked.image_size,
            channels=asked.channels,
            num_frames=asked.num_frames,
        ),
        schedule=experiment.Schedule(total_steps=1),
    )
    checks.check(setting)
    info = inputs.dataset_info(setting, train)
    if not config.model.weights:
        return training_step.build(setting, info).model
    constructor = getattr(keras_vit, config.model.name)
    arguments = dict(
        weights=config.model.weights, include_top=config.model.include_top
    )
    with warnings.catch_warnings():
        # The warning of an all-zero head: the head is not used here.
        warnings.filterwarnings("ignore", "The head of")
        model = constructor(**arguments)
        *frames, height, width, channels = model.input_shape[1:]
        if frames and asked.num_frames:
            frames = [asked.num_frames]
        if any(asked.image_size):
            height, width = info.image_size
        shape = (*frames, height, width, asked.channels or channels)
        if shape == model.input_shape[1:]:
            return model
        return constructor(**arguments, input_shape=shape)


def _neighbours(train, test, k, temperature):
    guesses = evaluation.nearest_neighbours(
        train, test[0], k=k, temperature=temperature
    )
    accuracy = float((guesses == test[1]).mean())
    return dict(k=k, temperature=temperature, accuracy=accuracy)


def _print(found):
    print("\nshots  accuracy  deviation  draws  l2")
    for row in found["few_shot"]:
        draws = row["accuracies"]
        deviation = statistics.stdev(draws) if len(draws) > 1 else math.nan
        print(
            f"{row['shots']:5}  {row['accuracy']:8.2%}  {deviation:9.2%}  "
            f"{len(draws):5}  {row['l2']:g}"
        )
    if found["neighbours"]:
        print("\n    k  accuracy  vote (all training images)")
    for row in found["neighbours"]:
        vote = "plain"
        if row["temperature"]:
            vote = f"weighted, temperature {row['temperature']:g}"
        print(f"{row['k']:5}  {row['accuracy']:8.2%}  {vote}")
