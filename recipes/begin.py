"""The beginning of a training run: its model, config.json and summary."""

import contextlib
import math
import pathlib

import keras
import numpy as np

from keras_vit import data, distribution
from recipes import (
    experiment,
    inputs,
    others,
    scored,
    trained_on,
    training_step,
)
from recipes import workdir as workdirs

# With fewer tokens, attention has little to choose from.
FEW_TOKENS = 16


def build(
    config: experiment.Config,
    devices: distribution.Devices,
    images: inputs.Inputs,
    objective: training_step.Objective | None = None,
) -> training_step.TrainingStep:
    """Build the model and its training step on the devices.

    Args:
        objective: The training objective; None is classification.

    Raises:
        ValueError: If the model cannot be built, or not divided among the
            devices, or the weights do not fit it.
    """
    devices.check_batch(config.data.batch_size, config.run.micro_batches)
    data.warn_if_scaled(images.train)
    with devices.scope():
        built = training_step.build(
            config, images.info, devices.kind, objective
        )
    distribution.check_model(devices.strategy, built.model)
    return built


def announce(
    config: experiment.Config,
    workdir: pathlib.Path,
    devices: distribution.Devices,
    images: inputs.Inputs,
    built: training_step.TrainingStep,
    size: str,
    kind: str,
) -> None:
    """Write config.json and skipped.csv, and print a summary of the run.

    Args:
        size: The size of an input, in words.

    Raises:
        ValueError: If the model sees an image as a single token.
    """
    train, evaluation, info = images.train, images.evaluation, images.info
    notes = size_notes(info, train, built.model)
    if not devices.is_main:
        return
    left_out, left_out_counts = inputs.left_out(train, evaluation)
    overlap = trained_on.overlap(
        evaluation, config.data.dataset, config.model.weights, train
    )
    record(
        *(config, workdir, devices, info, built, images.described),
        size=size,
        examples=kind,
        ending=left_out and f" {left_out}.",
        num_frames=info.num_frames,
        patches=built.model.metadata["grid"],
        train_images=train.num_examples,
        eval_images=evaluation.num_examples,
        overlap=overlap,
        **left_out_counts,
    )
    if config.data.broken == "skip":
        inputs.write_skipped(workdir / "skipped.csv", train, evaluation)
    if overlap:
        notes.append(f"WARNING: {overlap}.")
    for note in notes:
        print(note, flush=True)


def record(
    config: experiment.Config,
    workdir: pathlib.Path,
    devices: distribution.Devices,
    info: inputs.DatasetInfo,
    built: training_step.TrainingStep,
    data: dict,
    *,
    size: str,
    examples: str,
    model: str = "",
    ending: str = "",
    **derived,
) -> None:
    """Write config.json, and print a summary of the run.

    Args:
        data: What config.json says of the data, by which a run resumes.
        size: The size of an input, in words.
        examples: What it is trained on, in words.
        model: What the model has beside the backbone, in words.
        ending: A last sentence.
        **derived: What else config.json has.
    """
    if not devices.is_main:
        return
    workdirs.say_other_backend(workdir)
    num_parameters = built.model.count_params()
    common = dict(
        model=built.model_arguments,
        num_parameters=num_parameters,
        image_size=info.image_size,
        channels=info.channels,
        classes=len(info.class_names),
        data=data,
        others=workdirs.read_derived(workdir).get("others")
        or others.described(config),
        weights_place=scored.place_of(config.model.weights),
        total_steps=built.total_steps,
        warmup_steps=built.warmup_steps,
        eval_every=built.eval_every,
        devices=f"{devices.num_devices} {devices.kind}",
        backend=keras.backend.backend(),
        keras=keras.__version__,
    )
    workdirs.write_config(workdir, config, common | derived)
    weights = config.model.weights
    origin = f"from {weights}" if weights else "from scratch (no weights)"
    origin += model and f", {model}"
    print(
        f"{config.model.name} {origin}{':' if model else ','} "
        f"{num_parameters:,} parameters, {size}; {data['train_images']} "
        f"{examples} to train on, {data['eval_images']} to evaluate; "
        f"{built.total_steps} steps of {config.data.batch_size}, evaluated "
        f"every {built.eval_every}.{ending}",
        flush=True,
    )


def size_notes(
    info: inputs.DatasetInfo, source: data.Source, model: keras.Model
) -> list[str]:
    """Return sentences about images that are enlarged, and few tokens.

    Args:
        model: The model, of keras_vit.

    Raises:
        ValueError: If the model sees an image as a single token.
    """
    notes = []
    height, width = info.image_size
    patches = model.metadata["grid"]
    tokens = math.prod(patches) if patches else None
    if tokens == 1:
        raise ValueError(
            "`image_size` must leave more than one patch, among which a model "
            f"attends or mixes. Received: one of {height}x{width} pixels. Set "
            "--config.model.architecture.patch_size, or an "
            "--config.data.image_size with other divisors, such as 32."
        )
    own = _own_size(source)
    if own and (own[0] < height or own[1] < width):
        notes.append(
            f"Images of {own[0]}x{own[1]} pixels are enlarged to "
            f"{height}x{width}" + (f", {tokens} tokens." if tokens else ".")
        )
    if tokens and tokens < FEW_TOKENS:
        notes.append(
            f"WARNING: an image is only {tokens} tokens. A larger image_size "
            "or a smaller architecture.patch_size makes more."
        )
    return notes


def _own_size(source):
    """Return (height, width) of the images, the median of some files."""
    if source.image_shape:
        return source.image_shape[:2]
    sizes = []
    for path in (
        data.sample(source, 9).paths or () if not source.is_video else ()
    ):
        with contextlib.suppress(ValueError):  # training names broken files
            sizes.append(data.decode.read_pixels(path).shape[:2])
    return tuple(int(np.median(side)) for side in zip(*sizes, strict=True))
