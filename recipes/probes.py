"""Measures of a representation, in training and by `recipes.fewshot`."""

import dataclasses
import pathlib
from collections.abc import Callable

import keras

from keras_vit import data, evaluation
from recipes import experiment, inputs

# To measure on during training.
MAX_TRAIN_IMAGES, MAX_TEST_IMAGES = 50_000, 10_000


def source_of(config: experiment.Config, dataset: str) -> experiment.Source:
    """Return another data set, to measure on during training.

    If it is the training set, its held-out images stay held out.
    """
    own = dataclasses.fields(experiment.Source)
    shared = {field.name: getattr(config.data, field.name) for field in own}
    return experiment.Source(
        **shared
        | dict(
            dataset=dataset,
            train_split="",
            eval_split="",
            broken="error",
            batch_size=64,
        )
    )


def callback(
    model: keras.Model,
    source: experiment.Source,
    shots: tuple[int, ...] = (5,),
    *,
    every: int = 1,
    seed: int = 0,
    train_source: data.Source | None = None,
) -> evaluation.FewShot:
    """Return a callback that measures few-shot accuracy during training.

    For each class, twice the largest number of shots is used: the images that
    are not drawn select the penalty. At most 10,000 images are measured on.

    Args:
        model: The model to measure: the trained one, or another one of its
            variables.
        source: The data set.
        shots: Numbers of labelled images of each class; () measures k-NN and a
            linear probe with all labels, of at most 50,000 images.
        every: Number of evaluations from one measurement to the next.
        train_source: The images that the model is trained on; it is printed how
            many of them are among those to measure on.

    Returns:
        A callback with logs such as "digits/5-shot", or "digits/knn" and
        "digits/linear".

    Raises:
        ValueError: If the data set does not exist, or a class has too few
            images.
    """
    train, test = inputs.load_source(source)
    if train_source is not None and (
        n := data.count_shared(test, train_source)
    ):
        print(
            f"WARNING: {n} of the {test.num_examples} images that few-shot "
            f"accuracy on {source.dataset} is measured on are training images.",
            flush=True,
        )
    data.warn_if_scaled(train)
    extractor, batches = reader(model, train, source)
    own: dict = {}
    kind: type[evaluation.FewShot] = evaluation.Probe
    if shots:
        kind, own = evaluation.FewShot, dict(shots=shots)
        train = data.keep_shots(train, 2 * max(shots), seed)
    return kind(
        pathlib.Path(source.dataset).name,
        _NamingBroken(at_most(train, MAX_TRAIN_IMAGES), batches),
        _NamingBroken(at_most(test, MAX_TEST_IMAGES), batches),
        num_classes=len(train.class_names),
        measured=extractor,
        every=every,
        seed=seed,
        **own,
    )


class _NamingBroken:
    """The batches of a source, whose broken files are named."""

    def __init__(self, source, batches):
        self.source, self.batches = source, batches(source)

    def __iter__(self):
        with inputs.naming_broken_files(self.source):
            yield from self.batches


def at_most(source: data.Source, count: int) -> data.Source:
    """Return a source of at most `count` examples.

    Args:
        count: Largest number of examples: spread evenly over files and arrays,
            or the first ones of a stream.
    """
    return dataclasses.replace(
        data.sample(source, count),
        num_examples=min(count, source.num_examples),
    )


def reader(
    model: keras.Model,
    source: data.Source,
    settings: experiment.Source,
    *,
    layer: str = "",
    num_clips: int = 1,
) -> tuple[keras.Model, Callable]:
    """Return the feature extractor, and a function from source to batches.

    Args:
        model: The model to measure.
        source: A part of the data set.
        settings: How the data set is read.
        layer: Name of the layer whose output is measured; "" is the input of
            the head.
        num_clips: Number of clips of a video, whose features are averaged.
    """
    extractor = evaluation.representation(model, layer or None)
    asked = settings.num_frames if source.is_video else 0
    frames = inputs.num_frames(model, source, asked)
    if frames and len(model.input_shape) == 4:
        extractor = evaluation.average_scores(extractor, frames)
    if num_clips > 1:
        extractor = evaluation.average_scores(extractor, num_clips)

    def batches(part):
        return data.eval_batches(
            part,
            batch_size=settings.batch_size,
            image_size=model.input_shape[-3:-1],
            channels=model.input_shape[-1],
            num_frames=frames,
            frame_step=settings.frame_step,
            frame_rate=settings.frame_rate,
            num_clips=num_clips,
        )

    return extractor, batches
